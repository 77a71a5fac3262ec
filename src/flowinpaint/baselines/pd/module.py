"""PD: probabilistic diffusion, the paper's baseline that fills a field by sampling (its supplement)."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import PDConfig, UNetConfig
from flowinpaint.baselines.pd.edm import Denoiser, denoising_loss, draw_sigma, preconditioned, repaint
from flowinpaint.counter_rng import Draws, check_seed, normal_field
from flowinpaint.diffusion.data_term import RELATIVE_FLOOR
from flowinpaint.errors import InputError
from flowinpaint.extras import needs
from flowinpaint.networks.network import PAIR, Network, extended, from_pairs, pairs_of, repeated, to_pairs, versions_of
from flowinpaint.networks.output import Filled
from flowinpaint.networks.registry import register_model
from flowinpaint.result import Progress, ProgressCallback

STAGES = 2
LARGEST = 10.0
"""Truths are clipped at this many standard deviations of the known vectors, which may be few and close together."""
IMAGE_CHANNELS = 3
TIME_SCALE = 4.0
"""Factor on c_noise = ln σ / 4: the embedding's fastest wave has one period while σ grows 500-fold.

Faster waves would resolve σ better, but sampling starts with much stronger noise than training draws, and would then
see phases that never occur in training.
"""


@register_model("pd", config=PDConfig, objective="flowinpaint.baselines.pd.objective:Denoising")
class PD(Network):
    """A cascade of two U-Nets that see the image; known vectors enter during sampling and are kept exactly.

    The base U-Net samples a field at a quarter of the size, the fine one the full field from that. Fields are
    normalised by mean and standard deviation of the known vectors, so results shift and scale with the field.

    As in the paper, training uses crops of 384×384. Both U-Nets are fully convolutional: an image of any size is
    extended to multiples of `config.multiple` and filled as a whole, with larger errors far from the training size. The
    seed determines the field; each pair of channels has its own noise. Sampling has no gradient. On CUDA the U-Nets run
    in bfloat16, the sampler in float32.
    """

    samples = True

    def __init__(self, config: PDConfig | None = None) -> None:
        super().__init__()
        self.config = config or PDConfig()
        self.base = ConditionedUNet(self.config.base, IMAGE_CHANNELS)
        self.fine = ConditionedUNet(self.config.fine, IMAGE_CHANNELS + PAIR)
        self._noise = normal_field
        self._compiled = False
        self._twins: dict[int, tuple[tuple[int, ...], ConditionedUNet]] = {}
        """Stamp of the weights and half-precision copy of each stage that has sampled on CUDA."""

    def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """A sample with the configuration's steps; not differentiable, unlike other networks."""
        return self.complete(image, flow, mask)

    @torch.no_grad()
    def complete(
        self,
        image: Tensor,
        flow: Tensor,
        mask: Tensor,
        progress: ProgressCallback | None = None,
        *,
        seed: int = 0,
        **steps: int,
    ) -> Filled:
        """Image (B, 3, H, W) in [0, 1], flow (B, C, H, W), mask (B, 1, H, W) above 0 where known → (B, C, H, W).

        steps: `sampling_steps` and `resampling_steps` of each stage, instead of the configuration's.
        """
        config, seed = self._with_steps(steps), check_seed(seed)
        self.check(image, flow, mask)
        B, C, H, W = flow.shape
        known = mask > 0
        with torch.autocast(flow.device.type, enabled=False):
            image = 2 * repeated(extended(image.float(), config.multiple), C) - 1
            given = to_pairs(torch.where(known, flow, 0))
            mean, scale = known_scale(given, repeated(known, C))
            f = extended(((given - mean) / scale).float(), config.multiple)
            inside = extended(repeated(known, C), config.multiple)
            draws = Draws(torch.arange(B * pairs_of(C), device=flow.device), seed)
            coarse = self._sample(0, config, draws, progress, *self._coarse(image, f, inside))
            condition = torch.cat([image, self._blurred(coarse, normal_field(draws.key(), tuple(coarse.shape[1:])))], 1)
            fine = self._sample(1, config, draws, progress, condition, f, inside)
            field = from_pairs(mean + scale * fine[..., :H, :W].to(flow.dtype), C)
        return Filled(torch.where(known, flow, field), None)

    def iterations(self, H: int, W: int, *, seed: int = 0, **steps: int) -> int:
        """Steps of both stages; all except two evaluate a U-Net twice."""
        return STAGES * self._with_steps(steps).iterations

    def denoising_loss(
        self, image: Tensor, given: Tensor, mask: Tensor, truth: Tensor, valid: Tensor, draws: Draws
    ) -> Tensor:
        """The sum of both U-Nets' losses (`edm.denoising_loss`), with one noise level and one noise per field.

        Image (B, 3, H, W) in [0, 1], mask and valid (B, 1, H, W), given and truth (B, C, H, W), draws of B samples. The
        given vectors only normalise the truth. The fine U-Net sees the true coarse field. Nothing here synchronises
        with the device.
        """
        config, C = self.config, truth.shape[1]
        known, valid = mask > 0, valid > 0
        with torch.autocast(truth.device.type, enabled=False):
            image = 2 * repeated(extended(image.float(), config.multiple), C) - 1
            mean, scale = known_scale(to_pairs(torch.where(known, given, 0)), repeated(known, C))
            y = ((to_pairs(truth) - mean) / scale).float().clamp(-LARGEST, LARGEST)
            valid = repeated(valid, C)
            y = extended(torch.where(valid, y, 0), config.multiple)
            # Unknown outside of the image.
            valid = F.pad(valid, (0, y.shape[-1] - valid.shape[-1], 0, y.shape[-2] - valid.shape[-2]))
            coarse_image, coarse, coarse_valid = self._coarse(image, y, valid)
            condition = torch.cat([image, self._blurred(coarse, self._noise_like(coarse, draws, pairs_of(C)))], 1)
        return self._loss(self.base, coarse, coarse_image, coarse_valid, draws, pairs_of(C)) + self._loss(
            self.fine, y, condition, valid, draws, pairs_of(C)
        )

    def compile_parts(self) -> None:
        """Compile both U-Nets, for training and sampling, and the noise of training, in place.

        Every new size is compiled again, in a minute or two; sampling is then about three times as fast.
        """
        self._compiled = True
        self.refresh()
        self.base.compile(dynamic=False)
        self.fine.compile(dynamic=False)
        self._noise = torch.compile(normal_field, dynamic=False)

    def refresh(self) -> None:
        """Drop the half-precision copies of the weights."""
        self._twins.clear()

    def _sampling_network(self, stage: int) -> ConditionedUNet:
        """The U-Net of a stage for sampling: on CUDA a half-precision copy, cached until the weights change."""
        network = (self.base, self.fine)[stage]
        weights = list(network.parameters())
        if not weights[0].is_cuda:
            return network
        versions = versions_of(weights)
        stamp = (weights[0].data_ptr(), *(versions or ()))
        kept = self._twins.get(stage)
        if kept is None or versions is None or kept[0] != stamp:
            twin = copy.deepcopy(network).to(torch.bfloat16, memory_format=torch.channels_last)  # type: ignore[call-overload]
            if self._compiled:
                twin.compile(dynamic=False)
            kept = self._twins[stage] = (stamp, twin)
        return kept[1]

    def _with_steps(self, steps: dict[str, int]) -> PDConfig:
        """The configuration with other numbers of steps."""
        if unknown := [name for name in steps if name not in self.config.parameters]:
            raise InputError(f"{unknown[0]} must be a parameter of 'pd', which has {', '.join(self.config.parameters)}")
        config: PDConfig = replace(self.config, **steps)
        return config

    def _sample(
        self,
        stage: int,
        config: PDConfig,
        draws: Draws,
        progress: ProgressCallback | None,
        condition: Tensor,
        f: Tensor,
        known: Tensor,
    ) -> Tensor:
        """A stage's samples (B, 2, h, w) for a condition and fields f that are known where `known` is True."""
        before, whole = stage * config.iterations, STAGES * config.iterations

        def tell(done: int) -> None:
            if progress is not None:
                progress(Progress(stage + 1, STAGES, done, share=(before + done) / whole))

        denoise = self._denoiser(self._sampling_network(stage), condition)
        return repaint(
            denoise, f, known, config, config.sigma_max[stage], draws.key(), None if progress is None else tell
        )

    def _loss(
        self, network: ConditionedUNet, y: Tensor, condition: Tensor, valid: Tensor, draws: Draws, pairs: int
    ) -> Tensor:
        """The loss of one U-Net for fields y (B, 2, h, w), over pixels valid (B, 1, h, w)."""
        config = self.config
        sigma = draw_sigma(draws, config.p_mean, config.p_std, pairs)
        noise = self._noise_like(y, draws, pairs)
        denoise = self._denoiser(network, condition)
        return denoising_loss(denoise, y, sigma, noise, valid.to(y.dtype), config.sigma_data)

    def _denoiser(self, network: ConditionedUNet, condition: Tensor) -> Denoiser:
        return preconditioned(partial(network, condition=condition), self.config.sigma_data)

    def _noise_like(self, x: Tensor, draws: Draws, pairs: int) -> Tensor:
        """Standard normal noise (B·P, 2, h, w) of draws of B samples."""
        h, w = x.shape[-2:]
        return self._noise(draws.key(), (pairs * PAIR, h, w)).reshape(x.shape)

    def _coarse(self, image: Tensor, f: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Image, field and known pixels at the base U-Net's size."""
        return F.avg_pool2d(image, self.config.reduction), *block_mean(f, known, self.config.reduction)

    def _blurred(self, coarse: Tensor, noise: Tensor) -> Tensor:
        """The coarse field (B, 2, h, w) as the fine U-Net sees it: with low noise, at full size."""
        noisy = coarse + self.config.low_noise * noise
        return F.interpolate(noisy, scale_factor=self.config.reduction, mode="bilinear", align_corners=False)


def known_scale(f: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, 2, 1, 1) and standard deviation (B, 1, 1, 1), over both channels, of f (B, 2, H, W) where it is known.

    A deviation below RELATIVE_FLOOR of the mean is rounding. f must be 0 where known (B, 1, H, W) is False.
    """
    count = known.sum((2, 3), keepdim=True).clamp(min=1)
    mean = f.sum((2, 3), keepdim=True) / count
    square = torch.where(known, f - mean, 0).square().sum((2, 3), keepdim=True) / count
    floor = (RELATIVE_FLOOR * mean.abs().amax(1, keepdim=True)).clamp(min=torch.finfo(f.dtype).tiny)
    return mean, torch.maximum(square.mean(1, keepdim=True).sqrt(), floor)


def block_mean(f: Tensor, known: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mean of the known vectors of each k×k block, 0 without any, and whether there is one (bool)."""
    counts = known.to(f.dtype)
    total, count = (F.avg_pool2d(x, k, divisor_override=1) for x in (f * counts, counts))
    return total / count.clamp(min=1), count > 0


class ConditionedUNet(nn.Module):
    """F of Karras et al.: noisy field, noise level and condition to a field, at any size.

    The condition has `seen` channels and is concatenated with the field. The last convolution starts at zero. The
    blocks are those of the library diffusers; InputError without this extra.
    """

    def __init__(self, config: UNetConfig, seen: int) -> None:
        super().__init__()
        try:
            from diffusers.models.unets.unet_2d import UNet2DModel
        except ImportError as error:
            raise InputError(f"method 'pd' {needs('pd')}") from error
        prefixes = ["Attn" if attends else "" for attends in config.attention]
        self.unet = UNet2DModel(
            in_channels=PAIR + seen,
            out_channels=PAIR,
            time_embedding_type="positional",
            block_out_channels=config.widths,
            layers_per_block=config.blocks,
            down_block_types=tuple(f"{prefix}DownBlock2D" for prefix in prefixes),
            up_block_types=tuple(f"{prefix}UpBlock2D" for prefix in reversed(prefixes)),
            add_attention=bool(config.attention[-1]),
            attention_head_dim=config.head,
            norm_num_groups=config.groups,
            attn_norm_num_groups=config.groups,
            resnet_time_scale_shift="scale_shift",
            act_fn="silu",
        )
        for parameter in self.unet.conv_out.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, c_noise: Tensor, condition: Tensor) -> Tensor:
        """Field (B, 2, h, w), c_noise () or (B,), condition (B, seen, h, w) → (B, 2, h, w), all float32.

        h and w must be multiples of the stride. The network runs in the dtype of its weights, or under autocast.
        """
        weight = self.unet.conv_in.weight
        inputs = torch.cat([x, condition], 1).to(weight.dtype)
        if weight.is_cuda:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        F: Tensor = self.unet(inputs, TIME_SCALE * c_noise, return_dict=False)[0]
        return F.float()
