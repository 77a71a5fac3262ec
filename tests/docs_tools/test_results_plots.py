from pathlib import Path

import cv2
import numpy as np
import pytest
from results_page.evaluations import merge
from results_page.plots import plotted_densities, write_density_plot, write_sparsification_plot

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up
from flowinpaint.errors import InputError
from flowinpaint.evaluation.uncertainty import sparsification


def test_the_plot_has_lines_of_every_method(tmp_path: Path) -> None:
    records = grid_of_records({REFERENCE: 1.0, "eed": 0.5}, [0.01, 0.1, "lidar"])
    records += grid_of_records({REFERENCE: 0.3, "eed": 0.0}, [0.5])  # which has no logarithm
    records += [made_up("amle", 0.01, "MPI-Sintel", "one", None)]
    results = merge([evaluation(records)])
    assert plotted_densities(results) == [0.01, 0.1, 0.5]
    write_density_plot(tmp_path / "plot.png", results)
    picture = cv2.imread(str(tmp_path / "plot.png"))
    assert picture is not None
    assert picture.shape[1] > 2 * picture.shape[0]  # three panels
    for colour in ((180, 119, 31), (14, 127, 255)):  # matplotlib's first two
        columns = np.unique(np.argwhere((picture == colour).all(-1))[:, 1])
        assert np.ptp(columns) > 0.7 * picture.shape[1]


def test_the_plot_has_a_line_for_each_curve(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    error = rng.exponential(size=(30, 40))
    parts = {
        "predictor": sparsification(error, error + rng.exponential(size=error.shape)),
        "random": sparsification(error, rng.random(error.shape)),
    }
    write_sparsification_plot(tmp_path / "plot.png", parts)
    picture = cv2.imread(str(tmp_path / "plot.png"))
    assert picture is not None
    for colour in ((180, 119, 31), (14, 127, 255), (102, 102, 102)):  # matplotlib's first two, and the oracle's grey
        assert np.ptp(np.argwhere((picture == colour).all(-1)), axis=0)[1] > 300
    with pytest.raises(InputError, match="curves must have at least one element"):
        write_sparsification_plot(tmp_path / "none.png", {})
    assert [p.name for p in tmp_path.iterdir()] == ["plot.png"]
