"""A model's fast way on the CPU: compiled loops, the network by oneDNN, memory bounded for images of any size.

    push f and known down the levels → guess → network, tile by tile → level by level: edge weights and diffusion

What exists of the whole image is a few fields and maps; the network's activations exist for a tile only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.fsi_cpu import diffuse
from flowinpaint.diffusion.kernels.pyramid_cpu import pull, push, refine
from flowinpaint.diffusion.pyramid import image_pyramid, upsample
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.tiles import tiled_maps
from flowinpaint.neuroexplicit.config import LEVELS
from flowinpaint.neuroexplicit.edge_weights import predicts_all
from flowinpaint.neuroexplicit.first_guess import normalised
from flowinpaint.neuroexplicit.kernels.dtm_cpu import PackedDtm, fastest_dtype
from flowinpaint.neuroexplicit.kernels.edge_weights_cpu import edge_weights
from flowinpaint.neuroexplicit.levels import START_STEPS, Known, extend, extended_size, levels_of, per_level

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit

TILE = 2048
"""Side of a tile's core; with what it reads around itself its activations take some 1.5 GB."""


class CpuInference:
    """A model on the CPU, for float32 fields; any configuration but learned kernels (+W)."""

    def __init__(self, model: Neuroexplicit) -> None:
        self.config, self._lam, self._mean, self._std = model.config, model.lam, model.mean, model.std
        self._dtm = PackedDtm(model.dtm, fastest_dtype())

    @torch.no_grad()
    def __call__(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """Image (B, 3, H, W), mask (B, 1, H, W), flow (B, C, H, W) float32 → (B, C, H, W), and its error."""
        with torch.autocast("cpu", enabled=False):
            H, W = flow.shape[-2:]
            count = levels_of(H, W, self.config)
            size = extended_size(H, W, count)
            image, flow, known = (extend(x, *size) for x in (image.float(), flow.detach(), mask > 0))
            levels = push(flow, known, count)[::-1]
            start = self._coarsest(levels[0])
            maps = self._maps(image, self._guess(start, levels), levels[-1])
            log_error = None
            if self.config.confidence:
                log_error = maps[-1][:, self.config.predicted :, :H, :W].contiguous()
                maps = [z[:, : self.config.predicted] for z in maps]
            return Filled(self._diffuse(start, levels, maps, image)[..., :H, :W].contiguous(), log_error)

    def repack(self) -> None:
        """Take the model's weights again, of which only the network's are kept in another form."""
        self._dtm.repack()

    def _coarsest(self, level: Known) -> Tensor:
        f, known = level
        if self.config.start == "pull":
            return diffuse(pull(f, known), known, None, START_STEPS)
        return torch.where(known, f, 0)

    def _guess(self, start: Tensor, levels: list[Known]) -> Tensor | None:
        """The first guess (B, C, H, W), if the network wants one."""
        if not self.config.flow_aware:
            return None
        u = start.clone()
        steps = per_level(self.config.guess_steps, len(levels))
        for k, (count, (f, known)) in enumerate(zip(steps, levels, strict=True)):
            u = diffuse(refine(u, f, known) if k else u, known, None, count)
        return u

    def _maps(self, image: Tensor, guess: Tensor | None, level: Known) -> list[Tensor]:
        """The network's maps, coarse to fine, (B, ·, h, w)."""
        size = (image.shape[-2], image.shape[-1])
        of_images = []
        for b in range(len(image)):
            inputs = [image[b : b + 1].sub(self._mean).div_(self._std)]
            if guess is not None:
                f, known = (x[b : b + 1] for x in level)
                vectors = f.permute(0, 2, 3, 1)[known[:, 0]].T[None, :, None]  # (1, C, 1, number of known ones)
                inputs += [normalised(guess[b : b + 1], vectors, torch.ones_like(vectors[:, :1])), known.float()]
            of_images.append(tiled_maps(self._dtm, partial(_read, inputs), size, TILE, 2**self.config.depth))
        return [torch.cat(maps) for maps in zip(*of_images, strict=True)] if len(image) > 1 else of_images[0]

    def _diffuse(self, u: Tensor, levels: list[Known], maps: list[Tensor], image: Tensor) -> Tensor:
        """One FSI cycle a level, coarse to fine; each level's map is given up when it has been used."""
        images = [image] if predicts_all(self.config) else image_pyramid(image, len(levels))
        maps[:1] = image_pyramid(maps[0], 1 + len(levels) - LEVELS)
        steps = per_level(self.config.steps, len(levels))
        for k, (f, known) in enumerate(levels):
            weights = edge_weights(
                maps.pop(0), images[min(k, len(images) - 1)], self._lam[max(k - len(levels) + LEVELS, 0)], self.config
            )
            if self.config.start == "pull":
                u = diffuse(refine(u, f, known) if k else u, known, weights, steps[k])
            else:  # in the paper the given vectors enter only after the first step
                u = upsample(u, (f.shape[-2], f.shape[-1])) if k else u
                u = diffuse(u, known, weights, steps[k], held=f)
        return u


def _read(inputs: list[Tensor], rows: slice, columns: slice) -> Tensor:
    """A tile of the network's input, channels last, from its parts (1, n, H, W), extended where it lies outside."""
    height, width = rows.stop - rows.start, columns.stop - columns.start
    tile = torch.empty(1, sum(x.shape[1] for x in inputs), height, width, memory_format=torch.channels_last)
    first = 0
    for x in inputs:
        tile[:, first : first + x.shape[1]] = extend(x[..., rows, columns], height, width)
        first += x.shape[1]
    return tile
