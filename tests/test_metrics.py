import math

import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.errors import InputError
from flowinpaint.metrics import endpoint_error, epe, errors_over, fl_outliers


def row(*vectors: tuple[float, ...]) -> npt.NDArray[np.float32]:
    """A field one pixel high."""
    return np.array([vectors], np.float32)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_endpoint_error_is_the_norm_over_all_channels(channels: int) -> None:
    truth = np.zeros((4, 6, channels))
    error = endpoint_error(truth + 2, truth)
    assert error.shape == (4, 6)
    np.testing.assert_allclose(error, 2 * math.sqrt(channels))


def test_epe_is_the_mean_over_the_valid_pixels() -> None:
    truth, flow = row((0, 0), (0, 0), (0, 0)), row((3, 4), (0, 1), (100, 0))
    assert epe(flow, truth) == pytest.approx(106 / 3)
    assert epe(flow, truth, np.array([[True, True, False]])) == pytest.approx(3)


def test_without_valid_pixels_of_unknown_truth_are_left_out() -> None:
    truth = row((0, 0), (np.nan, 0), (np.inf, np.inf))
    flow = row((3, 4), (1, 1), (np.nan, 1))
    assert epe(flow, truth) == pytest.approx(5)
    assert fl_outliers(flow, truth) == 100
    assert np.isnan(endpoint_error(flow, truth)).tolist() == [[False, True, True]]


@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf])
def test_a_flow_that_is_missing_where_the_truth_is_known_is_infinitely_wrong(missing: float) -> None:
    truth, flow = row((1, 1), (1, 1)), row((1, 1), (missing, 1))
    assert endpoint_error(flow, truth).tolist() == [[0, np.inf]]
    assert epe(flow, truth) == np.inf
    assert fl_outliers(flow, truth) == 50
    assert epe(flow, truth, np.array([[True, False]])) == 0


@pytest.mark.parametrize(
    ("true_u", "flow_u", "is_outlier"),
    [
        (0, 3, False),  # exactly 3 px is not more than 3 px
        (0, 3.001, True),
        (10, 13.1, True),  # 31 % off
        (100, 104.9, False),  # more than 3 px, less than 5 %
        (100, 105, False),  # exactly 5 %
        (100, 105.1, True),
        (40, 42.9, False),  # more than 5 %, less than 3 px
        (-100, -94.8, True),
    ],
)
def test_fl_counts_errors_over_3_px_and_over_5_percent(true_u: float, flow_u: float, is_outlier: bool) -> None:
    assert fl_outliers(np.array([[[flow_u, 0.0]]]), np.array([[[true_u, 0.0]]])) == (100 if is_outlier else 0)


def test_fl_takes_five_percent_of_the_vector_and_not_of_a_component() -> None:
    assert fl_outliers(row((64, 80)), row((60, 80))) == 0


def test_errors_over_counts_what_is_off_by_more_whatever_the_length() -> None:
    truth, flow = row((0, 0), (100, 0), (9, 0), (np.nan, 0)), row((1, 0), (103.5, 0), (9, 3), (0, 0))
    assert errors_over(flow, truth, 1) == pytest.approx(200 / 3)  # exactly 1 px is not more
    assert errors_over(flow, truth, 3) == pytest.approx(100 / 3)
    assert errors_over(flow, truth, 1, np.array([[True, True, False, False]])) == 50
    assert errors_over(row((np.nan,)), row((1.0,)), 3) == 100


def test_bad_inputs_are_named() -> None:
    flow = np.zeros((3, 4, 2))
    with pytest.raises(InputError, match=r"flow must have .*, got \(3, 5, 2\)"):
        epe(np.zeros((3, 5, 2)), flow)
    with pytest.raises(InputError, match=r"truth must have .*, got \(2, 3, 4, 2\)"):
        endpoint_error(flow, np.zeros((2, 3, 4, 2)))
    with pytest.raises(InputError, match=r"valid must be .*, got float64"):
        fl_outliers(flow, flow, np.ones((3, 4)))
    with pytest.raises(InputError, match=r"valid must be .*, got bool \(4, 3\)"):
        epe(flow, flow, np.ones((4, 3), bool))
    with pytest.raises(InputError, match="valid must have at least one pixel"):
        epe(flow, flow, np.zeros((3, 4), bool))
    with pytest.raises(InputError, match="valid must have at least one pixel"):
        fl_outliers(flow, np.full((3, 4, 2), np.nan))
    with pytest.raises(InputError, match="where truth is not finite, got 12 True pixels"):
        epe(flow, np.full((3, 4, 2), np.nan), np.ones((3, 4), bool))
