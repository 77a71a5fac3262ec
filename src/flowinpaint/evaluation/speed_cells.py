"""What `flowinpaint speed` times: a method on a device at a size, with something to fill, and the call itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint import api
from flowinpaint.data.scene import Scene, sample_scene
from flowinpaint.masks import random_mask
from flowinpaint.methods.registry import get_method
from flowinpaint.networks.network import Network
from flowinpaint.networks.shipped import check_shipped
from flowinpaint.networks.weights import WEIGHTS_SUFFIX, read_model
from flowinpaint.neuroexplicit.kernels.dtm_cpu import fastest_dtype
from flowinpaint.neuroexplicit.model import Neuroexplicit

Precision = Literal["auto", "float32"]
Size = tuple[int, int]
Filler = Callable[[Tensor, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Cell:
    """A method (a name or a file of weights) at height × width on a device.

    precision "auto" is what a user gets; "float32" is a network in plain PyTorch, without the fast paths.
    """

    method: str
    height: int
    width: int
    device: str
    precision: Precision

    @property
    def text(self) -> str:
        """The cell in words."""
        return f"{self.method}, {self.height}×{self.width}, {self.device}, {self.precision}"


class Given(NamedTuple):
    """What is to be filled: image (H, W, 3) uint8, flow (H, W, 2) float32, mask (H, W) bool."""

    image: npt.NDArray[np.uint8]
    flow: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Image in [0, 1], flow (0 where unknown) and mask, each (1, ·, H, W) float32 on a device."""
        known = self.mask[..., None]
        return (
            api.to_batch(self.image, device) / 255,
            api.to_batch(np.where(known, self.flow, 0), device),
            api.to_batch(known, device),
        )


def given_at(height: int, width: int, density: float, seed: int) -> Given:
    """The sample scene, stretched to a size, and a random mask."""
    scene = _painted(seed)
    return Given(
        np.asarray(cv2.resize(scene.image, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8),
        np.asarray(cv2.resize(scene.flow, (width, height), interpolation=cv2.INTER_NEAREST), np.float32),
        random_mask((height, width), density, seed),
    )


@lru_cache(maxsize=1)
def _painted(seed: int) -> Scene:
    return sample_scene(seed=seed)


def cells_of(
    methods: Iterable[str], sizes: Sequence[Size], devices: Iterable[str], precisions: Sequence[Precision]
) -> list[Cell]:
    """All combinations; methods without a network know no precision and come once."""
    return [
        Cell(method, *size, device, precision)
        for device in devices
        for size in sizes
        for method in methods
        for precision in (precisions if get_method(method).is_network else ("auto",))
    ]


def weights_files(methods: Iterable[str]) -> dict[str, Path | None]:
    """The file of weights of each method, None where there is none to read."""
    files: dict[str, Path | None] = {}
    for method in methods:
        if method.endswith(WEIGHTS_SUFFIX):
            files[method] = Path(method)
            read_model(method)  # what is wrong with it is to be known before anything is timed
        else:
            found = get_method(method, "methods")
            files[method] = found.weights
            if found.weights is not None and found.shipped:
                check_shipped(found.weights)
    return files


def network_dtype(cell: Cell) -> torch.dtype:
    """The type that a network computes in; float32 stands for methods without one."""
    if cell.precision == "float32" or not get_method(cell.method).is_network:
        return torch.float32
    return torch.float16 if cell.device.startswith("cuda") else fastest_dtype()


def network_of(weights: Path, device: torch.device, precision: Precision) -> Network:
    """The model in a file, set to a precision if it has a fast way."""
    model = api.load_model(weights, device)
    if isinstance(model, Neuroexplicit):
        model.backend = "auto" if precision == "auto" else "reference"
    return model


def filler(method: str, weights: Path | None, device: torch.device, precision: Precision) -> Filler:
    """The method as a function of image, flow and mask (1, ·, H, W) that are on the device already."""
    if weights is None:
        return get_method(method).fill
    model = network_of(weights, device, precision)

    @torch.inference_mode()
    def run(image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        filled: Tensor = model(image, flow, mask)
        return filled

    return run


def described(error: Exception) -> str:
    """Why something was not timed; our own errors say it all by themselves."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
