"""Variational refinement of a flow on two images."""

import numpy as np
import pytest
import torch
from torch import Tensor

from flowinpaint.robust.assessor import Verdict
from flowinpaint.robust.points import Points
from flowinpaint.robust.refinement import refined, variational
from image_pair import SHIFT, image_pair
from imperfect_fields import points_on, some_pixels

H, W = 96, 128
FIRST, SECOND = (torch.from_numpy(x.astype(np.float32) / 255).expand(1, 3, -1, -1) for x in image_pair(H, W))
TRUE = torch.tensor(SHIFT).float().view(1, 2, 1, 1).expand(1, 2, H, W)
INNER = (..., slice(12, -12), slice(12, -12))


def error(u: Tensor) -> float:
    return float((u - TRUE)[INNER].abs().mean())


@pytest.mark.parametrize("offset", [0.3, -0.7])
def test_an_error_below_a_pixel_shrinks(offset: float) -> None:
    start = TRUE + offset
    found = variational(start, FIRST, SECOND)
    assert found.shape == start.shape
    assert error(found) < 0.3 * error(start)


def test_the_true_flow_stays() -> None:
    assert error(variational(TRUE.clone(), FIRST, SECOND)) < 0.03


def test_without_texture_nothing_pulls_the_flow_away() -> None:
    flat = torch.full((1, 3, H, W), 0.5)
    start = TRUE + 0.5
    torch.testing.assert_close(variational(start, flat, flat), start, atol=0.05, rtol=0)


def points_of_truth(offset: float = 0.0) -> tuple[Points, Verdict]:
    """Points of the true flow, off by an offset, all judged to be correct to 0.01 px."""
    field = (TRUE[0].permute(1, 2, 0) + offset).numpy()
    points = points_on(field, some_pixels(H, W, 0.05))
    N = len(points)
    return points, Verdict(points.vectors, torch.full((N,), 0.01), torch.full((N,), 0.01), torch.full((N,), 5.0))


def test_a_refinement_that_agrees_with_the_estimates_counts_where_the_fill_is_worse() -> None:
    points, verdict = points_of_truth()
    start = TRUE + 0.5
    uncertain, certain = (
        refined(start, torch.full((1, 1, H, W), e), points, verdict, FIRST, SECOND) for e in (1.0, 1e-3)
    )
    assert error(uncertain) < 0.6 * error(start)
    assert error(certain) > 0.9 * error(start)


def test_a_refinement_that_disagrees_with_the_estimates_hardly_counts() -> None:
    points, verdict = points_of_truth(3.0)
    start = TRUE + 3.0
    found = refined(start, torch.full((1, 1, H, W), 0.05), points, verdict, FIRST, SECOND.flip(-1))
    assert float((found - start).abs().mean()) < 0.1


def test_without_a_correct_vector_there_is_nothing_to_compare_with() -> None:
    points, verdict = points_of_truth()
    wrong = verdict._replace(logit=-verdict.logit)
    found = refined(TRUE + 0.5, torch.ones(1, 1, H, W), points, wrong, FIRST, SECOND)
    torch.testing.assert_close(found, variational(TRUE + 0.5, FIRST, SECOND))


@pytest.mark.parametrize("size", [(3, 40), (8, 8), (9, 200)])
@pytest.mark.parametrize("reach", [0.0, 1e4])
def test_any_size_and_flow_stay_finite(size: tuple[int, int], reach: float) -> None:
    images = torch.rand(2, 1, 3, *size)
    u = reach * torch.randn(1, 2, *size)
    points = points_on(u[0].permute(1, 2, 0).numpy(), np.ones(size, np.bool_))
    one = torch.ones(len(points))
    for error in (0.0, torch.inf):
        found = refined(u, torch.full((1, 1, *size), error), points, Verdict(points.vectors, one, one, one), *images)
        assert found.shape == (1, 2, *size)
        assert found.isfinite().all()
