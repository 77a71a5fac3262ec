"""Speed cases: a method on a device at a size, the input it fills, and the call that is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flowinpaint.api import load_model, to_batch
from flowinpaint.data.demo_scene import Scene, sample_scene
from flowinpaint.masks import random_mask
from flowinpaint.methods.neural import read_network
from flowinpaint.methods.registry import get_method
from flowinpaint.neuroexplicit.kernels.dtm_cpu import fastest_dtype
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.opencv import cv2

Precision = Literal["auto", "float32"]
Size = tuple[int, int]


@dataclass(frozen=True)
class SpeedCase:
    """A method (a name or a weights file) at height × width on a device.

    precision: "auto" is the default of `inpaint`; "float32" runs a network in plain PyTorch, without fast paths.
    """

    method: str
    height: int
    width: int
    device: str
    precision: Precision

    @property
    def text(self) -> str:
        """The case in words."""
        return f"{self.method}, {self.height}×{self.width}, {self.device}, {self.precision}"

    @property
    def label(self) -> str:
        """The method, with its precision if that is not the default."""
        return self.method if self.precision == "auto" else f"{self.method} {self.precision}"

    @property
    def dtype(self) -> torch.dtype:
        """The type that a network computes in; float32 for methods without one."""
        if self.precision == "float32" or not get_method(self.method).is_network:
            return torch.float32
        return torch.float16 if self.device.startswith("cuda") else fastest_dtype()


class Inputs(NamedTuple):
    """Image (H, W, 3) uint8, flow (H, W, 2) float32 and mask (H, W) bool."""

    image: npt.NDArray[np.uint8]
    flow: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Image in [0, 1], flow (0 where unknown) and mask, each (1, ·, H, W) float32 on a device."""
        known = self.mask[..., None]
        return (
            to_batch(self.image, device) / 255,
            to_batch(np.where(known, self.flow, 0), device),
            to_batch(known, device),
        )


def inputs_at(height: int, width: int, density: float, seed: int) -> Inputs:
    """The sample scene, stretched to a size, and a random mask."""
    scene = _scene(seed)
    return Inputs(
        np.asarray(cv2.resize(scene.image, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8),
        np.asarray(cv2.resize(scene.flow, (width, height), interpolation=cv2.INTER_NEAREST), np.float32),
        random_mask((height, width), density, seed),
    )


@lru_cache(maxsize=1)
def _scene(seed: int) -> Scene:
    return sample_scene(seed=seed)


def all_cases(
    methods: Iterable[str], sizes: Sequence[Size], devices: Iterable[str], precisions: Sequence[Precision]
) -> list[SpeedCase]:
    """All combinations; methods without a network have one precision."""
    return [
        SpeedCase(method, *size, device, precision)
        for device in devices
        for size in sizes
        for method in methods
        for precision in (precisions if get_method(method).is_network else ("auto",))
    ]


def check_weights(methods: Iterable[str]) -> None:
    """Raise the error of a method that does not exist or whose weights file is faulty."""
    for name in methods:
        method = get_method(name, "methods")
        if method.weights is not None:
            read_network(method.weights, method.shipped, torch.device("cpu"))


def fill_function(method: str, device: torch.device, precision: Precision) -> Callable[[Tensor, Tensor, Tensor], Any]:
    """The method as a function of image, flow and mask (1, ·, H, W) that are already on the device."""
    found = get_method(method)
    if found.weights is None:
        return found.fill
    model = load_model(method, device)
    if isinstance(model, Neuroexplicit) and precision == "float32":
        model.backend = "torch"
    return torch.inference_mode()(model.__call__)
