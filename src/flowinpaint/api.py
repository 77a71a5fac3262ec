"""The one call: `inpaint`, the methods it knows, and the models behind them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint import checks
from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.diffusion.kernels import MULTIGRID, kernels_for
from flowinpaint.errors import InputError
from flowinpaint.methods import amle
from flowinpaint.methods import opencv as opencv_peers
from flowinpaint.methods.eed import eed
from flowinpaint.methods.harmonic import harmonic
from flowinpaint.methods.laplace_beltrami import laplace_beltrami
from flowinpaint.methods.nearest import nearest
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import confidence_of, expected_error
from flowinpaint.networks.registry import ModelConfig
from flowinpaint.networks.weights import WEIGHTS_SUFFIX, check_shipped, read_model, read_model_config, shipped_file
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.result import ProgressCallback, Result, Solution

DEFAULT_METHOD = "neuroexplicit"
MOST_KEPT_MODELS = 4
"""Models that `inpaint` keeps for the next call."""


@dataclass(frozen=True)
class ExplicitMethod:
    """A method without weights: `fill` takes image, f, c (1, ·, H, W), then its parameters by keyword."""

    summary: str
    fill: Callable[..., Solution]

    @property
    def parameters(self) -> dict[str, Any]:
        """The keyword parameters a user may set, with their defaults."""
        keywords = inspect.signature(self.fill).parameters.values()
        return {p.name: p.default for p in keywords if p.kind is p.KEYWORD_ONLY and p.name != "progress"}


@dataclass(frozen=True)
class NeuralMethod:
    """A network by its configuration; `weights` is the file that is shipped, of that configuration.

    baseline: it is there to compare with, and is not run unless it is asked for.
    """

    summary: str
    config: ModelConfig
    weights: Path
    baseline: bool = False


PAPER_STEPS = (60, 60, 120, 120)
"""Steps of diffusion that the paper's network takes as it is shipped; the paper's own are 5, 15, 30, 45."""
NETWORKS = {
    "neuroexplicit": NeuralMethod(
        "diffusion steered by a network that sees image and field, the flagship",
        NeuroexplicitConfig(
            width=48,
            fine_width=48,
            depth=6,
            decoder_kernel=2,
            merge=True,
            confidence=True,
            steps=(40, 40, 320, 100),
            flow_aware=True,
            start="pull",
            time_step="quarter",
            direction_floor=0.01,
        ),
        shipped_file("neuroexplicit"),
    ),
    "neuroexplicit-paper": NeuralMethod(
        "the paper's network, which sees the image alone, with more steps of diffusion",
        NeuroexplicitConfig(steps=PAPER_STEPS),
        shipped_file("neuroexplicit-paper"),
    ),
    "flownets": NeuralMethod(
        "a U-Net from image and sparse field to the dense one, a baseline of the paper",
        FlowNetSConfig(),
        shipped_file("flownets"),
        baseline=True,
    ),
    "wgain": NeuralMethod(
        "a network that a critic has taught too, a baseline of the paper",
        WGAINConfig(),
        shipped_file("wgain"),
        baseline=True,
    ),
}
EXPLICIT = {
    "eed": ExplicitMethod("edge-enhancing diffusion: flow edges follow image edges", eed),
    "laplace-beltrami": ExplicitMethod("harmonic on the image's surface: close in colour is close", laplace_beltrami),
    "harmonic": ExplicitMethod("homogeneous diffusion: smooth, blind to the image", harmonic),
    "nearest": ExplicitMethod("the nearest known vector", nearest),
}
if amle.available():
    EXPLICIT["amle"] = ExplicitMethod("steepest slope made as small as can be, in the image's metric", amle.amle)
if opencv_peers.available():
    EXPLICIT["opencv-edgeaware"] = ExplicitMethod(
        "OpenCV: affine motion of near matches", opencv_peers.opencv_edgeaware
    )
    EXPLICIT["opencv-ric"] = ExplicitMethod("OpenCV: robust affine motion per superpixel", opencv_peers.opencv_ric)
EXTRAS = {"amle": "fast", "opencv-edgeaware": "peers", "opencv-ric": "peers"}
"""The methods that are there with an extra only, and that extra."""
TO_TRAIN = {"pd": "pd"}
"""Baselines whose weights do not come with the package, and the network of `flowinpaint reproduce` that makes them."""


def methods() -> list[str]:
    """The names that `inpaint` takes."""
    return [*NETWORKS, *EXPLICIT]


def usual_methods() -> list[str]:
    """Those of `methods()` that are meant to be used: all but the paper's neural baselines."""
    return [name for name in methods() if name not in NETWORKS or not NETWORKS[name].baseline]


def unknown_method(argument: str, method: str) -> InputError:
    """The error for an argument that names none of `methods()`."""
    if method in EXTRAS:
        return InputError(
            f"{argument}: {method!r} was given; it needs the extra {EXTRAS[method]!r}, which is not there."
        )
    if method in TO_TRAIN:
        network = TO_TRAIN[method]
        return InputError(
            f"{argument}: {method!r} was given; its weights do not come with the package. 'flowinpaint reproduce "
            f"networks --only {network}' trains it, in minutes on a GPU; then give the path of what it leaves, "
            f"reproduction/networks/{network}/model{WEIGHTS_SUFFIX}."
        )
    return InputError(
        f"{argument}: {method!r} was given; {', '.join(methods())} or the path of a {WEIGHTS_SUFFIX} file is taken."
    )


def parameters_of(method: str | Path) -> dict[str, Any]:
    """The parameters that a method takes by name, with their defaults."""
    if not isinstance(method, str | Path):
        raise InputError(
            f"method: an object of type {type(method).__name__} was given; a name or the path of a {WEIGHTS_SUFFIX} "
            "file is taken, such as save_model writes."
        )
    if method in EXPLICIT:
        return EXPLICIT[str(method)].parameters
    if method in NETWORKS:
        return NETWORKS[str(method)].config.parameters
    return read_model_config(method).parameters if _is_path(method) and Path(method).is_file() else {}


def check_parameters(method: str | Path, given: dict[str, Any]) -> None:
    """Raise InputError unless every given parameter is one of the method's, and a number or name as it takes."""
    known = parameters_of(method)
    if unknown := sorted(given.keys() - known.keys()):
        taken = ", ".join(known) if known else "none"
        raise InputError(f"{unknown[0]}: is no parameter of {str(method)!r}; taken: {taken}.")
    for name, value in given.items():
        wanted, phrase = (str, "a name") if isinstance(known[name], str) else (Real, "a number")
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise InputError(f"{name}: {value!r} was given; {phrase} is taken.")


def inpaint(
    image: npt.NDArray[Any],
    flow: npt.NDArray[np.floating[Any]],
    mask: npt.NDArray[np.bool_] | None = None,
    method: str | Path = DEFAULT_METHOD,
    device: str | torch.device = "auto",
    *,
    progress: ProgressCallback | None = None,
    **parameters: Any,
) -> Result:
    """Fill a sparse field guided by an image.

    image: (H, W, 3) or (H, W), uint8, uint16 or float in [0, 1].
    flow: (H, W, C) of a floating type, any C: 2 for flow, 1 for disparity or depth. Computed and returned in float32.
    mask: (H, W) bool, True where the vector is known; without it the vectors that are finite are known.
    method: one of `methods()`, or the path of a .safetensors file with trained weights.
    device: "auto", "cpu", "cuda", …
    progress: called during long computations with a `Progress`.
    parameters: those of the method, for example `lam` and `alpha` of "eed", or the `seed` of "wgain" and "pd".
    """
    flow = checks.check_flow(flow)
    guide = checks.check_picture(image, flow.shape)
    known = checks.check_mask(mask, flow)
    chosen = checks.check_device(device)
    check_parameters(method, parameters)
    fill = _filler(method, chosen, parameters, progress)
    with np.errstate(over="ignore"):  # of unknown vectors, which may be anything
        flow = flow.astype(np.float32, copy=False)

    start = time.perf_counter()
    # On the device, since numpy takes longer for these few than a GPU for all the rest.
    picture, given, c = (to_batch(x, chosen) for x in (guide, flow, known[..., None]))
    picture = (picture / checks.full_scale(guide)).expand(-1, 3, -1, -1).contiguous()
    given = torch.where(c > 0, given, 0)
    solution = fill(picture, given, c)
    filled = torch.where(c > 0, given, solution.u.float())
    if not torch.isfinite(filled).all():
        raise InputError(
            f"flow: values up to {given.abs().max():.1e} were given; smaller ones are taken, the result left float32."
        )
    dense = filled[0].permute(1, 2, 0).contiguous().cpu().numpy()
    error = solution.expected_error
    confidence = None if error is None else confidence_of(error)
    seconds = time.perf_counter() - start
    solution.warn_unless_converged(str(method), stacklevel=2)

    return Result(
        flow=dense,
        confidence=None if confidence is None else confidence[0, 0].cpu().numpy(),
        expected_error=None if error is None else error[0, 0].cpu().numpy(),
        info={
            "method": str(method),
            "device": str(chosen),
            "seconds": seconds,
            "iterations": solution.iterations,
            "residual": solution.residual,
            "status": solution.status,
        },
    )


def load_model(name_or_path: str | Path, device: str | torch.device = "auto") -> Network:
    """The network behind a method, or the one in a .safetensors file, as a module in evaluation mode.

    It takes image (B, 3, H, W) in [0, 1], mask (B, 1, H, W) and flow (B, C, H, W), and returns (B, C, H, W) at any
    size, differentiably but for "pd", which samples.
    """
    chosen = checks.check_device(device)
    if _is_path(name_or_path):
        return read_model(name_or_path).to(chosen).eval()
    if str(name_or_path) in TO_TRAIN:
        raise unknown_method("name_or_path", str(name_or_path))
    if str(name_or_path) not in NETWORKS:
        raise InputError(
            f"name_or_path: {str(name_or_path)!r} was given; {', '.join(NETWORKS)} or the path of a "
            f"{WEIGHTS_SUFFIX} file is taken."
        )
    weights = NETWORKS[str(name_or_path)].weights
    check_shipped(weights)
    return read_model(weights).to(chosen).eval()


Filler = Callable[[Tensor, Tensor, Tensor], Solution]


def _filler(
    method: str | Path, device: torch.device, parameters: dict[str, Any], progress: ProgressCallback | None
) -> Filler:
    """Resolve method and parameters to a function of (image, f, c), before anything is computed."""
    if method in EXPLICIT:
        explicit = EXPLICIT[str(method)]
        if "tolerance" in explicit.parameters:
            kernels_for(MULTIGRID, device)  # the first use compiles, which is not the method's time

        def fill(image: Tensor, f: Tensor, c: Tensor) -> Solution:
            # In float32 rounding holds the residual at about 2e-6, above what the methods converge to.
            return explicit.fill(image.double(), f.double(), c.double(), progress=progress, **parameters)

        return fill
    model = _trained(method, device)

    @torch.inference_mode()
    def run(image: Tensor, f: Tensor, c: Tensor) -> Solution:
        u, log_error = model.complete(image, f, c, progress, **parameters)
        error = None if log_error is None else expected_error(log_error, f, c)
        steps = model.iterations(f.shape[-2], f.shape[-1], **parameters)
        return Solution(u, iterations=steps, expected_error=error)

    return run


def _trained(method: str | Path, device: torch.device) -> Network:
    if not _is_path(method) and method not in NETWORKS:
        raise unknown_method("method", str(method))
    weights = Path(method) if _is_path(method) else NETWORKS[str(method)].weights
    if not weights.is_file():
        return load_model(method, device)  # which says what is wrong
    about = weights.stat()
    stamp = about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_size
    return _kept_model(weights.resolve() if _is_path(method) else str(method), stamp, device)


@lru_cache(maxsize=MOST_KEPT_MODELS)
def _kept_model(name_or_path: str | Path, stamp: tuple[int, ...], device: torch.device) -> Network:
    """A model as its file was at a time: reading it, and what its engine makes ready, is done once."""
    return load_model(name_or_path, device)


def _is_path(name: str | Path) -> bool:
    return isinstance(name, Path) or str(name).endswith(WEIGHTS_SUFFIX)


def to_batch(x: npt.NDArray[Any], device: torch.device) -> Tensor:
    """(H, W, C) array to (1, C, H, W) float32 tensor on a device, which does the turning and converting."""
    return torch.from_numpy(np.require(x, requirements=["C", "W"])).to(device).movedim(-1, 0)[None].float().contiguous()
