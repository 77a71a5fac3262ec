"""AMLE inpainting: its equation, invariants for every input, and the output of the IPOL program."""

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.methods.amle import amle, build_graph, neighbour_offsets
from flowinpaint.metrics import epe
from flowinpaint.result import Progress
from helpers import generator, reference, seeds

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")


def scene(H: int, W: int, channels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A noisy image with one edge, a random field and a mask that knows about every sixth pixel."""
    g = generator(seed)
    image = torch.rand(1, 3, H, W, dtype=torch.float64, generator=g) * 0.05
    image[..., W // 2 :] += 0.5
    f = torch.randn(1, channels, H, W, dtype=torch.float64, generator=g)
    c = (torch.rand(1, 1, H, W, dtype=torch.float64, generator=g) < 0.15).double()
    c[..., H // 2, W // 2] = 1
    return image, f, c


def distance(image: Tensor, x: tuple[int, int], y: tuple[int, int], lam: float) -> float:
    """Distance 3 by its formula, between pixels of image (3, H, W) in [0, 255]."""
    colour = float(sum((image[k][x] - image[k][y]) ** 2 for k in range(3))) / 3
    return (1 - lam) * colour + lam * math.dist(x, y) ** 2


@pytest.mark.parametrize(
    ("neighbourhood", "ratio", "count"), [(1, 1, 8), (2, 1, 8), (1, 2, 16), (2, 2, 24), (1, 3, 32), (2, 3, 48)]
)
def test_neighbourhoods(neighbourhood: int, ratio: int, count: int) -> None:
    offsets = neighbour_offsets(neighbourhood, ratio)
    assert len(set(offsets)) == len(offsets) == count
    assert {(-i, -j) for i, j in offsets} == set(offsets)
    assert ((0, 2) in offsets) == (neighbourhood == 2 and ratio >= 2)


def test_graph_has_the_distance_of_every_pair_and_nothing_outside_the_image() -> None:
    image, _, c = scene(5, 6)
    offsets, known, margin = neighbour_offsets(1, 2), c[0, 0] > 0, 2
    graph = build_graph(image[0] * 255, known, offsets, 0.01, 3)
    unknown = [(i, j) for i in range(5) for j in range(6) if not known[i, j]]
    assert graph.pixels.tolist() == [(i + margin) * 10 + j + margin for i, j in unknown]
    for weights, x in zip(graph.weights, unknown, strict=True):
        for weight, (i, j) in zip(weights, offsets, strict=True):
            y = (x[0] + i, x[1] + j)
            inside = 0 <= y[0] < 5 and 0 <= y[1] < 6
            assert weight == pytest.approx(1 / distance(image[0] * 255, x, y, 0.01) if inside else 0, rel=1e-4)


def test_the_result_satisfies_the_equation() -> None:
    """Recomputed pixel by pixel from the definition, at a steady state."""
    image, f, c = scene(9, 11, channels=1, seed=3)
    solution = amle(image, f, c, lam=0.1, epsilon=1e-7)
    assert solution.status == "converged"
    u, known = solution.u[0, 0], c[0, 0] > 0
    for i in range(9):
        for j in range(11):
            if not known[i, j]:
                near = [(i + a, j + b) for a, b in neighbour_offsets(1, 2) if 0 <= i + a < 9 and 0 <= j + b < 11]
                d = {y: distance(image[0] * 255, (i, j), y, 0.1) for y in near}
                slope = {y: float(u[y] - u[i, j]) / d[y] for y in near}
                y, z = max(near, key=slope.__getitem__), min(near, key=slope.__getitem__)
                assert float(u[i, j]) == pytest.approx(float(d[z] * u[y] + d[y] * u[z]) / (d[y] + d[z]), abs=1e-5)


@pytest.mark.parametrize("vertical", [False, True])
def test_one_dimension_without_edges_is_linear_interpolation(vertical: bool) -> None:
    f = torch.zeros(1, 1, 1, 13, dtype=torch.float64)
    c = torch.zeros_like(f)
    f[..., 0], f[..., 8], f[..., 12] = 2, -6, 10
    c[..., [0, 8, 12]] = 1
    expected = torch.tensor([2, 1, 0, -1, -2, -3, -4, -5, -6, -2, 2, 6, 10], dtype=torch.float64).view(1, 1, 1, 13)
    image = torch.full((1, 3, 1, 13), 0.5, dtype=torch.float64)
    if vertical:
        image, f, c, expected = (x.mT.contiguous() for x in (image, f, c, expected))
    u = amle(image, f, c, epsilon=1e-7).u
    torch.testing.assert_close(u, expected, rtol=0, atol=1e-4)


def test_values_do_not_cross_an_image_edge() -> None:
    image = torch.zeros(1, 3, 12, 20, dtype=torch.float64)
    image[..., 10:] = 1
    f, c = torch.zeros(1, 1, 12, 20, dtype=torch.float64), torch.zeros(1, 1, 12, 20, dtype=torch.float64)
    f[..., 19] = 8
    c[..., [0, 19]] = 1
    u = amle(image, f, c, epsilon=1e-6).u
    assert u[..., :10].max() < 0.1
    assert u[..., 10:].min() > 7.9


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (6, 1), (2, 2), (3, 5), (16, 16), (33, 18)])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_any_size_and_channel_count(size: tuple[int, int], channels: int) -> None:
    image, f, c = scene(*size, channels)
    solution = amle(image, f, c, max_iterations=50)
    assert solution.u.shape == f.shape
    assert torch.isfinite(solution.u).all()
    known = c.expand_as(f) > 0
    assert torch.equal(solution.u[known], f[known])


@settings(max_examples=25)
@given(
    seed=seeds,
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
    offset=st.sampled_from([0.0, 100.0, -3e6]),
    distance=st.sampled_from([1, 2, 3]),
    neighbourhood=st.sampled_from([1, 2]),
)
def test_the_result_stays_within_the_range_of_the_known_values(
    seed: int, size: tuple[int, int], scale: float, offset: float, distance: int, neighbourhood: int
) -> None:
    image, f, c = scene(*size, seed=seed)
    f = f * scale + offset
    u = amle(image, f, c, distance=distance, neighbourhood=neighbourhood, max_iterations=30).u
    known = f[0, :, c[0, 0] > 0]
    rounding = 1e-5 * float(known.abs().max())
    assert (u.amin((2, 3)) >= known.amin(1) - rounding).all()
    assert (u.amax((2, 3)) <= known.amax(1) + rounding).all()


def test_one_known_pixel_fills_everything_with_its_vector() -> None:
    image, f, c = scene(13, 17)
    c.zero_()
    c[..., 4, 11] = 1
    u = amle(image, f + 50, c).u
    torch.testing.assert_close(u, (f + 50)[..., 4:5, 11:12].expand_as(u), rtol=1e-6, atol=0)


def test_all_known_returns_the_input_without_a_sweep() -> None:
    image, f, c = scene(9, 10)
    solution = amle(image, f, torch.ones_like(c))
    assert torch.equal(solution.u, f)
    assert (solution.iterations, solution.residual, solution.status) == (0, 0.0, "converged")


def test_turned_inputs_give_turned_results_up_to_the_order_of_the_sweeps() -> None:
    image, f, c = scene(24, 28)
    # A smooth image and field: on rough ones the sweeps end in cycles that depend on their order.
    image = image.mean(-1, keepdim=True).expand_as(image)
    f = f.cumsum(-1).cumsum(-2) / 100
    u = amle(image, f, c, epsilon=1e-6).u
    turns: list[Callable[[Tensor], Tensor]] = [lambda x: x.flip(-1), lambda x: x.flip(-2), lambda x: x.mT]
    for turn in turns:
        turned = amle(*(turn(x).contiguous() for x in (image, f, c)), epsilon=1e-6).u
        assert (turned - turn(u)).abs().mean() < 5e-3 * f.std()


def test_sweeps_are_capped_on_each_level_and_counted() -> None:
    image, f, c = scene(24, 28)
    c[..., :-4] = 0
    solution = amle(image, f, c, epsilon=1e-12, max_iterations=7)
    assert solution.status == "max_iterations"
    assert solution.iterations == 3 * 7
    assert solution.residual is not None
    assert solution.residual > 1e-12


def test_a_smaller_epsilon_takes_more_sweeps_and_ends_below_it() -> None:
    image, f, c = scene(24, 28, channels=1)
    coarse, fine = (amle(torch.zeros_like(image), f, c, epsilon=epsilon) for epsilon in (1e-2, 1e-4))
    assert coarse.status == fine.status == "converged"
    assert coarse.residual is not None
    assert fine.residual is not None
    assert fine.residual < 1e-4 < coarse.residual < 1e-2
    assert coarse.iterations < fine.iterations


def test_progress_is_told_level_by_level() -> None:
    told: list[Progress] = []
    image, f, c = scene(24, 28)
    solution = amle(image, f, c, scales=2, max_iterations=45, epsilon=1e-12, progress=told.append)
    assert [p.iterations for p in told] == [20, 40, 45, 65, 85, 90]
    assert [p.level for p in told] == [1, 1, 1, 2, 2, 2]
    assert {p.levels for p in told} == {2}
    assert told[-1].residual == solution.residual


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("scales", value) for value in (0, 1.5, math.nan, math.inf)),
        *(("lam", value) for value in (0, 2, math.nan)),
        *(("epsilon", value) for value in (0, -1, math.nan, math.inf)),
        *(("distance", value) for value in (0, 4, 2.5)),
        *(("neighbourhood", value) for value in (0, 3, 1.5)),
        *(("ratio", value) for value in (0, 9, 1.5, math.nan)),
        *(("max_iterations", value) for value in (0, 2.5, math.nan, math.inf)),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"{name} must be .*, got {value}"):
        amle(*scene(6, 7), **{name: value})


# Every level ends early, and where it ends depends on ties and rounding: with relative noise of 1e-6 on the image the
# EPE in `hole` came out between 0.260 and 0.286, in the others within 1 %. So rounding could break the 3 % there.
@pytest.mark.parametrize(("name", "their_epe"), [("occ", 0.0143), ("sparse", 0.1214), ("hole", 0.2809)])
def test_agrees_with_the_ipol_program(name: str, their_epe: float) -> None:
    frame, golden = reference("realflow/MPI-Sintel/alley_1_f0001"), reference("golden/ipol")
    guide, mask = cv2.imread(str(frame / "image.png")), cv2.imread(str(golden / f"mask_{name}.png"), 0)
    assert guide is not None
    assert mask is not None
    truth = np.asarray(cv2.readOpticalFlow(str(frame / "flow.flo")))
    theirs = np.asarray(cv2.readOpticalFlow(str(golden / f"amle_{name}.flo")))
    image, f = (torch.from_numpy(np.moveaxis(x, -1, 0)[None].astype(np.float64)) for x in (guide / 255, truth))
    solution = amle(image, f, torch.from_numpy((mask == 0)[None, None]).double())
    assert solution.status == "converged"
    ours = solution.u[0].permute(1, 2, 0).numpy().astype(np.float32)
    assert epe(ours, truth) == pytest.approx(their_epe, rel=0.03)
    assert epe(ours, theirs) <= 0.02
