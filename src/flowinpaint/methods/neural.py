"""Networks as methods: models kept in memory, and their fill function."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.methods.method import Fill, Method
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import expected_error
from flowinpaint.networks.weights import check_shipped, read_model, read_model_config
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.result import ProgressCallback, Solution

MOST_KEPT_MODELS = 4
"""Models kept in memory for the next call of `inpaint`."""


def file_method(path: Path, name: str) -> Method:
    """The method of a network in a .safetensors file."""
    config = read_model_config(path)
    return Method(
        name,
        "the network in a file",
        config,
        weights=path,
        channels=config.channels if isinstance(config, NeuroexplicitConfig) and config.learn_kernels else None,
        gives_error=isinstance(config, NeuroexplicitConfig) and config.confidence,
        takes_weights=isinstance(config, NeuroexplicitConfig),
    )


def read_network(weights: Path, shipped: bool, device: torch.device) -> Network:
    """The network in a file, on a device in evaluation mode; `shipped` as in `Method`."""
    if shipped:
        check_shipped(weights)
    return read_model(weights).to(device).eval()


def network_fill(method: Method, device: torch.device) -> Fill:
    """The fill function of a network on a device."""
    assert method.weights is not None
    return fill_function(_network(method.weights, method.shipped, device))


def fill_function(model: Network) -> Fill:
    """The fill function of a network, which also fills several fields of one size (B, C, H, W) in one call."""

    @torch.inference_mode()
    def fill(
        image: Tensor, flow: Tensor, mask: Tensor, *, progress: ProgressCallback | None = None, **parameters: Any
    ) -> Solution:
        u, log_error = model.complete(image, flow, mask, progress, **parameters)
        exact = data_term(flow, mask, parameters.get("weight")).exact
        error = None if log_error is None else expected_error(log_error, flow, mask, exact)
        return Solution(u, model.iterations(*flow.shape[-2:], **parameters), expected_error=error)

    return fill


def _network(weights: Path, shipped: bool, device: torch.device) -> Network:
    """The network in a file, kept until the file changes."""
    if not weights.is_file():
        return read_network(weights, shipped, device)  # raises the error
    about = weights.stat()
    stamp = about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_size
    return _kept_network(weights.resolve(), shipped, stamp, device)


@lru_cache(maxsize=MOST_KEPT_MODELS)
def _kept_network(weights: Path, shipped: bool, stamp: tuple[int, ...], device: torch.device) -> Network:
    """The network in a file with this stamp (size and time); cached, because reading and its backend are expensive."""
    return read_network(weights, shipped, device)
