import numpy as np
import pytest
from edge_statistics import count_edges


def halves(column: int, low: float, high: float, channels: int) -> np.ndarray:
    field = np.full((20, 30, channels), low, np.float32)
    field[:, column:] = high
    return field


ALL = np.ones((20, 30), bool)


def test_edges_that_coincide() -> None:
    counts = count_edges(halves(10, 0, 200, 3).astype(np.uint8), halves(10, 0, 5, 2), ALL)
    assert counts.flow_edges == 20
    assert counts.flow_edges_with_image_edge == 20
    assert counts.image_edges == counts.image_edges_with_flow_edge > 0


@pytest.mark.parametrize(("apart", "together"), [(2, True), (9, False)])
def test_edges_apart(apart: int, together: bool) -> None:
    counts = count_edges(halves(10, 0, 60, 1)[..., 0].astype(np.uint8), halves(10 + apart, 0, 5, 2), ALL)
    assert counts.flow_edges == 20
    assert counts.flow_edges_with_image_edge == (20 if together else 0)


def test_a_faint_jump_is_no_edge() -> None:
    counts = count_edges(halves(10, 100, 105, 3).astype(np.uint8), halves(10, 0, 0.5, 2), ALL)
    assert counts.flow_edges == counts.image_edges == 0
    assert counts.pixels == 19 * 29


def test_what_was_not_measured_has_no_edges() -> None:
    flow, valid = halves(10, 0, 5, 2), ALL.copy()
    valid[:10, 10] = False
    flow[~valid] = np.nan
    counts = count_edges(halves(10, 0, 200, 3).astype(np.uint8), flow, valid)
    assert counts.flow_edges == 10
    assert counts.pixels < 19 * 29
