from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from flowinpaint.data.folder import Frame
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.errors import InputError
from flowinpaint.evaluation import zoom_figure as zoom
from flowinpaint.evaluation.zoom_figure import ZoomRow, fill_rows, own_frames, strongest_edges, write_figure
from flowinpaint.viz.colours import colour_field, field_range
from helpers import random_field
from scene_bank import tiny_bank


def frame(height: int = 40, width: int = 60, channels: int = 2) -> Frame:
    image, flow, mask = random_field(height, width, channels)
    return Frame(image, flow, np.ones((height, width), np.bool_), mask)


def test_the_window_is_where_the_jumps_are() -> None:
    flow = np.zeros((80, 120, 2), np.float32)
    flow[..., 0] = np.linspace(0, 30, 120)  # a slope, whose jumps of 0.25 px sum up to more than the square's
    flow[50:56, 90:97] += (0, 9)
    rows, columns = strongest_edges(flow, np.ones((80, 120), np.bool_))
    assert (rows.stop - rows.start, columns.stop - columns.start) == (20, 30)
    assert rows.start < 50 < 56 < rows.stop
    assert columns.start < 90 < 97 < columns.stop


def test_jumps_between_scan_lines_count_and_those_in_an_empty_sky_do_not() -> None:
    flow = np.zeros((80, 120, 2), np.float32)
    flow[:, 40:] = 5  # one long border, most of it in the sky
    flow[58:66, 90:100] = 9
    valid = np.zeros((80, 120), np.bool_)
    valid[50::4, ::2] = True
    flow[~valid] = np.nan
    rows, columns = strongest_edges(flow, valid)
    assert rows.start > 40
    assert columns.start < 40 < columns.stop or columns.start < 90 < 100 < columns.stop


def test_the_window_is_the_best_of_all_and_lies_inside() -> None:
    rng = np.random.default_rng(0)
    flow = np.cumsum(rng.normal(size=(13, 22, 2)), axis=1)
    energy = np.zeros((13, 22))
    for y, x in np.ndindex(13, 22):
        for other in ((y - 1, x), (y, x - 1)):
            if min(other) >= 0:
                energy[y, x] += np.sum((flow[y, x] - flow[other]) ** 2)
    sums = {(y, x): energy[y : y + 3, x : x + 6].sum() for y in range(11) for x in range(17)}
    rows, columns = strongest_edges(flow, np.ones((13, 22), np.bool_))
    assert sums[rows.start, columns.start] == pytest.approx(max(sums.values()))


def test_without_jumps_the_window_is_the_middle() -> None:
    flow, valid = np.ones((40, 80, 2)), np.ones((40, 80), np.bool_)
    assert strongest_edges(flow, valid) == (slice(15, 25), slice(30, 50))
    flow[2:5, 3:9], valid[2:5, 3:9] = 7, False  # what is not valid does not matter
    assert strongest_edges(flow, valid) == (slice(15, 25), slice(30, 50))
    assert strongest_edges(np.ones((1, 1, 2)), np.ones((1, 1), np.bool_)) == (slice(0, 1), slice(0, 1))


@pytest.mark.parametrize("channels", [1, 2])
def test_every_row_and_method_is_drawn(channels: int) -> None:
    rows = fill_rows({"a": frame(channels=channels), "b": frame(50, 60, channels)}, ["nearest", "harmonic"], "cpu")
    assert [list(row.filled) for row in rows] == [["nearest", "harmonic"]] * 2
    one, both = (zoom.zoom_figure(part, 0.05) for part in (rows[:1], rows))
    assert both.dtype == np.uint8
    assert both.shape[1] == one.shape[1] < 2100
    assert both.shape[0] > 1.9 * one.shape[0]
    red = (both == (230, 30, 30)).all(-1)
    assert np.ptp(np.argwhere(red), axis=0)[1] > 0.75 * both.shape[1]  # a box in every column


def test_the_part_in_the_box_is_below_at_the_size_of_the_whole() -> None:
    flow = np.zeros((40, 60, 2), np.float32)
    flow[10:14, 20:26] = 8
    whole = Frame(np.zeros((40, 60, 3), np.uint8), flow, np.ones((40, 60), np.bool_), np.ones((40, 60), np.bool_))
    panels = zoom._row_panels(ZoomRow("a", whole, {"mine": flow + 1}), 0.05, 240)
    assert [title.split("\n") for title, _ in panels] == [
        ["Image", "a"],
        ["Given", "5 %"],
        ["Truth", " "],
        ["mine", "EPE 1.414 | box 1.414"],
    ]
    truth = panels[2][1]
    assert truth.shape == (2 * 160 + 4, 240, 3)
    window = strongest_edges(flow, whole.valid)
    part = np.repeat(np.repeat(colour_field(flow, field_range(flow))[window], 16, axis=0), 16, axis=1)
    assert np.array_equal(truth[-160:], part)


def test_a_box_without_truth_has_no_error() -> None:
    valid = np.zeros((40, 60), np.bool_)
    valid[0, 0] = True
    flow = np.ones((40, 60, 2), np.float32)
    flow[~valid] = np.nan
    sparse = Frame(np.zeros((40, 60, 3), np.uint8), flow, valid, valid)
    panels = zoom._row_panels(ZoomRow("a", sparse, {"mine": np.ones((40, 60, 2))}), "single", 240)
    assert panels[3][0] == "mine\nEPE 0.000"
    assert panels[1][0] == "Given\nsingle"


def test_own_frames_differ_in_nothing_but_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoom, "OWN_SIZE", (48, 72))
    monkeypatch.setattr(zoom, "LayeredFlow", partial(LayeredFlow, bank=tiny_bank()))
    first, other = own_frames(0.05), own_frames("lidar")
    assert list(first) == list(other) == ["landscape", "generated scene"]
    for title, one in first.items():
        assert one.image.dtype == np.uint8
        assert one.image.shape == (48, 72, 3)
        assert one.truth.shape == (48, 72, 2)
        assert one.mask.sum() == round(0.05 * 48 * 72)
        assert np.array_equal(one.image, other[title].image)
        assert np.array_equal(one.truth, other[title].truth)
        assert not other[title].mask[:16].any()


def test_pictures_are_written_as_their_names_say(tmp_path: Path) -> None:
    figure = np.full((40, 60, 3), (200, 30, 90), np.uint8)
    for name, most in (("a.png", 0), ("a.jpg", 4)):
        write_figure(tmp_path / name, figure)
        back = cv2.imread(str(tmp_path / name))
        assert back is not None
        assert np.abs(back[..., ::-1].astype(int) - figure).max() <= most
    with pytest.raises(InputError, match="must end in"):
        write_figure(tmp_path / "a.txt", figure)
    with pytest.raises(InputError, match="rows must have at least one element"):
        zoom.zoom_figure([], 0.05)
