"""The assessor: two small networks that judge given vectors from their features.

Both look at a point, its neighbours, and the mean and deviation over all points, so they see how noisy the whole input
is. The first knows the points alone and finds gross outliers; the cross-fit then runs without these. The second also
sees the cross-fit and the hints, and returns the verdict.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from flowinpaint.robust.features import (
    CROSS_FIT_PAIR,
    CROSS_FIT_POINT,
    HINTS,
    PAIR,
    PAIR_HINTS,
    POINT,
    Candidates,
    Features,
)

WEIGHTS = Path(__file__).parents[1] / "weights" / "assessor.safetensors"
OUTPUTS = len(Candidates._fields) + 2
_LOG_RANGE = -6.0, 8.0
"""Range of the logarithm of a predicted deviation, relative to the scale of the points."""
_FARTHEST = 5.0
"""Standardised features are clipped here."""
_LEAST_DOUBT = 1e-9
"""Known probabilities are kept this far from 0 and 1."""
_CHUNK = 8192
"""Points that are assessed together."""


class Verdict(NamedTuple):
    """The assessment of N given vectors; lengths are per two components (`points.norm`), in the field's unit.

    vectors (N, C): the best estimate of the true vector, a precision-weighted mean of the candidates. error (N,): its
    expected length of error. noise (N,): standard deviation of a component of the given vector if it is correct.
    logit (N,): of the probability that it is.
    """

    vectors: Tensor
    error: Tensor
    noise: Tensor
    logit: Tensor


class PointNetwork(nn.Module):
    """Map the features of points and their neighbours to outputs (N, outputs); any number of points and neighbours."""

    point_mean: Tensor
    point_scale: Tensor
    pair_mean: Tensor
    pair_scale: Tensor

    def __init__(
        self, point: int, pair: int, outputs: int, *, hints: int = 0, pair_hints: int = 0, width: int = 80
    ) -> None:
        super().__init__()
        for name, n in (("point", point), ("pair", pair)):
            self.register_buffer(f"{name}_mean", torch.zeros(n))
            self.register_buffer(f"{name}_scale", torch.ones(n))
        self.point = nn.Linear(point, width)
        self.hint = nn.Linear(hints, width, bias=False) if hints else None
        self.pair = nn.Linear(pair + pair_hints, width)
        self.sent, self.received = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.gather = nn.Linear(3 * width, width)
        self.whole = nn.Linear(2 * width, width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, outputs))

    def standardise(self, point: Tensor, pair: Tensor) -> None:
        """Set mean and deviation of the features from those of training data, (·, point) and (·, pair)."""
        for mean, scale, x in ((self.point_mean, self.point_scale, point), (self.pair_mean, self.pair_scale, pair)):
            mean.copy_(x.mean(0))
            scale.copy_(x.std(0) + 1e-3)

    def forward(self, own: Tensor, near: Tensor, pair: Tensor, hints: Features | None = None) -> Tensor:
        """The outputs (…, N, ·) from own (…, N, point), near (…, N, k, point) and pair (…, N, k, pair)."""
        return self.decide(self.look(own, self.send(near), pair, hints))

    def send(self, x: Tensor) -> Tensor:
        """What points with features x (…, point) tell their neighbours, (…, width)."""
        sent: Tensor = self.sent(torch.relu(self._embed(x)))
        return sent

    def look(self, own: Tensor, sent: Tensor, pair: Tensor, hints: Features | None = None) -> Tensor:
        """What a point and its neighbours look like, (…, N, width); sent (…, N, k, width) by the neighbours."""
        here, pair = self._embed(own), ((pair - self.pair_mean) / self.pair_scale).clamp(-_FARTHEST, _FARTHEST)
        if hints is not None and self.hint is not None:
            here, pair = here + self.hint(hints.point), torch.cat([hints.pair, pair], -1)
        here = torch.relu(here)
        message = torch.relu(self.pair(pair) + sent + self.received(here)[..., None, :])
        return torch.relu(self.gather(torch.cat([here, message.mean(-2), message.amax(-2)], -1)))

    def _embed(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.point(((x - self.point_mean) / self.point_scale).clamp(-_FARTHEST, _FARTHEST))
        return embedded

    def decide(self, z: Tensor) -> Tensor:
        """The outputs from `look` at all points."""
        whole = torch.relu(self.whole(torch.cat([z.mean(-2, keepdim=True), z.std(-2, keepdim=True)], -1)))
        output: Tensor = self.head(torch.cat([z, whole.expand_as(z)], -1))
        return output


class Assessor(nn.Module):
    """The two networks."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = PointNetwork(POINT, PAIR, 1, width=40)
        self.verdict = PointNetwork(CROSS_FIT_POINT, CROSS_FIT_PAIR, OUTPUTS, hints=HINTS, pair_hints=PAIR_HINTS)

    def first_logit(self, features: Features, near: Tensor) -> Tensor:
        """Logit (N,) of the probability that a vector is correct, from the points alone."""
        return _chunked(self.alone, features, near)[:, 0]

    def judge(
        self,
        features: Features,
        hints: Features,
        candidates: Candidates,
        near: Tensor,
        scale: float,
        noise: Tensor | None = None,
        confidence: Tensor | None = None,
    ) -> Verdict:
        """The verdict from all features; near (N, k): indices of the neighbours.

        noise, confidence (N,): known deviations and probabilities, which replace the predicted ones.
        """
        output = _chunked(self.verdict, features, near, hints)
        return verdict_of(output, torch.stack(candidates, 1), scale, noise, confidence)


def verdict_of(
    output: Tensor,
    candidates: Tensor,
    scale: float,
    noise: Tensor | None = None,
    confidence: Tensor | None = None,
) -> Verdict:
    """The verdict from the outputs (…, N, ·) of the second network, for candidates (…, N, M, C).

    The outputs are logarithms of the noise, of the errors of all candidates but the given vector, and of the error of
    the estimate; and a logit. noise, confidence (…, N): as in `judge`, NaN where not known.
    """
    logs = output[..., :-1].clamp(*_LOG_RANGE) + math.log(scale)
    log_noise, logit = logs[..., 0], output[..., -1]
    if noise is not None:
        log_noise = torch.where(noise.isnan(), log_noise, torch.log(noise.clamp(min=1e-6 * scale)))
    if confidence is not None:
        logit = torch.where(confidence.isnan(), logit, torch.logit(confidence, _LEAST_DOUBT))
    given = torch.nn.functional.logsigmoid(logit) - 2 * log_noise
    precision = torch.cat([given[..., None], -2 * logs[..., 1:-1]], -1)
    vectors = torch.einsum("...nm,...nmc->...nc", precision.softmax(-1), candidates)
    return Verdict(vectors, logs[..., -1].exp(), log_noise.exp(), logit)


def overall_log_noise(log_noise: Tensor, logit: Tensor) -> Tensor:
    """The logarithm of the noise of whole inputs (…,): the mean over points (…, N), weighted by their probabilities."""
    p = torch.sigmoid(logit)
    mean: Tensor = (p * log_noise).sum(-1) / p.sum(-1).clamp(min=1e-6)
    return mean


def overall_noise(verdict: Verdict) -> float:
    """The noise of the correct vectors of one input, a geometric mean."""
    return float(overall_log_noise(torch.log(verdict.noise), verdict.logit).exp())


def _chunked(network: PointNetwork, features: Features, near: Tensor, hints: Features | None = None) -> Tensor:
    """The outputs of a network for all points, a part of them at a time to save memory."""
    looks, sent = [], network.send(features.point)
    for i in torch.split(torch.arange(len(near)), _CHUNK):
        part = None if hints is None else Features(hints.point[i], hints.pair[i])
        looks.append(network.look(features.point[i], sent[near[i]], features.pair[i], part))
    return network.decide(torch.cat(looks))


@lru_cache(maxsize=1)
def shipped_assessor() -> Assessor:
    """The assessor whose weights are part of the package."""
    from flowinpaint.networks.weights import check_shipped

    check_shipped(WEIGHTS)
    assessor = Assessor()
    assessor.load_state_dict(load_file(WEIGHTS))
    return assessor.eval()
