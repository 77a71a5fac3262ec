"""Functions of the user and fields of other programs in an evaluation, and the inputs that it writes for these."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.data.folder import find_samples
from flowinpaint.evaluation import Record, evaluate, summarise
from flowinpaint.evaluation.exported_inputs import export_inputs
from flowinpaint.methods import registry
from flowinpaint.methods.registry import METHODS
from flowinpaint.text_tables import NONE
from frame_folder import H, W, make_pair, make_root
from helpers import run_cli

OWN = """
import numpy as np
import flowinpaint as fi

@fi.numpy_method
def constant(image, flow, mask, *, value=1.0):
    return np.full_like(flow, value)

def broken(image, flow, mask):
    return flow[[9]]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Frames in the current folder, next to methods in own_of_a_test.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("own_of_a_test.py").write_text(OWN)
    yield make_root(tmp_path / "frames")
    sys.modules.pop("own_of_a_test", None)


def of(records: list[Record], method: str) -> list[Record]:
    return [record for record in records if record.key.method == method]


def errors(records: list[Record]) -> list[Any]:
    """The measurements without the statistics of the run."""
    return [r.measured and replace(r.measured, seconds=None, iterations=0, residual=None, status="") for r in records]


def fill_exported(folder: Path, method: str, name: str = "flow.npy") -> None:
    """Write a field next to each exported input, as a user's program does."""
    for given in folder.glob("*/*/*/given.*"):
        flow, mask = fi.read_flow(given)
        assert np.array_equal(mask, fi.read_mask(given.with_name("mask.png")))
        image = fi.read_image(given.with_name("image.png"))
        fi.write_flow(given.with_name(name), fi.inpaint(image, flow, method=method, device="cpu").flow)


def test_the_field_of_a_method_has_the_errors_of_that_method_to_the_last_digit(root: Path) -> None:
    make_pair(root / "A" / "pair")
    cases: dict[str, Any] = {"densities": [0.1, 0.305], "patterns": ["holes"], "inputs": ["noise", "lk"], "seed": 3}
    written = dict(export_inputs(root, "given", **cases))
    assert set(written.values()) == {""}
    assert {path.parts[1] for path in written} == {"10", "30.5", "holes", "noise", "lk"}
    files = {path.name for path in Path("given/noise/A/pair").iterdir()}
    assert files == {"image.png", "image2.png", "given.flo", "mask.png"}
    assert Path("given/10/B/one/given.pfm").exists()
    for name in ("image.png", "image2.png"):
        assert (Path("given/lk/A/pair") / name).read_bytes() == (root / "A/pair" / name).read_bytes()
    fill_exported(Path("given"), "harmonic")
    records = evaluate(root, ["harmonic"], fields={"theirs": "given"}, out="out", **cases)
    theirs, ours = of(records, "theirs"), of(records, "harmonic")
    assert len(theirs) == len(ours) == len(written)
    assert errors(theirs) == errors(ours)
    assert all(r.measured is not None and r.measured.seconds is None and not r.notes for r in theirs)
    assert {s.seconds for s in summarise(records, "theirs") if s.method == "theirs"} == {None}
    assert evaluate(root, ["harmonic"], fields={"theirs": "given"}, out="out", **cases) == records
    fill_exported(Path("given"), "nearest")
    assert errors(of(evaluate(root, ["harmonic"], fields={"theirs": "given"}, out="out", **cases), "theirs")) != errors(
        ours
    )


def make_fields(place: str, folder: Path, root: Path) -> None:
    """A field of ones for each sample; place: a file name with {case}, {dataset} and {sample}."""
    for sample in find_samples(root):
        path = folder / place.format(case="10", dataset=sample.dataset, sample=sample.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        fi.write_flow(path, np.ones((H, W, sample.channels), np.float32), unit="px/256")


@pytest.mark.parametrize(
    "place",
    [
        "{case}/{dataset}/{sample}.npy",
        "{case}/{dataset}/{sample}/flow.npz",
        "{dataset}/{sample}.pfm",
        "{dataset}/{sample}/flow.png",
    ],
)
def test_files_are_found_in_every_layout(root: Path, place: str) -> None:
    make_fields(place, Path("mine"), root)
    jobs = 2 if place.endswith("npy") else 1
    records = evaluate(root, ["own_of_a_test.py:constant"], [0.1], fields={"mine": "mine"}, jobs=jobs)
    assert [r.error for r in records] == [""] * 8
    for own, scored in zip(of(records, "own_of_a_test.py:constant"), of(records, "mine"), strict=True):
        assert own.measured is not None
        assert scored.measured is not None
        assert own.measured.epe_unknown == scored.measured.epe_unknown
        assert own.measured.epe < scored.measured.epe  # given vectors are put back into the result of a method only
        assert scored.notes[0].startswith("The field is off by ")


def test_a_missing_misshapen_or_unfilled_field_is_a_failure_and_no_zero(root: Path) -> None:
    make_fields("{dataset}/{sample}.npy", Path("mine"), root)
    (Path("mine/A/one.npy")).unlink()
    fi.write_flow("mine/A/two.npy", np.ones((H, W, 1), np.float32))
    fi.write_flow("mine/B/one.npy", np.ones((H, W + 1, 1), np.float32))
    field = np.ones((H, W, 1), np.float32)
    field[:, : W // 5] = np.nan  # where the truth is not valid, nothing is needed
    fi.write_flow("mine/B/three.npy", field)
    records = of(evaluate(root, ["nearest"], [0.1], fields={"mine": "mine"}), "mine")
    assert [r.error for r in records] == [
        "mine/A/one.flo: there is no such file, and no mine/A/one/flow.flo",
        "mine/A/two.npy: must have 2 channels as the truth, got 1",
        "mine/B/one.npy: must be 30x20 pixels as the truth, got 31x20",
        "",
    ]
    field[3, W // 5 :] = np.inf
    fi.write_flow("mine/B/three.npy", np.ones((H, W, 1), np.float32), np.isfinite(field[..., 0]))
    *_, last = of(evaluate(root, ["nearest"], [0.1], fields={"mine": "mine"}), "mine")
    fault = "must have a vector at all 480 pixels where the truth is valid, got none at 24 of them"
    assert (last.error, last.measured) == (f"mine/B/three.npy: {fault}", None)


def test_a_picture_of_a_field_is_no_field_unless_it_is_alone(root: Path) -> None:
    make_fields("{dataset}/{sample}.npy", Path("mine"), root)
    fi.write_image("mine/A/one.png", np.zeros((H, W, 3), np.uint8))
    assert of(evaluate(root, ["nearest"], [0.1], fields={"mine": "mine"}), "mine")[0].error == ""
    Path("mine/A/one.npy").unlink()
    error = of(evaluate(root, ["nearest"], [0.1], fields={"mine": "mine"}), "mine")[0].error
    assert error.startswith("mine/A/one.png: a field PNG must have 16 bits")


@pytest.mark.parametrize(
    ("fields", "densities", "fault"),
    [
        ({"mine": "nowhere"}, [0.1], "fields 'mine': must be a folder, got nowhere"),
        ({"nearest": "mine"}, [0.1], "fields must have names that no method has, got 'nearest'"),
        ({"a+b": "mine"}, [0.1], "fields must have names without spaces, commas, '\\+', ':' and '/', got 'a\\+b'"),
        (
            {"mine": "mine"},
            [0.1, 0.3],
            "fields 'mine': mine must have a folder for each of 10, 30, got none; evaluate ",
        ),
        ({"mine": "frames"}, [0.1], "fields 'mine': must be computed fields, got the truth .*flow.flo"),
        (
            {"mine": "mine/A"},
            [0.1],
            "must have fields for the frames, got no files such as mine/A/A/one.flo or mine/A/A/one/flow.flo$",
        ),
        ({"mine": "double"}, [0.1], "fields 'mine': must have one field per sample, got .*one.pfm and .*one.npy"),
    ],
)
def test_wrong_folders_are_errors(root: Path, fields: Mapping[str, str], densities: list[float], fault: str) -> None:
    make_fields("{dataset}/{sample}.npy", Path("mine"), root)
    make_fields("{dataset}/{sample}.npy", Path("double"), root)
    make_fields("{dataset}/{sample}.pfm", Path("double"), root)
    with pytest.raises(fi.InputError, match=fault):
        evaluate(root, ["nearest"], densities, fields=fields)


def test_a_record_of_an_own_function_is_kept_until_its_source_changes(root: Path) -> None:
    name = "own_of_a_test.py:constant"

    def values() -> list[float]:
        return [r.measured.seconds or 0 for r in evaluate(root, [name], [0.1], out="out") if r.measured]

    first = values()
    assert len(first) == 4
    assert values() == first
    Path("own_of_a_test.py").write_text(OWN + "# changed\n")
    assert values() != first


def test_errors_of_own_functions_name_the_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))
    records = evaluate(root, ["own_of_a_test:broken"], [0.1], datasets=["A"])
    assert all(r.error.startswith("IndexError: ") and r.error.endswith(" (own_of_a_test.py, line 10)") for r in records)
    fi.register_method("none", lambda image, flow, mask: None)
    records = evaluate(root, ["none"], [0.1], datasets=["A"])
    assert {r.error for r in records} == {"method 'none' must return a Solution or a tensor, got None"}


def test_fields_can_be_scored_alone(root: Path) -> None:
    make_fields("{dataset}/{sample}.npy", Path("mine"), root)
    records = evaluate(root, [], [0.1], fields={"mine": "mine"})
    assert len(records) == 4
    with pytest.raises(fi.InputError, match="methods must name at least one method, got none"):
        evaluate(root, [], [0.1])
    with pytest.raises(fi.InputError, match="methods must be names; register_method gives a function a name; got an o"):
        evaluate(root, [fi.numpy_method(lambda image, flow, mask: flow)], [0.1])  # type: ignore[list-item]


def test_fields_of_other_vectors_are_neither_kept_nor_removed_by_another_export(root: Path) -> None:
    for _ in range(2):
        assert set(dict(export_inputs(root, "given", [0.2])).values()) == {""}
        fill_exported(Path("given"), "nearest")
    before = Path("given/20/A/one/mask.png").read_bytes()
    fault = "flow.npy must be of these vectors, got others; remove it, or export to another folder"
    assert set(dict(export_inputs(root, "given", [0.2], seed=1)).values()) == {fault}
    assert Path("given/20/A/one/mask.png").read_bytes() == before


def test_an_input_that_cannot_be_written_is_told(root: Path) -> None:
    (root / "A/one/mask_10.png").write_bytes(b"broken")
    written = list(export_inputs(root, "given", [0.1]))
    assert [bool(error) for _, error in written] == [True, False, False, False]
    with pytest.raises(fi.InputError, match="must lie outside of the root"):
        list(export_inputs(root, root / "given", [0.1]))


def test_the_command_line_writes_inputs_and_scores_fields(root: Path) -> None:
    common = ("evaluate", "--root", "frames", "--densities", "10")
    code, stdout, _ = run_cli(*common, "--export-inputs", "given")
    assert (code, stdout) == (0, "Wrote 4 inputs to given; the first is in given/10/A/one.\n")
    fill_exported(Path("given"), "nearest")
    arguments = ("--methods", "own_of_a_test:constant", "--fields", "theirs=given", "--reference", "theirs")
    code, stdout, _ = run_cli(*common, *arguments, "--set", "own_of_a_test:constant.value=2")
    assert code == 0
    row = next(line for line in stdout.splitlines() if line.split()[:1] == ["theirs"])
    assert row.split()[1] == "1.000"
    assert row.split()[-1] == NONE
    report = Path("evaluation/results.md").read_text()
    assert "Fields computed by other programs, whose seconds are unknown: `theirs` (given)." in report
    Path("given/10/A/one/flow.npy").unlink()
    code, stdout, stderr = run_cli(*common, *arguments)
    assert code == 1
    assert "A/one, 10 %, theirs: given/10/A/one.flo: there is no such file, and no given/10/A/one/flow.flo\n" in stderr
    for option, fault in (
        (("--fields", "theirs"), "--fields must be NAME=FOLDER, such as mine=results/mine, got 'theirs'"),
        (("--fields", "a=given", "--fields", "a=given"), "--fields must have different names, got 'a' twice"),
        (
            ("--export-inputs", "x", "--methods", "nearest"),
            "--export-inputs must not be combined with --methods or --fields",
        ),
        (("--methods", "own_of_a_test"), "name a function in the file: own_of_a_test.py:function"),
    ):
        code, _, stderr = run_cli(*common, *option)
        assert code == 1
        assert stderr.startswith("Error: ")
        assert fault in stderr
