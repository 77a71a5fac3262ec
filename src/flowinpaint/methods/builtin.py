"""The methods of this package."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from flowinpaint.methods.method import Method

DEFAULT_METHOD = "neuroexplicit"
_WEIGHTS = Path(__file__).parents[1] / "weights"


def _shipped(name: str, summary: str, config: str, **about: Any) -> Method:
    """A network whose weights are part of the package."""
    return Method(
        name, summary, f"flowinpaint.{config}", weights=_WEIGHTS / f"{name}.safetensors", shipped=True, **about
    )


_steady = partial(Method, double=True, takes_weights=True, warm_up="flowinpaint.diffusion.kernels:load_multigrid")
_on_cpu = partial(Method, double=True, devices=("cpu",))
_opencv = partial(_on_cpu, extra="peers", channels=2)

BUILTIN = {
    method.name: method
    for method in (
        _shipped(
            "neuroexplicit",
            "diffusion steered by a network that sees image and field, the flagship",
            "neuroexplicit.config:FLAGSHIP",
            gives_error=True,
            takes_weights=True,
        ),
        _shipped(
            "neuroexplicit-paper",
            "the paper's network, which sees the image alone, with more steps of diffusion",
            "neuroexplicit.config:PAPER_NETWORK",
            takes_weights=True,
        ),
        _shipped(
            "flownets",
            "a U-Net from image and sparse field to the dense one, a baseline of the paper",
            "baselines.flownets.config:FlowNetSConfig",
            baseline=True,
        ),
        _shipped(
            "wgain",
            "a network trained with a critic, a baseline of the paper",
            "baselines.wgain.config:WGAINConfig",
            baseline=True,
        ),
        Method(
            "pd",
            "probabilistic diffusion, a baseline of the paper",
            "flowinpaint.baselines.pd.config:PDConfig",
            extra="pd",
            trained_by="pd",
            baseline=True,
        ),
        _steady("eed", "edge-enhancing diffusion: flow edges follow image edges", "flowinpaint.methods.eed:eed"),
        _steady(
            "laplace-beltrami",
            "harmonic on the image's surface: close in colour is close",
            "flowinpaint.methods.harmonic:laplace_beltrami",
        ),
        _steady(
            "harmonic", "homogeneous diffusion: smooth, blind to the image", "flowinpaint.methods.harmonic:harmonic"
        ),
        _on_cpu("nearest", "the nearest known vector", "flowinpaint.methods.nearest:nearest"),
        _on_cpu(
            "amle",
            "the smallest possible steepest slope, in the image's metric",
            "flowinpaint.methods.amle:amle",
            extra="fast",
        ),
        _opencv(
            "opencv-edgeaware", "OpenCV: affine motion of near matches", "flowinpaint.methods.opencv:opencv_edgeaware"
        ),
        _opencv("opencv-ric", "OpenCV: robust affine motion per superpixel", "flowinpaint.methods.opencv:opencv_ric"),
    )
}
"""By name, in the order of `fi.methods()`."""
