"""Expected errors of robust fills."""

import math

import numpy as np
import pytest
import torch

from flowinpaint.robust.assessor import Verdict
from flowinpaint.robust.expected_error import expected_error
from flowinpaint.robust.points import Points
from imperfect_fields import points_on, smooth_scene, some_pixels

H, W = 48, 64


def judged(C: int = 2, error: float = 0.3) -> tuple[Points, Verdict]:
    """Points whose estimates are the vectors themselves, with the same expected error."""
    points = points_on(smooth_scene(H, W, C)[1], some_pixels(H, W, 0.05))
    one = torch.ones(len(points))
    return points, Verdict(points.vectors, error * one, one, one)


@pytest.mark.parametrize("C", [1, 2, 3])
def test_errors_per_two_components_become_endpoint_errors(C: int) -> None:
    points, verdict = judged(C)
    found = expected_error(torch.zeros(1, 1, H, W), points, verdict, points.vectors)
    torch.testing.assert_close(found, torch.full((1, 1, H, W), 0.3 * math.sqrt(C / 2)))


def test_the_error_of_the_fill_is_added_as_an_independent_one() -> None:
    points, verdict = judged()
    found = expected_error(torch.full((1, 1, H, W), 0.4), points, verdict, points.vectors)
    torch.testing.assert_close(found, torch.full((1, 1, H, W), 0.5))
    infinite = expected_error(torch.full((1, 1, H, W), torch.inf), points, verdict, points.vectors)
    assert bool((infinite == torch.inf).all())


def test_without_one_it_grows_with_the_distance_and_the_residuals_of_the_cross_fit() -> None:
    points, verdict = judged(error=0.0)
    right = points.place[:, 1] >= W // 2
    predicted = points.vectors + torch.where(right, 2.0, 0.5)[:, None]
    found = expected_error(None, points, verdict, predicted)[0, 0].numpy()
    known = points.mask.numpy()
    assert not found[known].any()
    assert (found[~known] > 0).all()
    quiet, loud = (np.median(found[:, part][~known[:, part]]) for part in (slice(0, W // 3), slice(-W // 3, None)))
    assert loud > 2 * quiet
    assert expected_error(None, points, verdict, points.vectors).max() == 0
