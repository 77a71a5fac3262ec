"""`LayeredFlow`: layered scenes with exact dense flow, generated in batches on any device.

A scene is a background and up to K objects in front of it. Networks learn from it what flow edges look like, so borders
are natural where there are pictures: segments of photos move on their own, cut-outs keep their silhouettes, and drawn
shapes wobble. The flow is exact because no second frame is rendered.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from flowinpaint.data import Batch
from flowinpaint.data.bank import PictureBank
from flowinpaint.data.generator.camera import expose, gaussian, illuminate, smear
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.motion import Motions, flow_of
from flowinpaint.data.generator.paint import background_labels, paint, pick
from flowinpaint.data.generator.plan import SMOOTH_FIELDS, ScenePlan, draw_plan
from flowinpaint.data.generator.shapes import cover
from flowinpaint.data.generator.smooth_noise import SmoothNoise
from flowinpaint.data.procedural_pictures import procedural_bank
from flowinpaint.errors import InputError

_SMALLEST = 16


class LayeredFlow(nn.Module):
    """A generator whose scene n of a seed is the same for any device (to rounding), batch and rank."""

    place: Tensor
    pixels: Tensor

    def __init__(
        self,
        config: LayeredConfig | None = None,
        size: tuple[int, int] = (384, 384),
        bank: PictureBank | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(size) < _SMALLEST:
            raise InputError(f"size must have a height and a width of at least {_SMALLEST} px, got {size}")
        self.config = config or LayeredConfig()
        self.size, self.seed = size, seed
        bank = bank or procedural_bank()
        for name in bank.__dataclass_fields__:
            self.register_buffer(name, getattr(bank, name), persistent=False)
        y, x = torch.meshgrid(*(torch.arange(float(n)) for n in size), indexing="ij")
        self.register_buffer("place", torch.stack([x, y]), persistent=False)
        self.noise = nn.ModuleDict({name: SmoothNoise(size, *field) for name, field in SMOOTH_FIELDS.items()})
        self._tables: Callable[..., Any] | None = None

    @property
    def bank(self) -> PictureBank:
        """The pictures, on the generator's device."""
        return PictureBank(**{name: getattr(self, name) for name in PictureBank.__dataclass_fields__})

    def compile_parts(self) -> None:
        """Compile the drawing of a scene's tables, in place, for CUDA, where this fuses thousands of launches.

        The pixels have their own kernels there.
        """
        if kernels := _cuda_kernels(self.place.device):
            self._tables = torch.compile(kernels.plan_tables, dynamic=False)

    @torch.no_grad()
    def scenes(self, samples: Tensor) -> Batch:
        """Generate the scenes with the numbers samples (B,) int64, valid everywhere."""
        about = samples, self.seed, self.config, self.size, self.bank
        if kernels := _cuda_kernels(samples.device):
            tables = (self._tables or kernels.plan_tables)(*about)
            image, flow = kernels.render(tables, self.config, self.pixels, self.size)
        else:
            image, flow = self.render(draw_plan(*about))
        return Batch(image, flow, torch.ones_like(flow[:, :1]))

    def render(self, plan: ScenePlan) -> tuple[Tensor, Tensor]:
        """Render planned scenes in PyTorch as images (B, 3, H, W) and flow (B, 2, H, W)."""
        smooth = {name: field(plan.smooth[:, i]) for i, (name, field) in enumerate(self.noise.items())}
        wobbling = self.place
        for amplitude, name in zip(plan.wobble.T, ("coarse", "middle", "fine"), strict=True):
            wobbling = wobbling + smooth[name] * amplitude.view(-1, 1, 1, 1)
        seen = cover(plan.shapes, plan.cutouts, plan.present, self.pixels, self.place, wobbling)
        image = paint(seen, plan.paint, plan.pictures, self.pixels, self.place)
        label = background_labels(plan.paint, plan.pictures, self.pixels, self.place)
        (segment,) = pick(plan.group[..., None], label)  # the motion group of a label
        *own, flat = pick(plan.motions, torch.where(seen.solid == 0, segment, seen.solid))
        flow = flow_of(plan.camera, Motions(*own), flat > 0, smooth["bend"], self.place, self.config.largest)
        image = illuminate(image, plan.light, self.config.shading * smooth["shade"], smooth["clouds"])
        (unsharp,) = pick(plan.unsharp[..., None], seen.solid)
        image = torch.lerp(image, gaussian(image, plan.defocus), unsharp[:, None])
        image = smear(image, flow, plan.shutter, plan.delay, self.config.longest_blur)
        image = gaussian(image, plan.blur)
        return expose(image, plan.exposure), flow


def _cuda_kernels(device: torch.device) -> ModuleType | None:
    """The module that renders scenes on CUDA, or None for other devices or without Triton."""
    if device.type != "cuda":
        return None
    try:
        return import_module("flowinpaint.data.generator.kernels.scene_gpu")
    except ImportError:
        return None
