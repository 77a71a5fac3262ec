"""Layered scenes with exact dense flow, a batch at a time on any device: the default training data.

A scene is a background and up to K objects in front of it. What a network learns from such scenes is what an edge of
the flow looks like, so borders are those of nature wherever there are pictures: the segments of photos move on their
own, cut-outs keep their silhouettes, and drawn shapes wobble. No second frame is needed, hence the flow is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flowinpaint.data.bank import PictureBank
from flowinpaint.data.batch import Batch
from flowinpaint.data.camera_picture import draw_exposure, draw_light, expose, gaussian, illuminate, smear
from flowinpaint.data.layer_motion import Camera, Motions, draw_motions, flow_of
from flowinpaint.data.layer_paint import background_labels, draw_paint, paint, pick
from flowinpaint.data.layer_shapes import Covering, Shapes, cover, draw_shapes, nothing_covered
from flowinpaint.data.layered_config import LayeredConfig
from flowinpaint.data.picture_sampling import Pictures
from flowinpaint.data.procedural import procedural_bank
from flowinpaint.data.smooth_noise import SmoothNoise
from flowinpaint.draws import Draws
from flowinpaint.errors import InputError

_SMALLEST = 16
_SPACINGS = (3, 8, 32, 48, 64, 96)
_LABELS = 256
_SHARPEST = 0.05
"""Deviation of a blur that changes nothing, in pixels; none at all would divide by zero."""


class LayeredFlow(nn.Module):
    """Scene n of a seed is always the same, whatever the device (to rounding), the batch or the rank."""

    place: Tensor

    def __init__(
        self,
        config: LayeredConfig | None = None,
        size: tuple[int, int] = (384, 384),
        bank: PictureBank | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(size) < _SMALLEST:
            raise InputError(f"size: {size} was given; a height and a width of at least {_SMALLEST} px are taken.")
        self.config = config or LayeredConfig()
        self.size, self.seed = size, seed
        bank = bank or procedural_bank()
        for name in bank.__dataclass_fields__:
            self.register_buffer(name, getattr(bank, name), persistent=False)
        y, x = torch.meshgrid(*(torch.arange(float(n)) for n in size), indexing="ij")
        self.register_buffer("place", torch.stack([x, y]), persistent=False)
        self.noise = nn.ModuleDict({str(spacing): SmoothNoise(size, spacing) for spacing in _SPACINGS})
        self._cover, self._paint, self._flow = cover, paint, _flow
        self._illuminate, self._expose = illuminate, expose

    @property
    def bank(self) -> PictureBank:
        """The pictures, on the device where the generator is."""
        return PictureBank(**{name: getattr(self, name) for name in PictureBank.__dataclass_fields__})

    def compile_parts(self) -> None:
        """Compile, in place, what is done for every pixel; for CUDA, where this fuses some thousand passes to a few.

        Each part by itself: a compiler that sees the whole scene at once takes minutes and fuses too much.
        """
        for name in ("_cover", "_paint", "_flow", "_illuminate", "_expose"):
            compiled: Any = torch.compile(getattr(self, name), dynamic=False)
            setattr(self, name, compiled)

    @torch.no_grad()
    def scenes(self, samples: Tensor) -> Batch:
        """The scenes with the numbers samples (B,) int64, valid everywhere."""
        config, bank = self.config, self.bank
        draws = Draws(samples, self.seed)
        shapes, cutouts = draw_shapes(draws, config, self.size, bank)
        seen = self._place_objects(draws, shapes, cutouts)
        colours, pictures = (
            torch.stack(tables, -1) for tables in draw_paint(draws, config, self.size, bank, shapes, cutouts)
        )
        image = self._paint(seen, colours, pictures, bank.pixels, self.place)
        flow = self._move(draws, shapes, seen, colours, pictures)

        shade = config.shading * self._smooth(draws, 96, 1)
        image = self._illuminate(image, draw_light(draws, config), shade, self._smooth(draws, 64, 1))
        image = self._defocus(draws, image, seen)
        shutter = draws.uniform((), *config.shutter) * draws.chance((), config.motion_blur)
        image = smear(image, flow, shutter, config.longest_blur)
        image = gaussian(image, draws.uniform((), *config.blur).clamp(min=_SHARPEST))
        image = self._expose(image, draw_exposure(draws, config))
        return Batch(image, flow, torch.ones_like(flow[:, :1]))

    def _smooth(self, draws: Draws, spacing: int, channels: int) -> Tensor:
        field = self.noise[str(spacing)](draws, channels)
        assert isinstance(field, Tensor)
        return field

    def _place_objects(self, draws: Draws, shapes: Shapes, cutouts: Pictures) -> Covering:
        """Put the objects in front of each other, with wobbling borders."""
        config = self.config
        amount, one = draws.uniform((1, 1, 1)), (1, 1, 1)
        coarse, middle, fine = config.wobble
        wobbling = (
            self.place
            + self._smooth(draws, 32, 2) * (coarse * amount)
            + self._smooth(draws, 8, 2) * (middle * amount**2)
            + self._smooth(draws, 3, 2) * (fine * draws.chance(one, config.fuzzy))
        )
        low, high = config.objects
        number = torch.arange(config.most_objects, device=amount.device, dtype=torch.int32)
        present = number < low + draws.integers((1,), high - low + 1)
        seen = nothing_covered(len(present), self.size, amount.device)
        # Contiguous for each object, so that the same compiled code takes them all.
        every = Shapes(*(part.movedim(-1, 0).contiguous()[..., None, None] for part in shapes))
        every_cutout = Pictures(*(part.T.contiguous()[..., None, None] for part in cutouts))
        every_present = present.T.contiguous()[..., None, None]
        for k in range(config.most_objects):
            shape = Shapes(*(part[k] for part in every))
            picture = Pictures(*(part[k] for part in every_cutout))
            seen = self._cover(
                seen, number[k] + 1, every_present[k], shape, picture, self.bank.pixels, self.place, wobbling
            )
        return seen

    def _move(self, draws: Draws, shapes: Shapes, seen: Covering, colours: Tensor, pictures: Tensor) -> Tensor:
        """The flow (B, 2, H, W), for which the segments of a background photo may be merged into groups."""
        config = self.config
        H, W = self.size
        low, high = config.groups
        count = low + draws.integers((1,), high - low + 1)
        # Motion 0 is the background's as a whole; those of its groups come after the objects'.
        group = 1 + config.most_objects + torch.remainder(draws.integers((_LABELS,), 1 << 20), count)
        group = torch.where(draws.chance((1,), config.segmented), group, 0)
        x = torch.cat([draws.uniform((1,), 0, W), shapes.x, draws.uniform((high,), 0, W)], 1)
        y = torch.cat([draws.uniform((1,), 0, H), shapes.y, draws.uniform((high,), 0, H)], 1)
        camera, motions = draw_motions(draws, config, self.size, x.shape[1], x, y)
        # In a driving scene the background is the ground, or some of its segments are and others stand upright.
        flat = draws.chance((x.shape[1],), config.flat)
        flat[:, 0] = True
        flat[:, 1 : 1 + config.most_objects] = False
        table = torch.stack([*motions, flat.float()], -1)
        bend = self._smooth(draws, 48, 2)
        return self._flow(
            seen.solid, group, table, camera, colours, pictures, self.bank.pixels, self.place, bend, config.largest
        )

    def _defocus(self, draws: Draws, image: Tensor, seen: Covering) -> Tensor:
        """Blur some of the layers in some of the scenes."""
        config = self.config
        blurred = gaussian(image, draws.uniform((), *config.defocus_blur).clamp(min=_SHARPEST))
        unsharp = draws.chance((config.most_objects + 1,), config.unsharp) & draws.chance((1,), config.defocus)
        (amount,) = pick(unsharp.float()[..., None], seen.solid)
        return torch.lerp(image, blurred, amount[:, None])


def _flow(
    layer: Tensor,
    group: Tensor,
    table: Tensor,
    camera: Camera,
    colours: Tensor,
    pictures: Tensor,
    pixels: Tensor,
    place: Tensor,
    bend: Tensor,
    largest: float,
) -> Tensor:
    """The flow (B, 2, H, W) of the layers (B, H, W), a background's labels being merged by group (B, 256)."""
    label = background_labels(colours, pictures, pixels, place)
    (segment,) = pick(group[..., None], label)
    motion = torch.where(layer == 0, segment, layer)
    *own, flat = pick(table, motion)
    return flow_of(camera, Motions(*own), flat > 0, bend, place, largest)
