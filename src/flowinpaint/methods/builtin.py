"""The methods of this package."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from flowinpaint.methods.method import Method

DEFAULT_METHOD = "neuroexplicit"


def _method(name: str, summary: str, target: str, **about: Any) -> Method:
    return Method(name, summary, f"flowinpaint.{target}", **about)


def _shipped(name: str, summary: str, config: str, **about: Any) -> Method:
    """A network whose weights are part of the package."""
    weights = Path(__file__).parents[1] / "weights" / f"{name}.safetensors"
    return _method(name, summary, config, weights=weights, shipped=True, **about)


_baseline = partial(_shipped, baseline=True)
_steady = partial(_method, double=True, takes_weights=True, warm_up="flowinpaint.diffusion.kernels:load_multigrid")
_on_cpu = partial(_method, double=True, devices=("cpu",))
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
        _baseline(
            "flownets",
            "a U-Net from image and sparse field to the dense one, a baseline of the paper",
            "baselines.flownets.config:FlowNetSConfig",
        ),
        _baseline(
            "wgain", "a network trained with a critic, a baseline of the paper", "baselines.wgain.config:WGAINConfig"
        ),
        _method(
            "pd",
            "probabilistic diffusion, a baseline of the paper",
            "baselines.pd.config:PDConfig",
            extra="pd",
            trained_by="pd",
            baseline=True,
        ),
        _steady("eed", "edge-enhancing diffusion: flow edges follow image edges", "methods.eed:eed"),
        _steady(
            "laplace-beltrami",
            "harmonic on the image's surface: close in colour is close",
            "methods.laplace_beltrami:laplace_beltrami",
        ),
        _steady(
            "harmonic",
            "homogeneous diffusion: smooth, blind to the image",
            "methods.harmonic:harmonic",
            needs_image=False,
        ),
        _on_cpu("nearest", "the nearest known vector", "methods.nearest:nearest", needs_image=False),
        _on_cpu(
            "amle",
            "minimises the steepest slope, in the image's metric",
            "methods.amle:amle",
            extra="fast",
            warm_up="flowinpaint.methods.amle:load_loop",
        ),
        _opencv("opencv-edgeaware", "OpenCV: affine motion of near matches", "methods.opencv:opencv_edgeaware"),
        _opencv("opencv-ric", "OpenCV: robust affine motion per superpixel", "methods.opencv:opencv_ric"),
    )
}
"""Methods by name, in the order of `fi.methods()`."""
