"""A model's fast way on CUDA with its gradient: the same kernels as without, and those that go back.

The gradient is for the model's weights, not for image and field: what the network sees is made without a graph. The
network computes in float16, as it does without gradient: in bfloat16 its rounding would change the gradient by some per
cent. What goes back is bfloat16, for its range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flowinpaint.diffusion.fsi_function import inpainting_cycle
from flowinpaint.diffusion.pyramid import image_pyramid, refine, upsample
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.backends.cuda_input import prepare
from flowinpaint.neuroexplicit.config import LEVELS
from flowinpaint.neuroexplicit.edge_weights import edge_weights_of, predicts_all
from flowinpaint.neuroexplicit.kernels.dtm_training import TrainableDtm
from flowinpaint.neuroexplicit.levels import extend, per_level

if TYPE_CHECKING:
    from flowinpaint.neuroexplicit.model import Neuroexplicit


class CudaTraining:
    """A model on CUDA whose network runs in half precision, for float32 fields."""

    def __init__(
        self, model: Neuroexplicit, dtype: torch.dtype = torch.float16, gradients: torch.dtype = torch.bfloat16
    ) -> None:
        self._model, self._dtype = model, dtype
        self._dtm = TrainableDtm(model.dtm, dtype, gradients)

    def __call__(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """Image (B, 3, H, W), mask (B, 1, H, W), flow (B, C, H, W) float32 → (B, C, H, W), and its error."""
        config, H, W = self._model.config, *flow.shape[-2:]
        with torch.autocast("cuda", enabled=False):
            x, levels, u = prepare(image.float(), flow, mask > 0, config, self._dtype)
            size = levels[-1][0].shape[-2:]
            maps = [z.permute(0, 3, 1, 2) for z in self._dtm(x)]
            log_error = None
            if config.confidence:
                log_error = maps[-1][:, config.predicted : config.predicted + 1, :H, :W].float()
            maps = [
                z[:, : config.predicted, : (size[0] - 1 >> k) + 1, : (size[1] - 1 >> k) + 1]
                for k, z in zip((3, 2, 1, 0), maps, strict=True)
            ]
            images = (
                image_pyramid(extend(image.float(), *size), len(levels))
                if not predicts_all(config)
                else [image] * len(levels)
            )
            maps[:1] = image_pyramid(maps[0], 1 + len(levels) - LEVELS)
            steps = per_level(config.steps, len(levels))
            for k, ((f, known), z) in enumerate(zip(levels, maps, strict=True)):
                lam = self._model.lam[max(k - len(levels) + LEVELS, 0)]
                weights = edge_weights_of(z, images[k], lam, config)
                if k:
                    u = refine(u, f, known) if config.start == "pull" else upsample(u, (f.shape[-2], f.shape[-1]))
                u = inpainting_cycle(u, f, known, weights, steps[k], self._model.segment)
        return Filled(u[..., :H, :W], log_error)

    def repack(self) -> None:
        """Nothing to do: the weights are packed in each run."""
