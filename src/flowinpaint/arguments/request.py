"""`Request`: the checked arguments of `inpaint`, and the conversion of what was computed into its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint import checks
from flowinpaint.arguments import regions, spaces
from flowinpaint.arguments.arrays import Kind, adopt, map_of
from flowinpaint.errors import InputError
from flowinpaint.methods.functions import OwnFill
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.networks.output import confidence_of
from flowinpaint.result import Arrays, ProgressCallback, Result

if TYPE_CHECKING:
    from flowinpaint.robust.hints import Hints

Array = npt.NDArray[Any]
Field = tuple[Array, npt.NDArray[np.floating[Any]], npt.NDArray[np.bool_]]
"""A guide (H, W, 3) or (H, W, 1), a sparse field (H, W, C) and its mask (H, W), as `checks` return them."""


@dataclass(frozen=True)
class Request:
    """The arguments of `inpaint` as numpy arrays of matching shapes.

    image (H, W, ·), None without one. flow (H, W, C) float32; known (H, W) bool. field: what the method fills, where
    image and values may differ from the caller's (`image_where`, `space`). hints: None unless vectors may be wrong.
    """

    image: Array | None
    flow: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]
    field: Field
    kind: Kind
    method: Method
    device: torch.device
    hints: Hints | None
    seed: int
    parameters: Mapping[str, Any]
    space: spaces.Space | None
    bounds: tuple[float, float] | None
    fill_where: npt.NDArray[np.bool_] | None
    max_gap: float
    progress: ProgressCallback | None


def check_request(
    image: Any,
    flow: Any,
    mask: Any,
    method: str | Path | OwnFill,
    device: str | torch.device,
    robust: bool,
    noise: Any,
    confidence: Any,
    second: Any,
    fill_where: Any,
    image_where: Any,
    max_gap: float | None,
    space: str,
    bounds: Any,
    progress: ProgressCallback | None,
    parameters: dict[str, Any],
) -> Request:
    """Check the arguments of `inpaint` and convert them to numpy; InputError names the argument that is wrong."""
    given = adopt(image, flow, mask, image_where)
    checks.check_flow(given.flow)
    picture = None if given.image is None else checks.check_picture(given.image, given.flow.shape)
    known = checks.check_mask(given.mask, given.flow)
    chosen = checks.check_device(device)
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function or None, got {type(progress).__name__}")
    if not isinstance(robust, bool | np.bool_):
        raise InputError(f"robust must be True or False, got {robust!r:.60}")
    found = get_method(method)
    if picture is None:
        _check_needs_no_image(found, second)
    image_region = regions.check_region("image_where", given.image_where, known.shape)
    fill_region = regions.check_region(
        "fill_where", None if fill_where is None else map_of("fill_where", fill_where), known.shape
    )
    gap, target = regions.check_gap(max_gap), spaces.check_space(space, given.flow, known)
    limits = spaces.check_bounds(bounds, target)
    judged = bool(robust) or any(x is not None for x in (noise, confidence, second))
    spaces.warn_of_bounds(limits, given.flow, known)
    regions.warn_of_regions(known, image_region)
    checks.warn_of_suspicious(given.flow, known, given.mask is not None, judged)
    hints, seed = None, 0
    if judged:
        from flowinpaint.robust.hints import check_hints, check_takes_weights  # not needed for exact vectors

        check_takes_weights(found)
        hints = check_hints(robust, noise, confidence, second, given.flow, known, target)
        seed = parameters.pop("seed", 0)
        checks.check_number("seed", seed, checks.Limit.WHOLE)
    found.check_parameters(parameters)
    found.check_channels(given.flow.shape[2])

    with np.errstate(over="ignore"):  # unknown vectors may have any value
        values = given.flow.astype(np.float32, copy=False)
    guide = np.zeros((*known.shape, 1), np.uint8) if picture is None else picture
    if image_region is not None:
        guide = regions.image_without(guide, image_region)
    return Request(
        image=picture,
        flow=values,
        known=known,
        field=(guide, values if target is None else spaces.to_space(target, given.flow, known), known),
        kind=given.kind,
        method=found,
        device=chosen,
        hints=hints,
        seed=int(seed),
        parameters=parameters,
        space=target,
        bounds=limits,
        fill_where=fill_region,
        max_gap=gap,
        progress=progress,
    )


def _check_needs_no_image(method: Method, second: object) -> None:
    """Raise InputError unless the method works without an image."""
    if method.needs_image:
        fit = ", ".join(m.name for m in all_methods() if not m.needs_image)
        raise InputError(f"image must not be None for {method.name}; pass an image, or one of the methods {fit}")
    if second is not None:
        raise InputError("image must not be None if there is a second image")


def finish(request: Request, raw: Result) -> Result:
    """The result in the caller's unit and type, from a filled `request.field`."""
    filled, error = raw.flow, raw.expected_error
    info = raw.info
    if request.space is not None:
        filled = spaces.from_space(request.space, filled, request.flow, request.known)
        if error is not None:
            error = spaces.error_from_space(request.space, error, filled)
        if info["noise"] is not None:
            noise = spaces.typical_noise(request.space, info["noise"], request.flow, request.known)
            info = {**info, "noise": noise}
    if request.bounds is not None:
        filled = np.clip(filled, *request.bounds)
    if request.space is not None or request.bounds is not None:
        kept = request.known[..., None] & (raw.flow == request.field[1])  # bit by bit
        filled = np.where(kept, request.flow, filled)
    confidence = raw.confidence
    if error is not raw.expected_error:
        confidence = confidence_of(torch.from_numpy(error)).numpy()
    region = regions.filled_region(request.known, raw.inliers, request.fill_where, request.max_gap)
    if region is not None:
        filled = np.where(region[..., None], filled, np.float32(np.nan))
        error, confidence = (
            None if x is None else np.where(region, x, np.float32(np.nan)) for x in (error, confidence)
        )
    arrays = Arrays(
        image=request.image,
        sparse=request.flow,
        known=request.known,
        flow=filled,
        expected_error=error,
        inliers=raw.inliers,
    )
    kind = request.kind
    return replace(
        raw,
        flow=kind(filled),
        confidence=None if confidence is None else kind(confidence),
        expected_error=None if error is None else kind(error),
        inliers=None if raw.inliers is None else kind(raw.inliers),
        info=info,
        arrays=arrays,
        restore=kind,
    )
