import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.evaluation import Record, evaluate
from flowinpaint.evaluation.runner import Step
from flowinpaint.methods import registry
from flowinpaint.methods.method import Method
from flowinpaint.methods.nearest import nearest
from flowinpaint.result import Result, Solution
from frame_folder import make_pair, make_root
from image_pair import SHIFT

METHODS = ["nearest", "harmonic"]
Calls = list[tuple[str, float]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "frames")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of a method "counted", which works like nearest and records each call."""
    made: Calls = []

    def counted(image: torch.Tensor, f: torch.Tensor, c: torch.Tensor, *, gain: float = 1.0, **_: Any) -> Solution:
        made.append(("counted", gain))
        solution = nearest(image, f, c)
        return Solution(solution.u * gain)

    monkeypatch.setitem(registry.METHODS, "counted", Method("counted", "", counted))
    return made


def without_seconds(records: list[Record]) -> list[Record]:
    return [replace(r, measured=r.measured and replace(r.measured, seconds=0)) for r in records]


def test_every_sample_density_and_method_has_a_record_with_the_errors_of_inpaint(root: Path) -> None:
    records = evaluate(root, METHODS, [0.1, 0.3])
    places = [(r.key.dataset, r.key.sample, r.key.density, r.key.method) for r in records]
    samples = [(s.dataset, s.name) for s in find_samples(root)]
    assert places == [(*sample, density, method) for sample in samples for density in (0.1, 0.3) for method in METHODS]
    for record in records:
        sample = next(s for s in find_samples(root) if (s.dataset, s.name) == (record.key.dataset, record.key.sample))
        frame = sample.load(record.key.case)
        result = fi.inpaint(frame.image, frame.truth, frame.mask, record.key.method)
        error = np.linalg.norm(result.flow - frame.truth, axis=2)
        length = np.linalg.norm(frame.truth, axis=2)
        measured = record.measured
        assert measured is not None
        assert measured.epe == pytest.approx(error[frame.valid].mean())
        assert measured.epe_unknown == pytest.approx(error[frame.valid & ~frame.mask].mean())
        wrong = (error > 3) & (error > 0.05 * length)
        assert measured.fl == pytest.approx(100 * wrong[frame.valid].mean())
        assert measured.over_1 == pytest.approx(100 * (error > 1)[frame.valid].mean())
        assert measured.over_3 == pytest.approx(100 * (error > 3)[frame.valid].mean())
        assert measured.iterations == result.info["iterations"]
        assert measured.status == result.info["status"]
        assert record.key.mask == ("fixed" if record.key.density == 0.1 else "random")


def test_data_sets_can_be_chosen_and_the_seed_moves_drawn_masks_only(root: Path) -> None:
    first = evaluate(root, ["nearest"], [0.1, 0.3], datasets=["B"], seed=1)
    second = evaluate(root, ["nearest"], [0.1, 0.3], datasets=["B"], seed=2)
    assert {r.key.dataset for r in first} == {"B"}
    for a, b in zip(first, second, strict=True):
        assert a.measured is not None
        assert b.measured is not None
        assert (a.measured.epe == b.measured.epe) == (a.key.mask == "fixed")


def test_patterns_have_records_of_their_own_beside_the_densities(root: Path) -> None:
    records = evaluate(root, METHODS, [0.3], patterns=["single", "lidar"])
    cases = list(dict.fromkeys((r.key.case, r.key.density, r.key.mask) for r in records))
    assert cases == [(0.3, 0.3, "random"), ("lidar", None, "lidar"), ("single", None, "single")]
    for record in records:
        sample = next(s for s in find_samples(root) if (s.dataset, s.name) == (record.key.dataset, record.key.sample))
        frame = sample.load(record.key.case)
        assert record.measured is not None
        assert record.measured.given == frame.mask.mean()
        result = fi.inpaint(frame.image, frame.truth, frame.mask, record.key.method)
        assert record.measured.epe == pytest.approx(fi.epe(result.flow, frame.truth, frame.valid))
    alone = evaluate(root, METHODS, [], patterns=["lidar"])
    assert without_seconds(alone) == without_seconds([r for r in records if r.key.case == "lidar"])


def test_frames_without_pixels_enough_are_left_out_of_a_density(root: Path) -> None:
    records = evaluate(root, ["nearest"], [0.1, 0.9])  # of four fifths that are valid
    assert {r.key.case for r in records} == {0.1}
    fi.write_mask(root / "A" / "two" / "mask_90.png", np.ones((20, 30), np.bool_))
    found = [(r.key.sample, r.measured is not None) for r in evaluate(root, ["nearest"], [0.9])]
    assert found == [("two", True)]


def test_several_processes_give_the_same_records(root: Path) -> None:
    alone = evaluate(root, METHODS, [0.1, 0.3])
    assert without_seconds(evaluate(root, METHODS, [0.1, 0.3], jobs=2)) == without_seconds(alone)


def test_a_second_call_computes_only_what_is_new(root: Path, tmp_path: Path, calls: Calls) -> None:
    out = tmp_path / "out"
    first = evaluate(root, ["counted"], [0.1], out=out)
    assert len(calls) == 4
    assert evaluate(root, ["counted"], [0.1], out=out) == first  # the seconds too
    assert len(calls) == 4
    more = evaluate(root, ["counted"], [0.1, 0.3], out=out)
    assert len(calls) == 8
    assert [record for record in more if record.key.density == 0.1] == first
    evaluate(root, ["counted"], [0.1], patterns=["holes"], out=out)
    assert len(calls) == 12
    evaluate(root, ["counted"], [], patterns=["holes", "grid"], out=out)
    assert len(calls) == 16
    evaluate(root, ["counted"], [0.1], out=out, fresh=True)
    assert len(calls) == 20


def test_what_was_stopped_goes_on(root: Path, tmp_path: Path, calls: Calls) -> None:
    def stop(step: Step) -> None:
        if step.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(root, ["counted"], [0.1], out=tmp_path / "out", progress=stop)
    assert len(calls) == 3
    assert len(evaluate(root, ["counted"], [0.1], out=tmp_path / "out")) == 4
    assert len(calls) == 4


def test_changed_files_parameters_seeds_and_versions_are_computed_again(
    root: Path, tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def computed(**options: Any) -> int:
        before = len(calls)
        evaluate(root, ["counted"], [0.1], out=out, **options)
        return len(calls) - before

    assert computed() == 4
    fi.write_image(root / "A" / "one" / "image.png", np.zeros((20, 30), np.uint8))
    assert computed() == 1
    fi.write_mask(root / "B" / "one" / "mask_10.png", fi.random_mask((20, 30), 0.1, 77))
    assert computed() == 1
    assert computed(parameters=lambda method, density: {"gain": 1.5}) == 4
    assert computed(parameters=lambda method, density: {"gain": 1.5}) == 0
    assert computed(seed=1) == 4
    monkeypatch.setattr("flowinpaint.evaluation.runner.__version__", "next")
    assert computed() == 4
    assert computed() == 0


def test_parameters_are_by_method_and_density(root: Path, calls: Calls) -> None:
    evaluate(
        root,
        ["counted", "nearest"],
        [0.1, 0.3],
        datasets=["A"],
        parameters=lambda method, density: {"gain": 10 * density} if method == "counted" else {},
    )
    assert calls == [("counted", 1.0), ("counted", 3.0)] * 2


def test_a_failure_is_recorded_the_rest_goes_on_and_it_is_tried_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(image: torch.Tensor, f: torch.Tensor, c: torch.Tensor, **_: Any) -> Solution:
        if f.shape[1] == 1:
            raise RuntimeError("no disparities today")
        return nearest(image, f, c)

    monkeypatch.setitem(registry.METHODS, "fragile", Method("fragile", "", fragile))
    (root / "A" / "two" / "flow.png").write_bytes(b"broken")
    records = evaluate(root, ["fragile", "nearest"], [0.1], out=tmp_path / "out")
    failed = {(r.key.dataset, r.key.sample, r.key.method): r.error for r in records if r.measured is None}
    assert failed.keys() == {
        ("B", "one", "fragile"), ("B", "three", "fragile"), ("A", "two", "fragile"), ("A", "two", "nearest")
    }  # fmt: skip
    assert failed["B", "one", "fragile"] == "RuntimeError: no disparities today"
    assert failed["A", "two", "nearest"].endswith("flow.png: not a PNG file")
    assert sum(r.measured is not None for r in records) == 4

    monkeypatch.setitem(registry.METHODS, "fragile", Method("fragile", "", nearest))
    again: list[Step] = []
    evaluate(root, ["fragile", "nearest"], [0.1], out=tmp_path / "out", progress=again.append)
    assert again[0] == Step(4, 8)
    assert len(again) == 5


def test_warnings_become_notes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loud(image: torch.Tensor, f: torch.Tensor, c: torch.Tensor, **_: Any) -> Solution:
        for _i in range(3):
            warnings.warn("matches were thinned", stacklevel=1)
        return nearest(image, f, c)

    monkeypatch.setitem(registry.METHODS, "loud", Method("loud", "", loud))
    for record in evaluate(root, ["loud"], [0.1]):  # pytest turns a warning that escapes into an error
        assert record.notes == ["matches were thinned"]
    stopped = evaluate(root, ["harmonic"], [0.1], parameters=lambda method, density: {"max_iterations": 1})
    assert all(r.notes and r.measured is not None and r.measured.status == "max_iterations" for r in stopped)


def test_progress_counts_up_and_says_when_a_method_is_through_with_a_data_set(root: Path) -> None:
    steps: list[Step] = []
    evaluate(root, METHODS, [0.1], progress=steps.append)
    assert [step.done for step in steps] == list(range(9))
    assert {step.total for step in steps} == {8}
    through = [(s.record.key.dataset, s.record.key.method) for s in steps if s.record is not None and s.left == 0]
    assert through == [("A", "nearest"), ("A", "harmonic"), ("B", "nearest"), ("B", "harmonic")]


def test_pictures_show_every_method_and_are_drawn_again_when_missing(root: Path, tmp_path: Path, calls: Calls) -> None:
    out = tmp_path / "out"
    evaluate(root, ["counted"], [0.1, 0.005], out=out, datasets=["A"])
    evaluate(root, ["counted", "nearest"], [0.1, 0.005], out=out, datasets=["A"], pictures=True)
    evaluate(root, ["nearest"], [], patterns=["holes"], out=out, datasets=["B"], pictures=True)
    assert sorted(p.name for p in (out / "previews" / "B").iterdir()) == ["one_holes.png", "three_holes.png"]
    pictures = sorted((out / "previews" / "A").iterdir())
    assert [p.name for p in pictures] == ["one_0.5.png", "one_10.png", "two_0.5.png", "two_10.png"]
    assert all(fi.read_image(picture).std() > 10 for picture in pictures)
    before = len(calls)
    evaluate(root, ["counted", "nearest"], [0.1, 0.005], out=out, datasets=["A"], pictures=True)
    assert len(calls) == before
    drawn = fi.read_image(pictures[1])
    pictures[1].unlink()
    evaluate(root, ["counted", "nearest"], [0.1, 0.005], out=out, datasets=["A"], pictures=True)
    assert len(calls) == before + 1
    assert fi.read_image(pictures[1]).shape == drawn.shape


def test_weights_in_a_file_count_by_their_content(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    keys = []
    for seed in range(2):
        torch.manual_seed(seed)
        fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(width=4)), path)
        (record,) = evaluate(root / "A", [str(path)], [0.1], out=tmp_path / "out")[:1]
        assert record.measured is not None
        keys.append(record.key.weights)
    assert "" not in keys
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"methods": []}, "methods must name at least one method"),
        ({"methods": ["magic"]}, "methods.*'magic'"),
        ({"methods": ["no.safetensors"]}, "methods: there is no file 'no.safetensors'"),
        ({"densities": []}, "densities must have at least one share"),
        ({"densities": [0.1, 5]}, "densities must be shares above 0 and at most 1, got 5"),
        ({"densities": [0.9, 1.0]}, "densities: 90 % needs more valid pixels than any frame has"),
        ({"densities": [5], "patterns": ["grid"]}, "densities must be shares above 0 and at most 1, got 5"),
        ({"patterns": ["rain"]}, "patterns.*'rain'"),
        ({"inputs": ["rain"]}, "inputs must be among sift, .*'rain'"),
        (
            {"densities": [], "inputs": ["sift", "lk"]},
            "inputs: sift, lk must have vectors in a frame, got none: they lack image2.png",
        ),
        ({"methods": ["harmonic+second"]}, r"methods: \+second needs frames with image2.png, got none"),
        ({"methods": ["nearest+robust"]}, r"methods must have \+robust only after neuroex.*, got 'nearest\+robust'"),
        ({"methods": ["eed+magic"]}, r"methods must be one of .*'eed\+magic'"),
        ({"datasets": ["C"]}, "datasets.*'C'"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"device": "abacus"}, "device.*'abacus'"),
        ({"parameters": lambda method, density: {"lam": 1}}, "lam.*'nearest'"),
        ({"pictures": True}, "out must be a folder if pictures is True"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_written(
    root: Path, tmp_path: Path, options: dict[str, Any], fault: str
) -> None:
    arguments: dict[str, Any] = {"methods": ["nearest"], "densities": [0.1], "out": tmp_path / "out"} | options
    if "pictures" in options:
        del arguments["out"]
    with pytest.raises(InputError, match=fault):
        evaluate(root, **arguments)
    assert not (tmp_path / "out").exists()


def test_the_folder_to_write_to_must_be_one_and_lie_outside_the_root(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="must be a folder, got a file"):
        evaluate(root, ["nearest"], [0.1], out=tmp_path / "file")
    with pytest.raises(InputError, match="must lie outside of the root"):
        evaluate(root, ["nearest"], [0.1], out=root / "out")
    assert not (root / "out").exists()
    (root / "A" / "one" / "image.png").unlink()
    with pytest.raises(FileFormatError, match=r"a sample must have image\.png"):
        evaluate(root, ["nearest"], [0.1])


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two frames with a second image, one of them with given vectors, below a root with two that have neither."""
    root = make_root(tmp_path / "frames")
    make_pair(root / "P" / "one")
    folder = make_pair(root / "P" / "two", seed=1)
    fi.write_flow(folder / "given.flo", np.full((96, 128, 2), SHIFT, np.float32))
    return root


def places(records: list[Record]) -> list[str]:
    """What was run: sample, case and method."""
    return [f"{r.key.dataset}/{r.key.sample} {r.key.case} {r.key.method}" for r in records]


def test_inputs_run_where_their_files_are(pairs: Path) -> None:
    steps: list[Step] = []
    records = evaluate(pairs, ["nearest"], [], inputs=["given", "lk", "noise"], progress=steps.append)
    corrupted = [f"{name} noise nearest" for name in ("A/one", "A/two", "B/one", "B/three")]
    own = ["P/one lk", "P/one noise", "P/two lk", "P/two noise", "P/two given"]
    assert places(records) == [*corrupted, *(f"{place} nearest" for place in own)]
    assert [(step.done, step.total) for step in steps] == [(i, 9) for i in range(10)]
    for record in records:
        assert record.key.density is None
        assert record.measured is not None
        assert record.measured.wrong is not None
        assert record.measured.wrong < 0.05
        assert record.measured.inlier_auc is None
    by_case = {r.key.case: r.measured for r in records if r.key.dataset == "P" and r.measured is not None}
    assert by_case["given"].epe == 0
    assert by_case["given"].given == 1
    assert 0.1 < by_case["noise"].epe < 1
    assert by_case["lk"].epe < 0.5


def test_a_method_gets_the_vectors_of_the_input_and_is_measured_against_the_truth(pairs: Path) -> None:
    for record in evaluate(pairs, ["nearest"], [0.05], inputs=["gross", "sift"], datasets=["P"], seed=5):
        sample = next(s for s in find_samples(pairs, ["P"]) if s.name == record.key.sample)
        frame = sample.load(record.key.case, 5)
        result = fi.inpaint(frame.image, frame.given, frame.mask, "nearest")
        assert record.measured is not None
        assert record.measured.epe == fi.epe(result.flow, frame.truth, frame.valid)
        assert record.measured.given == frame.mask.mean()
        assert (record.measured.wrong is None) == (record.key.case == 0.05)
        if record.key.case == "gross":
            assert record.measured.wrong == pytest.approx(0.2, abs=0.02)


def test_inputs_are_run_again_if_their_files_change(pairs: Path, tmp_path: Path, calls: Calls) -> None:
    def computed(*methods: str) -> int:
        before = len(calls)
        evaluate(pairs, methods, [0.1], inputs=["lk", "given"], datasets=["P"], out=tmp_path / "out")
        return len(calls) - before

    assert computed("counted") == 5
    assert computed("counted") == 0
    fi.write_flow(pairs / "P" / "two" / "given.flo", np.ones((96, 128, 2), np.float32))
    assert computed("counted") == 1
    (pairs / "P" / "two" / "image2.png").write_bytes((pairs / "P" / "one" / "image2.png").read_bytes())
    assert computed("counted") == 1


Keywords = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Keywords:
    """The keywords of each fill, by an `inpaint` that judges by the length of a vector."""
    made: Keywords = []

    def judging(*arguments: Any, robust: bool = False, second: Any = None, **parameters: Any) -> Result:
        made.append({"method": arguments[3], "robust": robust, "second": second} | parameters)
        result = fi.inpaint(*arguments, **parameters)
        if robust:
            inliers = np.where(arguments[2], np.float32(0.5), np.float32(np.nan))
            inliers[np.abs(np.nan_to_num(arguments[1])).max(2) > 12] = 0
            result.info["noise"] = 0.25
            return replace(result, inliers=inliers)
        return result

    monkeypatch.setattr("flowinpaint.evaluation.runner.inpaint", judging)
    return made


def test_variants_pass_robust_and_the_second_image(pairs: Path, asked: Keywords) -> None:
    names = ["harmonic", "harmonic+robust", "harmonic+second+robust"]
    records = evaluate(
        pairs, names, [0.1], inputs=["gross"], datasets=["P"],
        parameters=lambda name, case: {"tolerance": 1e-2} if name == "harmonic+robust" else {},
    )  # fmt: skip
    assert [r.error for r in records] == [""] * 12
    assert [r.key.method for r in records[:3]] == ["harmonic", "harmonic+robust", "harmonic+robust+second"]
    assert [call["method"] for call in asked] == ["harmonic"] * 12
    assert [(call["robust"], call.get("tolerance")) for call in asked[:3]] == [
        (False, None),
        (True, 1e-2),
        (True, None),
    ]
    assert [call["second"] is None for call in asked[:3]] == [True, True, False]
    assert np.array_equal(asked[2]["second"], fi.read_image(pairs / "P" / "one" / "image2.png"))
    assert len({r.key.inputs for r in records[:3]}) == 1  # so that they can be compared
    assert [bool(r.key.second) for r in records[:3]] == [False, False, True]
    for record in records:
        assert record.measured is not None
        robust = "robust" in record.key.method
        assert record.measured.noise == (0.25 if robust else None)
        assert (record.measured.inlier_auc is None) == (not robust or record.key.case == 0.1)
        assert record.measured.inlier_auc is None or record.measured.inlier_auc > 0.8


def test_frames_without_a_second_image_are_left_out_of_a_variant(pairs: Path, tmp_path: Path, asked: Keywords) -> None:
    out = tmp_path / "out"
    records = evaluate(pairs, ["harmonic", "harmonic+second"], [0.1], out=out)
    second = [place for place in places(records) if "second" in place]
    assert second == ["P/one 0.1 harmonic+second", "P/two 0.1 harmonic+second"]
    assert len(records) == 8
    fi.write_image(pairs / "P" / "one" / "image2.png", np.zeros((96, 128), np.uint8))
    before = len(asked)
    evaluate(pairs, ["harmonic", "harmonic+second"], [0.1], out=out)
    assert [call["second"] is not None for call in asked[before:]] == [True]
