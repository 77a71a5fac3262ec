from pathlib import Path

import cv2
import numpy as np

from finished_evaluations import REFERENCE, evaluation, grid_of_records, made_up
from flowinpaint.evaluation.plots import plotted_densities, write_density_plot
from flowinpaint.evaluation.results import merge


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
