"""CPU backend: loops compiled by numba, the network by oneDNN, memory bounded for images of any size.

Only a few fields and maps exist for the whole image; the network's activations exist for one tile at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion import pyramid
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.kernels import FSI, PYRAMID, kernels_for
from flowinpaint.diffusion.pyramid import extend
from flowinpaint.networks.network import normalised_colours
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit import edge_weights
from flowinpaint.neuroexplicit.backends.tiles import tiled_maps
from flowinpaint.neuroexplicit.config import levels_of
from flowinpaint.neuroexplicit.dtm import normalised
from flowinpaint.neuroexplicit.edge_weights import levels_of_maps
from flowinpaint.neuroexplicit.kernels.dtm_cpu import PackedDtm, fastest_dtype
from flowinpaint.neuroexplicit.method import Operator, fill
from flowinpaint.neuroexplicit.reporting import reported
from flowinpaint.progress import Tell, part_of
from flowinpaint.result import ProgressCallback

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit

TILE = 2048
"""Side of a tile's core; including its margin, the activations need about 1.5 GB."""
EXACT_PIXELS = 128 * 128
"""Smaller images get the network in float32, which takes some ms longer: bfloat16 turns a rounding error of the field
into a change of up to 5 % of the result, most of all in small images with few vectors."""
CPU = torch.device("cpu")
EDGE_WEIGHTS = "flowinpaint.neuroexplicit.kernels.edge_weights"


class CpuBackend:
    """A model on the CPU, for float32 fields without gradient; any configuration except learned kernels (+W)."""

    def __init__(self, model: Neuroexplicit) -> None:
        self.config, self._lam = model.config, model.lam
        fastest = fastest_dtype()
        self._dtm = PackedDtm(model.dtm, fastest)
        self._exact_dtm = self._dtm if fastest == torch.float32 else PackedDtm(model.dtm, torch.float32)
        steps = kernels_for(PYRAMID, CPU, fallback=pyramid.__name__)
        self.push, self.pull, self.refine = steps.push, steps.pull, steps.refine
        self._fsi = kernels_for(FSI, CPU)
        self._edge_weights = kernels_for(EDGE_WEIGHTS, CPU, fallback=edge_weights.__name__)

    @torch.no_grad()
    def __call__(
        self, image: Tensor, data: DataTerm, start: Tensor | None = None, progress: ProgressCallback | None = None
    ) -> Filled:
        """Fill fields f (B, C, H, W) float32 of images (B, 3, H, W)."""
        with torch.autocast("cpu", enabled=False):
            data = data._replace(f=data.f.detach())
            levels = levels_of(data.f.shape[-2], data.f.shape[-1], self.config)
            return fill(image.float(), data, levels, self.config, reported(self, progress), start)

    def repack(self) -> None:
        """Read the network's weights again; only these are copied to another layout."""
        for dtm in {self._dtm, self._exact_dtm}:
            dtm.repack()

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps of the network, coarse to fine, tile by tile."""
        size = (image.shape[-2], image.shape[-1])
        dtm = self._exact_dtm if size[0] * size[1] <= EXACT_PIXELS else self._dtm
        of_images = []
        for b in range(len(image)):
            inputs = [normalised_colours(image[b : b + 1])]
            if guess is not None:
                own = DataTerm(*(None if x is None else x[b : b + 1] for x in data))  # type: ignore[arg-type]
                inputs += [_hints(guess[b : b + 1], own), own.binding()]
            own_tell = None if tell is None else part_of(tell, b / len(image), (b + 1) / len(image))
            of_images.append(tiled_maps(dtm, partial(_read, inputs), size, TILE, 2**self.config.depth, own_tell))
        return [torch.cat(maps) for maps in zip(*of_images, strict=True)] if len(image) > 1 else of_images[0]

    def edge_weights(self, maps: list[Tensor], image: Tensor, levels: int) -> Iterable[Operator]:
        """The process of each level, computed lazily."""
        for level in levels_of_maps(maps, image, self._lam, levels, self.config):
            yield Operator(*self._edge_weights.operator_of(*level, self.config))

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle."""
        cycle: Tensor = self._fsi.diffuse(u, data, *operator, steps)
        return cycle


def _hints(guess: Tensor, data: DataTerm) -> Tensor:
    """The normalised guess of one image; its statistics are computed from the given vectors only."""
    known = data.known[0, 0]
    f = data.f.permute(0, 2, 3, 1)[0, known].T[None, :, None]  # (1, C, 1, number of given ones)
    c = torch.ones_like(f[:, :1]) if data.weight is None else data.binding()[0, :, known][None, None]
    return normalised(guess, f, c)


def _read(inputs: list[Tensor], rows: slice, columns: slice) -> Tensor:
    """A tile of the network's input, channels last, from its parts (1, n, H, W), extended beyond the image."""
    height, width = rows.stop - rows.start, columns.stop - columns.start
    tile = torch.empty(1, sum(x.shape[1] for x in inputs), height, width, memory_format=torch.channels_last)
    first = 0
    for x in inputs:
        tile[:, first : first + x.shape[1]] = extend(x[..., rows, columns], height, width)
        first += x.shape[1]
    return tile
