"""`inpaint` and `load_model`: the calls most users need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint import checks
from flowinpaint.arguments.request import Field, check_request, finish
from flowinpaint.arguments.spaces import SpaceName
from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.functions import OwnFill
from flowinpaint.methods.method import Fill
from flowinpaint.methods.neural import read_network
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import confidence_of
from flowinpaint.result import ProgressCallback, Result, Solution

if TYPE_CHECKING:
    from flowinpaint.robust.fill import RobustSolution


def inpaint(
    image: Any,
    flow: Any,
    mask: Any = None,
    method: str | Path | OwnFill = DEFAULT_METHOD,
    device: str | torch.device = "auto",
    *,
    robust: bool = False,
    noise: Any = None,
    confidence: Any = None,
    second: Any = None,
    fill_where: Any = None,
    image_where: Any = None,
    max_gap: float | None = None,
    space: SpaceName = "linear",
    bounds: tuple[float | None, float | None] | None = None,
    progress: ProgressCallback | None = None,
    **parameters: Any,
) -> Result:
    """Fill a sparse field guided by an image.

    Given vectors come back unchanged, unless `robust`, `noise`, `confidence` or `second` says that they may be wrong:
    then the result has the best estimate of each vector, and `result.inliers` says which were correct.

    Arrays may be numpy arrays, masked arrays, torch tensors, xarray DataArrays, PIL images or nested lists. The result
    has the type and layout of the flow.

    image: (H, W, 3) or (H, W), uint8, uint16 or float in [0, 1]; alpha is ignored. None for harmonic and nearest.
    flow: (H, W, C) or (H, W) of a floating type, any C: 2 for flow, 1 for disparity or depth; (C, H, W) in tensors.
    NaN, infinity and values above 1e9 mean unknown. Computed and returned in float32.
    mask: (H, W) bool, True where the vector is known; without a mask, finite vectors are known.
    method: one of `methods()`, the path of a .safetensors file with trained weights, or a function of your own: see
    `register_method` and `numpy_method`.
    device: "auto", "cpu", "cuda", …
    robust: estimate the noise of the vectors and detect outliers. Needs a method that accepts a weight per vector:
    neuroexplicit, neuroexplicit-paper, eed, laplace-beltrami or harmonic. `seed`, 0 by default, selects random folds.
    noise: standard deviation of the components of correct vectors in the field's unit, a number or (H, W).
    confidence: probability that a vector is correct, a number or (H, W) in [0, 1]. Without `robust`, noise and
    confidence are final, and the vectors are correct unless `confidence` says otherwise; with it they are priors.
    second: the image that the vectors (C = 2, in px) point to, in the same form as `image`. Vectors whose end does not
    match it lose weight, and the result is refined on both images. Implies `robust`.
    fill_where: (H, W) bool; elsewhere unknown pixels stay NaN.
    image_where: (H, W) bool, True where the image may be used: not on an object that is removed but still shows.
    max_gap: in px; pixels that are farther from every trusted vector stay NaN.
    space: "linear"; "inverse", recommended for depth, fills 1/flow; "log" its logarithm. Both need values above 0.
    bounds: (low, high) of filled values, each a number or None. Exactly kept vectors do not change.
    progress: called during long computations with a `Progress`.
    parameters: those of the method, for example `lam` and `alpha` of "eed", or the `seed` of "wgain" and "pd".
    """
    request = check_request(
        image,
        flow,
        mask,
        method,
        device,
        robust,
        noise,
        confidence,
        second,
        fill_where,
        image_where,
        max_gap,
        space,
        bounds,
        progress,
        parameters,
    )
    name, chosen = request.method.name, request.device
    fill = partial(request.method.prepare(chosen), **request.parameters)
    if request.hints is None:
        raw = fill_together(partial(fill, progress=progress), [request.field], name, chosen)[0]
    else:
        from flowinpaint.robust.fill import robust_fill  # not needed for exact vectors

        judge = partial(
            robust_fill,
            fill,
            hints=request.hints,
            seed=request.seed,
            progress=progress,
            soft=request.method.is_network,
        )
        raw = _fill_judged(judge, request.field, name, chosen)
    return finish(request, raw)


def fill_together(fill: Fill, fields: Sequence[Field], method: str, device: torch.device) -> list[Result]:
    """The results of one call of a fill function on checked fields of the same size; the seconds are divided equally.

    Only the fill function of a network accepts more than one field.
    """
    start = time.perf_counter()
    inputs = [_to_tensors(field, device) for field in fields]
    picture, given, c = inputs[0] if len(inputs) == 1 else (torch.cat(x) for x in zip(*inputs, strict=True))
    solution = fill(picture, given, c)
    filled = torch.where(c > 0, given, solution.u.float())
    _check_finite(filled, given, method)
    return _results(solution, filled, method, device, start)


def _fill_judged(judge: Callable[..., RobustSolution], field: Field, method: str, device: torch.device) -> Result:
    """The result of `robust_fill`, bound to all but its tensors, on a checked field."""
    start = time.perf_counter()
    image, given, c = _to_tensors(field, device)
    solution, inliers, noise = judge(image, given, c)
    _check_finite(solution.u, given, method)
    return _results(solution, solution.u, method, device, start, inliers, noise)[0]


def _check_finite(filled: Tensor, given: Tensor, method: str) -> None:
    if not torch.isfinite(filled).all():
        raise InputError(
            f"flow must be small enough for {method}, got values up to {given.abs().max():.1e}, which overflow"
        )


def _results(
    solution: Solution,
    filled: Tensor,
    method: str,
    device: torch.device,
    start: float,
    inliers: Tensor | None = None,
    noise: float | None = None,
) -> list[Result]:
    """The results with the fields `filled` (B, C, H, W) of a computation that began at `start`."""
    dense = filled.float().movedim(1, -1).contiguous().cpu().numpy()
    error = solution.expected_error
    confidence = None if error is None else confidence_of(error)
    seconds = (time.perf_counter() - start) / len(dense)
    solution.warn_unless_converged(method)

    return [
        Result(
            flow=dense[i],
            confidence=None if confidence is None else confidence[i, 0].cpu().numpy(),
            expected_error=None if error is None else error[i, 0].cpu().numpy(),
            info={
                "method": method,
                "device": str(device),
                "seconds": seconds,
                "iterations": solution.iterations,
                "residual": solution.residual,
                "status": solution.status,
                "noise": noise,
            },
            inliers=None if inliers is None else inliers[i, 0].numpy(),
        )
        for i in range(len(dense))
    ]


def _to_tensors(field: Field, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The arguments of a fill function: image (1, 3, H, W) in [0, 1], flow, 0 where unknown, and mask."""
    picture, flow, known = field
    # Computed on the device: numpy takes longer for these few operations than a GPU for everything else.
    image, given, c = (to_batch(x, device) for x in (picture, flow, known[..., None]))
    image = (image / checks.full_scale(picture)).expand(-1, 3, -1, -1).contiguous()
    return image, torch.where(c > 0, given, 0), c


def load_model(name_or_path: str | Path, device: str | torch.device = "auto") -> Network:
    """The network of a method, or in a .safetensors file, as a module in evaluation mode.

    It maps image (B, 3, H, W) in [0, 1], flow (B, C, H, W) and mask (B, 1, H, W) to the dense field (B, C, H, W), at
    any size. It is differentiable, except "pd", which samples. Neuroexplicit models also accept `weight`, the weights
    of the given vectors, and `start`, an initial field: see `Neuroexplicit.fill`.
    """
    chosen = checks.check_device(device)
    method = get_method(name_or_path, "name_or_path")
    if method.weights is None:
        networks = ", ".join(m.name for m in all_methods() if m.weights is not None)
        raise InputError(
            f"name_or_path must be one of the networks {networks}, or the path of a .safetensors file, "
            f"got {name_or_path!r}"
        )
    return read_network(method.weights, method.shipped, chosen)


def to_batch(x: npt.NDArray[Any], device: torch.device) -> Tensor:
    """(H, W, C) array to (1, C, H, W) float32 tensor on a device; the device transposes and converts."""
    return torch.from_numpy(np.require(x, requirements=["C", "W"])).to(device).movedim(-1, 0)[None].float().contiguous()
