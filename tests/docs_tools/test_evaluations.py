import json
from dataclasses import replace
from pathlib import Path

import pytest
from results_page.evaluations import mean_quality, merge, read_evaluation

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up, write_evaluation
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.evaluation import evaluate, summarise
from flowinpaint.evaluation.report import write_reports
from flowinpaint.evaluation.uncertainty import UncertaintyQuality
from frame_folder import make_root

PAIR = grid_of_records({REFERENCE: 1.0, "eed": 2.0}, [0.05, "lidar"])


def test_what_evaluate_writes_is_read_back(tmp_path: Path) -> None:
    records = evaluate(make_root(tmp_path / "frames"), ["nearest", "harmonic"], [0.1], patterns=["holes"])
    (tmp_path / "out").mkdir()
    settings = {"seed": 0, "root": "frames"}
    write_reports(tmp_path / "out", records, summarise(records, "nearest"), "nearest", settings)
    found = read_evaluation(tmp_path / "out")
    assert found.records == records
    assert (found.reference, found.settings) == ("nearest", settings)
    results = merge([found])
    assert results.scores == summarise(records, "nearest")
    assert results.cases == [0.1, "holes"]
    assert (results.methods, results.datasets) == (["nearest", "harmonic"], ["A", "B"])
    assert results.samples("A") == 2


def test_evaluations_of_different_methods_and_data_sets_are_one() -> None:
    more = [r for r in grid_of_records({REFERENCE: 1.0, "amle": 3.0}, [0.05]) if r.key.dataset == "MPI-Sintel"]
    results = merge([evaluation(PAIR), evaluation(more, "two")])
    assert results.methods == [REFERENCE, "eed", "amle"]
    score = results.score("amle", 0.05, "MPI-Sintel")
    assert score is not None
    assert score.ratio == 3
    assert results.score("amle", "lidar", "KITTI2015") is not None  # measured by others: no figures
    over_all = results.score("amle", 0.05, None)
    assert over_all is not None
    assert over_all.ratio is None
    assert results.sources == {REFERENCE: [0], "eed": [0], "amle": [1]}


def test_of_a_run_that_two_have_the_first_counts_unless_it_failed() -> None:
    first = [made_up(REFERENCE, 0.05, "A", "one", 1.0), made_up("eed", 0.05, "A", "one", None)]
    second = [made_up(REFERENCE, 0.05, "A", "one", 7.0), made_up("eed", 0.05, "A", "one", 3.0)]
    results = merge([evaluation(first), evaluation(second, "two")])
    assert len(results.records) == 2
    for method, epe in ((REFERENCE, 1.0), ("eed", 3.0)):
        score = results.score(method, 0.05, "A")
        assert score is not None
        assert score.epe == epe
    assert results.sources == {REFERENCE: [0], "eed": [1]}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({"inputs": "other files"}, False),
        ({"seed": 1}, True),  # the mask is a file
        ({"seed": 1, "mask": "random"}, False),
        ({"crop": 8}, False),
        ({"version": "0.9", "device": "cuda"}, True),
    ],
)
def test_figures_of_different_frames_or_masks_are_not_mixed(change: dict[str, object], fits: bool) -> None:
    first = evaluation([made_up(REFERENCE, 0.05, "A", "one", 1.0)])
    second = evaluation([made_up("eed", 0.05, "A", "one", 3.0, **change)], "two")
    if fits:
        assert merge([first, second]).methods == [REFERENCE, "eed"]
    else:
        with pytest.raises(InputError, match="two: A/one, 5 %, eed: image, truth and mask must be the same as in one"):
            merge([first, second])


def test_patterns_of_other_seeds_are_not_mixed() -> None:
    first = evaluation([made_up(REFERENCE, "lidar", "A", "one", 1.0)])
    with pytest.raises(InputError, match="two: A/one, lidar, eed: image, truth and mask"):
        merge([first, evaluation([made_up("eed", "lidar", "A", "one", 3.0, seed=1)], "two")])


def test_one_reference_is_taken() -> None:
    with pytest.raises(InputError, match="two: the reference method must be laplace-beltrami, as in one, got eed"):
        merge([evaluation(PAIR), evaluation(PAIR, "two", reference="eed")])
    with pytest.raises(InputError, match="evaluations must have at least one element"):
        merge([])


def test_bad_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nowhere/results\.json: there is no such file"):
        read_evaluation(tmp_path / "nowhere")
    folder = write_evaluation(tmp_path / "out", PAIR)
    content = json.loads((folder / "results.json").read_text())
    for broken in ("no json", "[]", json.dumps(content | {"records": [{}]}), json.dumps({"records": []})):
        (folder / "results.json").write_text(broken)
        with pytest.raises(FileFormatError, match=r"results\.json: is not what 'flowinpaint evaluate' writes"):
            read_evaluation(folder)


def test_qualities_are_averaged_over_frames() -> None:
    a = UncertaintyQuality(0.5, 0.6, 0.9, 0.85, [1.0, 0.5], [1.0, 0.8], [1.0, 0.4])
    mean = mean_quality([a, replace(a, error=1.5, curve=[1.0, 0.7])])
    assert mean.error == 1.0
    assert mean.curve == pytest.approx([1.0, 0.6])
    assert mean.oracle == a.oracle
