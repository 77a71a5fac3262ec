"""Time of the steady-state solver: against explicit steps, against a sparse factorisation, and by image size.

    python benchmarks/steady.py FRAME [--device cuda] [--density 0.01] [--skip-slow]

FRAME is a folder with image.png and flow.flo, for example a Sintel frame. All timings are from this run.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

import flowinpaint as fi
from flowinpaint.diffusion.fsi import fsi_cycle
from flowinpaint.diffusion.steady import solve_steady
from flowinpaint.diffusion.stencil import EDGES, cell_delta, divergence, edge_weights, stable_beta, time_step_bound
from flowinpaint.diffusion.tensor import edge_enhancing_tensor
from flowinpaint.methods.eed import TUNED_LAMBDA, eed, tuned_alpha
from flowinpaint.methods.laplace_beltrami import distance_weights, laplace_beltrami

TOLERANCE = 1e-6
FIXED_CYCLE = 45
"""The length of the paper's FSI cycle on its finest level."""
MEGAPIXELS = (0.1, 0.4, 1.6, 8.3)


def main() -> None:
    """Run every comparison and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frame", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--skip-slow", action="store_true", help="leave out explicit steps and the factorisation")
    options = parser.parse_args()
    image, f, c = _load(options.frame, options.density, options.device)
    print(f"{options.frame.name}, {tuple(f.shape[-2:])}, density {options.density}, {_machine(options.device)}")
    _compare_eed(image, f, c, options.skip_slow)
    _compare_laplace_beltrami(image, f, c, options.skip_slow)
    _grow(options.frame, options.density, options.device)


def _load(frame: Path, density: float, device: str, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Image, flow and a seeded mask as float64 (1, ·, H, W), enlarged or shrunk by `scale`."""
    image: np.ndarray = fi.read_image(frame / "image.png")
    flow: np.ndarray = fi.read_flow(frame / "flow.flo")[0]
    if scale != 1:
        size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
        image, flow = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), scale * cv2.resize(flow, size)
    mask = fi.random_mask(flow.shape[:2], density, seed=0)
    batch = [torch.from_numpy(np.moveaxis(x, -1, 0).astype(np.float64))[None].to(device) for x in (image / 255, flow)]
    return batch[0], batch[1], torch.from_numpy(mask)[None, None].double().to(device)


def _seconds(run: Callable[[], object], repeat: int = 5) -> float:
    """The median time of a call, after one to warm up."""
    times = []
    for i in range(repeat + 1):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        if i:
            times.append(time.perf_counter() - start)
    return float(np.median(times))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _compare_eed(image: Tensor, f: Tensor, c: Tensor, skip_slow: bool) -> None:
    alpha = tuned_alpha(float(c.mean()))
    D = edge_enhancing_tensor(image, TUNED_LAMBDA, 0.5)
    delta = cell_delta(D, alpha, stable_beta(D, alpha))
    weights, tau = edge_weights(D, delta), time_step_bound(D, delta)
    whole = _seconds(lambda: eed(image, f, c))
    solve = _seconds(lambda: solve_steady(f, c, weights, tolerance=TOLERANCE))
    solution = solve_steady(f, c, weights, tolerance=TOLERANCE)
    print(
        f"eed, multigrid: {1e3 * whole:.1f} ms, of which the solver {1e3 * solve:.1f} ms, {solution.iterations} cycles"
    )
    if skip_slow:
        return
    start = time.perf_counter()
    pyramid = eed(image, f, c, solver="fsi")
    _wait()
    seconds = time.perf_counter() - start
    print(
        f"eed, FSI coarse to fine, growing cycles: {seconds:.2f} s, {pyramid.iterations} steps: {seconds / whole:.1f} x"
    )
    start = time.perf_counter()
    fixed, steps = _fixed_cycles(f, c, weights, tau)
    _wait()
    seconds = time.perf_counter() - start
    print(
        f"eed, FSI cycles of {FIXED_CYCLE} on the finest level: {seconds:.2f} s, {steps} steps: {seconds / solve:.1f} x"
    )
    for name, u in (("coarse to fine", pyramid.u), ("fixed cycles", fixed)):
        difference = (u - solution.u).abs()
        print(f"  multigrid against FSI, {name}: mean {difference.mean():.1e} px, largest {difference.max():.1e} px")


def _fixed_cycles(f: Tensor, c: Tensor, weights: Tensor, tau: Tensor) -> tuple[Tensor, int]:
    mean = (f * c).sum((2, 3), keepdim=True) / c.sum((2, 3), keepdim=True)
    f = f - mean
    u, steps = c * f, 0
    start = torch.linalg.vector_norm((1 - c) * divergence(weights, u))
    while torch.linalg.vector_norm((1 - c) * divergence(weights, u)) > TOLERANCE * start:
        u = fsi_cycle(u, f, c, weights, tau, FIXED_CYCLE)
        steps += FIXED_CYCLE
    return u + mean, steps


def _compare_laplace_beltrami(image: Tensor, f: Tensor, c: Tensor, skip_slow: bool) -> None:
    whole = _seconds(lambda: laplace_beltrami(image, f, c))
    solution = laplace_beltrami(image, f, c)
    print(f"laplace-beltrami, multigrid: {1e3 * whole:.1f} ms, {solution.iterations} cycles")
    if skip_slow:
        return
    matrix, right, unknown = _sparse_system(distance_weights(image, 1e-6, 3), f, c)
    start = time.perf_counter()
    x = scipy.sparse.linalg.spsolve(matrix, right)
    seconds = time.perf_counter() - start
    difference = np.abs(x - solution.u[0].flatten(1).cpu().numpy()[:, unknown].T)
    print(f"laplace-beltrami, scipy spsolve: {seconds:.2f} s: {seconds / whole:.1f} x")
    print(f"  multigrid against spsolve: mean {difference.mean():.1e} px, largest {difference.max():.1e} px")


def _sparse_system(weights: Tensor, f: Tensor, c: Tensor) -> tuple[scipy.sparse.csc_matrix, np.ndarray, np.ndarray]:
    H, W = f.shape[-2:]
    number = np.arange(H * W).reshape(H, W)
    laplacian = scipy.sparse.csr_matrix((H * W, H * W))
    for k, (dy, dx) in enumerate(EDGES):
        near = number[: H - dy, max(0, -dx) : W - max(0, dx)].ravel()
        far = number[dy:, max(0, dx) : W - max(0, -dx)].ravel()
        w = weights[0, k].cpu().numpy()[: H - dy, max(0, -dx) : W - max(0, dx)].ravel()
        edges = scipy.sparse.coo_matrix((w, (near, far)), shape=laplacian.shape)
        laplacian = laplacian - edges - edges.T
    laplacian = laplacian - scipy.sparse.diags(np.asarray(laplacian.sum(1)).ravel())
    known = c[0, 0].cpu().numpy().ravel() > 0
    unknown, given = np.flatnonzero(~known), f[0].flatten(1).cpu().numpy()[:, known].T
    rows = laplacian.tocsr()[unknown]
    return rows[:, unknown].tocsc(), -(rows[:, np.flatnonzero(known)] @ given), unknown


def _grow(frame: Path, density: float, device: str) -> None:
    """Time and memory from 0.1 to 8 megapixels, and the exponent of the growth."""
    pixels = math.prod(fi.read_image(frame / "image.png").shape[:2])
    for name, method in (("eed", eed), ("laplace-beltrami", laplace_beltrami)):
        sizes, times = [], []
        for megapixels in MEGAPIXELS:
            image, f, c = _load(frame, density, device, math.sqrt(1e6 * megapixels / pixels))
            if device != "cpu":
                torch.cuda.reset_peak_memory_stats()
            seconds = _seconds(lambda: method(image, f, c), repeat=1 if megapixels > 1 else 3)  # noqa: B023
            solution = method(image, f, c)
            memory = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else _peak_gigabytes()
            sizes.append(f.shape[-2] * f.shape[-1])
            times.append(seconds)
            print(
                f"{name}, {f.shape[-2]}x{f.shape[-1]}: {seconds:.3f} s, {solution.iterations} cycles, "
                f"{solution.status}, peak so far {memory:.2f} GiB"
            )
        exponent = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])
        print(f"{name}: time grows like N^{exponent:.2f} from {sizes[0] / 1e6:.1f} to {sizes[-1] / 1e6:.1f} megapixels")


def _peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _machine(device: str) -> str:
    return f"{torch.get_num_threads()} CPU threads" if device == "cpu" else torch.cuda.get_device_name()


if __name__ == "__main__":
    main()
