"""AMLE inpainting: the absolutely minimising Lipschitz extension, infinity-harmonic in a metric of the image.

Raad, Oliver, Ballester, Haro and Meinhardt-Llopis, "On Anisotropic Optical Flow Inpainting Algorithms", IPOL 2020.
For an unknown pixel x, y and z are the neighbours with the steepest slope up and down, in the distance d of
`image_distance`. The pixel gets the value at which the two slopes are equal:

    u(x) = (d(x,z) u(y) + d(x,y) u(z)) / (d(x,y) + d(x,z))

by Gauss–Seidel sweeps in row order, on `scales` levels from coarse to fine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.checks import check_whole
from flowinpaint.diffusion.coarse_to_fine import coarse_to_fine
from flowinpaint.diffusion.data_term import DataTerm, data_term
from flowinpaint.diffusion.pyramid import image_pyramid, levels_to_one_pixel, push, refine
from flowinpaint.errors import InputError
from flowinpaint.methods.harmonic import within_range
from flowinpaint.methods.laplace_beltrami import image_distance
from flowinpaint.progress import level_share, solver_share
from flowinpaint.result import Progress, ProgressCallback, Solution, Status

COLOUR_RANGE = 255.0
"""Scale of colours, with lengths in pixels; the default λ is chosen for it."""
SWEEPS_AT_ONCE = 20
"""Sweeps between two reports of progress."""

Offsets = list[tuple[int, int]]


class Graph(NamedTuple):
    """The P unknown pixels of one level and their K neighbours, in a flattened field with a margin.

    pixels (P,): positions, in row order. steps (K,): from a pixel to its neighbours.
    weights (P, K) float32: 1 / distance, 0 for a neighbour outside the image.
    """

    pixels: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


def amle(
    image: Tensor,
    flow: Tensor,
    mask: Tensor,
    *,
    scales: int = 3,
    lam: float = 0.001,
    epsilon: float = 0.001,
    distance: int = 3,
    neighbourhood: int = 1,
    ratio: int = 2,
    max_iterations: int = 1000,
    progress: ProgressCallback | None = None,
) -> Solution:
    """Fill each channel separately; image (1, 3, H, W) in [0, 1], flow (1, C, H, W), mask (1, 1, H, W). CPU only.

    scales: levels, each half the size of the next. lam, distance: those of `image_distance`. neighbourhood: 1 for
    the offsets within `ratio` pixels that are visible from the centre (16 for ratio 2), 2 for all of them (24).
    epsilon: a level ends when a sweep changes its unknown pixels by less than this on average, in units of the flow: an
    absolute rule, so for fields much larger or smaller than flows in pixels set it accordingly. max_iterations:
    the most sweeps on each level. The residual is that mean change in the last sweep, of the worst channel.

    Every level stops before convergence, and the coarsest starts from zero (or the known value nearest to zero): this
    reproduces the outputs published with the paper, and both are visible in large holes. On rough fields the sweeps may
    end in a cycle above epsilon and run to max_iterations.
    """
    scales, max_iterations = check_whole("scales", scales, 1), check_whole("max_iterations", max_iterations, 1)
    offsets = neighbour_offsets(neighbourhood, ratio)
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon must be a finite mean change above 0, got {epsilon}")
    device, (image, f, c) = flow.device, (x.cpu().double() for x in (image, flow, mask))
    # Ties between neighbours matter in large holes, so undo the caller's float32 rounding of 8-bit colours.
    colours = image * COLOUR_RANGE
    colours = torch.where((colours - colours.round()).abs() < 1e-3, colours.round(), colours)
    count = min(scales, levels_to_one_pixel(f))
    levels, images = push(data_term(f, c), count)[::-1], image_pyramid(colours, count)
    known = f[0, :, c[0, 0] > 0]
    start = torch.zeros_like(known[:, 0]).clamp(known.amin(1), known.amax(1))
    start = torch.where(levels[0].known, levels[0].f, start[None, :, None, None])
    sweeps, changes = list[int](), list[float]()

    def solve(k: int, level: DataTerm, u: Tensor) -> Tensor:
        first = list[float]()

        def report(further: int, change: float) -> None:
            if progress:
                first.append(change)
                share = level_share(k, count, solver_share(change, epsilon, first[0]))
                progress(Progress(k + 1, count, sum(sweeps) + further, change, share))

        graph = build_graph(images[k][0], level.known[0, 0], offsets, lam, distance)
        filled, further, change = _solve_level(u[0], graph, offsets, epsilon, max_iterations, report)
        sweeps.append(further)
        changes.append(change)
        return torch.where(level.known, level.f, filled)

    u = coarse_to_fine(levels, start, refine, solve)
    too_large = max([0.0, *(change for change in changes if not change < epsilon)])
    status: Status = "max_iterations" if too_large else "converged"
    solution = Solution(u.to(device), sum(sweeps), too_large or changes[-1], status)
    return within_range(solution, flow, mask)


def neighbour_offsets(neighbourhood: int, ratio: int) -> Offsets:
    """The (row, column) steps of neighbourhood 1 (coprime: visible from the centre) or 2 (all), in row order."""
    if neighbourhood not in (1, 2):
        raise InputError(f"neighbourhood must be 1 or 2, got {neighbourhood}")
    if ratio not in range(1, 9):
        raise InputError(f"ratio must be an integer from 1 to 8, got {ratio}")
    reach = range(-int(ratio), int(ratio) + 1)
    steps = [(i, j) for i in reach for j in reach if (i, j) != (0, 0)]
    return [step for step in steps if neighbourhood == 2 or math.gcd(*step) == 1]


def build_graph(image: Tensor, known: Tensor, offsets: Offsets, lam: float, distance: int) -> Graph:
    """The unknown pixels of a level with image (3, H, W) in [0, 255] and known (H, W) bool."""
    margin = max(i for i, _ in offsets)
    width = known.shape[1] + 2 * margin
    rows, columns = np.nonzero(~known.numpy())
    pixels = (rows + margin) * width + columns + margin
    framed = F.pad(image.float(), (margin, margin, margin, margin), value=math.nan).flatten(1)
    steps = np.array([i * width + j for i, j in offsets], np.int64)
    weights = np.empty((len(offsets), len(pixels)), np.float32)
    for k, (i, j) in enumerate(offsets):
        step = int(steps[k])
        if step > 0:  # the distance is symmetric
            colour = (framed[:, step:] - framed[:, :-step]).square_().mean(0)
            forth = image_distance(colour, float(i * i + j * j), lam, distance).reciprocal_().nan_to_num_(0.0).numpy()
            weights[k] = forth[pixels]
            weights[offsets.index((-i, -j))] = forth[pixels - step]
    return Graph(pixels, steps, np.ascontiguousarray(weights.T))


def _solve_level(
    u: Tensor, graph: Graph, offsets: Offsets, epsilon: float, max_iterations: int, report: Callable[[int, float], None]
) -> tuple[Tensor, int, float]:
    """Sweep u (C, H, W) until every channel is done; the field (1, C, H, W), sweeps and change of the worst channel."""
    relax, margin = _compiled(), max(i for i, _ in offsets)
    H, W = u.shape[-2:]
    # Half the memory traffic of float64, and the result becomes float32 anyway.
    fields = F.pad(u, (margin, margin, margin, margin)).float().numpy()
    sweeps = [0] * len(fields)
    changes = [math.inf if len(graph.pixels) else 0.0] * len(fields)

    def advance(channel: int) -> None:
        most = min(SWEEPS_AT_ONCE, max_iterations - sweeps[channel])
        done, changes[channel] = relax(fields[channel].reshape(-1), *graph, float(epsilon), most)
        sweeps[channel] += done

    with ThreadPoolExecutor(min(len(fields), torch.get_num_threads())) as threads:
        while busy := [k for k, change in enumerate(changes) if not change < epsilon and sweeps[k] < max_iterations]:
            list(threads.map(advance, busy))
            report(max(sweeps), max(changes))
    inner = fields[:, margin : margin + H, margin : margin + W]
    return torch.from_numpy(inner).double()[None], max(sweeps), max(changes)


def _relax(
    u: npt.NDArray[np.float32],
    pixels: npt.NDArray[np.int64],
    steps: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    epsilon: float,
    sweeps: int,
) -> tuple[int, float]:
    """Up to `sweeps` Gauss–Seidel sweeps over u, in place: their number, and the mean change in the last."""
    change = np.inf
    for sweep in range(sweeps):
        total = 0.0
        for p in range(len(pixels)):
            x = pixels[p]
            here = u[x]
            up, up_value, up_weight = np.float32(-np.inf), here, np.float32(0)
            down, down_value, down_weight = np.float32(np.inf), here, np.float32(0)
            for k in range(len(steps)):
                weight = weights[p, k]
                if weight > 0:
                    value = u[x + steps[k]]
                    slope = (value - here) * weight
                    if slope > up:
                        up, up_value, up_weight = slope, value, weight
                    if slope < down:
                        down, down_value, down_weight = slope, value, weight
            share = up_weight / (up_weight + down_weight)
            u[x] = share * up_value + (np.float32(1) - share) * down_value
            total += abs(u[x] - here)
        change = total / len(pixels)
        if change < epsilon:
            return sweep + 1, change
    return sweeps, change


def load_loop(device: torch.device) -> None:
    """Compile the loop, or load it from numba's cache."""
    _compiled()


@cache
def _compiled() -> Any:
    """`_relax` as machine code that leaves other threads running; imported here because numba is an extra."""
    from numba import float32, float64, int64

    from flowinpaint.diffusion.kernels.compiled import compile_loop

    arguments = (float32[::1], int64[::1], int64[::1], float32[:, ::1], float64, int64)
    return compile_loop(_relax, arguments, {"nogil": True})
