"""Losses of the two networks of the assessor, and the hints that the second one is trained with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.robust.assessor import PointNetwork, overall_log_noise, verdict_of
from flowinpaint.robust.features import CONFIDENCE_HINT, DIRECTION, HINTS, NOISE_HINT, Features, log_ratio
from flowinpaint.robust.training.examples import Examples

_SMALLEST_NOISE = 0.003
"""A noise below this share of the scale counts as this share."""
_LARGEST_RATIO = 10.0
"""Errors above this multiple of the expected error enter the likelihood by their logarithm."""
_LARGEST_ERROR, _ERROR_WEIGHT = 20.0, 0.5
"""Errors above this multiple of the scale count as this multiple, in the mean error; and the weight of that term."""
_NOISE_CHANCE, _CONFIDENCE_CHANCE, _SECOND_CHANCE = 0.15, 0.15, 0.5
"""Probabilities of each hint."""
_FIXED = 0.5
"""Share of the hints about noise and confidence that replace the predictions, as without `robust`."""


class DrawnHints(NamedTuple):
    """Hints of E inputs with P points. noise, confidence (E, P): values that replace predictions; NaN for none."""

    features: Features
    noise: Tensor
    confidence: Tensor


def alone_loss(network: PointNetwork, x: Examples, random: torch.Generator) -> Tensor:
    """Cross-entropy of the first network."""
    x = mirrored(x, random)
    return F.binary_cross_entropy_with_logits(network(x.own, x.near, x.pair)[..., 0], x.correct)


def verdict_loss(network: PointNetwork, x: Examples, random: torch.Generator) -> Tensor:
    """Likelihoods of the error of the estimate, of correctness and of the noise, and the mean error itself."""
    x, hints = mirrored(x, random), drawn_hints(x, random)
    output = network(x.own, x.near, x.pair, hints.features)
    verdict = verdict_of(output, x.candidates, 1.0, hints.noise, hints.confidence)
    own = verdict_of(output, x.candidates, 1.0)
    error = torch.linalg.vector_norm(verdict.vectors - x.truth, dim=-1)
    loss: Tensor = (torch.log(verdict.error) + _tamed(error / verdict.error)).mean()
    loss = loss + _ERROR_WEIGHT * error.clamp(max=_LARGEST_ERROR).mean()
    loss = loss + 2 * F.binary_cross_entropy_with_logits(own.logit, x.correct)
    off = torch.linalg.vector_norm(x.candidates[..., 0, :] - x.truth, dim=-1)
    log_noise = torch.log(own.noise)
    likelihood = log_noise + 1.5 * torch.log1p((off / own.noise).square() / 2)  # Student's t, robust to what is wrong
    loss = loss + 0.5 * ((likelihood * x.correct).sum(-1) / x.correct.sum(-1).clamp(min=1)).mean()
    known = ~x.noise.isnan()
    if bool(known.any()):
        found = overall_log_noise(log_noise, own.logit)[known].clamp(min=math.log(_SMALLEST_NOISE))
        true = torch.log(x.noise[known].clamp(min=_SMALLEST_NOISE))
        loss = loss + F.smooth_l1_loss(found, true, beta=0.1, reduction="sum") / len(x)
    return loss


def mirrored(x: Examples, random: torch.Generator) -> Examples:
    """The examples as of images that are flipped at random, up and down and left and right."""
    sign = torch.ones(len(x), 1, 1, x.pair.shape[-1])
    sign[..., DIRECTION] = torch.randint(2, (len(x), 1, 1, 2), generator=random) * 2.0 - 1
    return replace(x, pair=x.pair * sign.to(x.pair))


def drawn_hints(x: Examples, random: torch.Generator) -> DrawnHints:
    """Hints for some of the inputs, as users have them: none, the noise, noisy probabilities, the second image."""
    E, P = x.own.shape[:2]
    device = x.own.device
    chance = torch.rand(E, 5, generator=random).to(device)
    empty = torch.full((E, P), torch.nan, device=device)

    tells_noise = (chance[:, 0] < _NOISE_CHANCE) & ~x.noise.isnan()
    noise = x.noise.nan_to_num()[:, None].expand(E, P)
    tells_confidence = chance[:, 1] < _CONFIDENCE_CHANCE
    blurred = 2 * (2 * x.correct - 1) + 2 * torch.randn(E, P, generator=random).to(device)
    confidence = torch.sigmoid(blurred)
    second = (chance[:, 2] < _SECOND_CHANCE).float()

    point = torch.zeros(E, P, HINTS, device=device)
    point[..., 0] = tells_noise[:, None] * log_ratio(noise, 1.0)
    point[..., 1] = tells_noise[:, None].float()
    point[..., 2] = tells_confidence[:, None] * torch.logit(confidence, 2.5e-3)
    point[..., 3] = tells_confidence[:, None].float()
    point[..., NOISE_HINT + CONFIDENCE_HINT :] = x.photo * second[:, None, None]
    pair = x.photo_pair * second[:, None, None, None]
    return DrawnHints(
        Features(point, pair),
        torch.where((tells_noise & (chance[:, 3] < _FIXED))[:, None], noise.clamp(min=1e-3), empty),
        torch.where((tells_confidence & (chance[:, 4] < _FIXED))[:, None], confidence, empty),
    )


def _tamed(ratio: Tensor) -> Tensor:
    large = ratio.clamp(min=_LARGEST_RATIO) / _LARGEST_RATIO
    return torch.where(ratio < _LARGEST_RATIO, ratio, _LARGEST_RATIO * (1 + torch.log(large)))
