import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.runner import Step
from flowinpaint.evaluation.tuning import (
    ParameterGrid,
    draw_samples,
    grid_values,
    grids_as_csv,
    tune_eed,
)
from frame_folder import make_root

SMALL: dict[str, Any] = {"lambdas": 2, "alphas": 3, "crop": 16, "tolerance": 1e-3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "frames")


def test_the_grid_is_the_papers() -> None:
    lams, alphas = grid_values()
    assert len(lams) == 9
    assert (lams[0], lams[4], lams[-1]) == (1e-6, 1e-4, 1e-2)
    np.testing.assert_allclose(np.diff(np.log10(lams)), 0.5, atol=1e-5)
    assert len(alphas) == 14
    assert (alphas[0], alphas[-1]) == (0.001, 0.5)
    np.testing.assert_allclose(np.diff(alphas), 0.499 / 13, atol=1e-5)


def test_each_point_is_the_mean_epe_of_eed_there_on_the_middle_of_the_frames(root: Path) -> None:
    grids = tune_eed(root, [0.1, 0.3], **SMALL)
    assert [grid.density for grid in grids] == [0.1, 0.3]
    for grid in grids:
        assert grid.samples == 4
        frames = [sample.load(grid.density, crop=16) for sample in find_samples(root)]
        for i, lam in enumerate(grid.lambdas):
            for j, alpha in enumerate(grid.alphas):
                values: dict[str, Any] = {"lam": lam, "alpha": alpha, "tolerance": 1e-3}
                fields = [fi.inpaint(f.image, f.truth, f.mask, "eed", **values).flow for f in frames]
                errors = [fi.epe(flow, f.truth) for flow, f in zip(fields, frames, strict=True)]
                assert grid.epe[i, j] == pytest.approx(np.mean(errors))
        assert grid.epe[grid.best] == grid.epe.min()


def test_it_goes_on_where_it_was(root: Path, tmp_path: Path) -> None:
    steps: list[Step] = []

    def stop(step: Step) -> None:
        if step.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_eed(root, [0.1], records=tmp_path / "r.jsonl", progress=stop, **SMALL)
    grids = tune_eed(root, [0.1], records=tmp_path / "r.jsonl", progress=steps.append, **SMALL)
    assert steps[0] == Step(5, 24)
    assert np.array_equal(grids[0].epe, tune_eed(root, [0.1], **SMALL)[0].epe)
    tune_eed(root, [0.1], records=tmp_path / "r.jsonl", progress=steps.append, **SMALL | {"crop": 12})
    assert Step(0, 24) in steps


def test_samples_are_drawn_by_the_seed_without_repeats(root: Path) -> None:
    samples = find_samples(root)
    drawn = [draw_samples(samples, 2, seed) for seed in range(12)]
    assert all(len({s.image for s in pair}) == 2 for pair in drawn)
    assert len({tuple(s.image for s in pair) for pair in drawn}) > 2
    assert draw_samples(samples, 2, 5) == draw_samples(samples, 2, 5)
    assert draw_samples(samples, 99, 0) == samples


def test_the_best_point_and_its_border() -> None:
    inner = ParameterGrid(0.05, 4, (1.0, 2.0, 3.0), (0.1, 0.2, 0.3), np.array([[9, 9, 9], [9, 1, 9], [9, 9, np.nan]]))
    assert inner.parameters == {"lam": 2.0, "alpha": 0.2}
    assert inner.border == []
    edge = ParameterGrid(0.01, 4, (1.0, 2.0, 3.0), (0.1, 0.2, 0.3), np.array([[9, 9, 9], [9, 9, 1], [9, 9, 9]]))
    assert edge.border == ["alpha"]
    assert ParameterGrid(0.1, 1, (1.0,), (0.1,), np.ones((1, 1))).border == ["lam", "alpha"]
    assert edge.parameters == {"lam": 2.0, "alpha": 0.3}


def test_the_csv_holds_every_point() -> None:
    grid = ParameterGrid(0.05, 4, (1.0, 2.0), (0.1, 0.2, 0.3), np.arange(6.0).reshape(2, 3))
    rows = list(csv.DictReader(io.StringIO(grids_as_csv([grid]))))
    assert [(r["lam"], r["alpha"], r["epe"]) for r in rows][3:5] == [("2.0", "0.1", "3.0"), ("2.0", "0.2", "4.0")]
    assert len(rows) == 6


def test_a_sample_that_fails_everywhere_is_named(root: Path) -> None:
    (root / "A" / "one" / "flow.flo").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"got errors at all points of the grid: .*flow\.flo"):
        tune_eed(root, [0.1], **SMALL)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"lambdas": 0}, "lambdas must be at least 1, got 0"),
        ({"alphas": -1}, "alphas must be at least 1, got -1"),
        ({"crop": -1}, "crop must be a side in pixels, or 0 for no crop, got -1"),
        ({"tolerance": 0}, "tolerance must be a relative residual between 0 and 1, got 0"),
        ({"tolerance": float("nan")}, "got nan"),
        ({"densities": [2]}, "densities must be shares above 0 and at most 1, got 2"),
    ],
)
def test_bad_arguments_are_named(root: Path, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        tune_eed(root, **options)
