"""Imperfect inputs on generated scenes: the vectors of real matchers, and exact vectors with simulated faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.data import matchers
from flowinpaint.opencv import cv2

Float = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]
Rng = np.random.Generator

CORRUPTED_PER_SCENE, CLEAN_PER_SCENE = 4, 2
_ONE_CHANNEL = 0.25
"""Share of the corrupted inputs that have one channel, like depth and disparity."""


@dataclass(frozen=True)
class SimulatedInput:
    """Given vectors (H, W, C), NaN where there are none, their truth (H, W, C), and what counts as correct.

    noise: standard deviation of the correct vectors in px; NaN for a matcher, where it is not known. Only a matcher's
    vectors lead to the second image: other inputs have the truth at another magnitude.
    """

    vectors: npt.NDArray[np.float32]
    truth: npt.NDArray[np.float32]
    noise: float

    @property
    def matched(self) -> bool:
        """Whether the vectors lead to the second image."""
        return bool(np.isnan(self.noise))

    def tolerance(self, errors: Float) -> float:
        """The largest error in px of a correct vector; errors: those of all given vectors."""
        if self.matched:  # a matcher's own accuracy, within limits
            return float(np.clip(4 * np.median(errors), 1, 3))
        return max(3.5 * self.noise, 1.0)


def simulated_inputs(first: Float, second: Float, flow: Float, rng: Rng) -> Iterator[SimulatedInput]:
    """Inputs for a pair of images (H, W, 3) in [0, 1] and their flow: matches, corrupted vectors and clean ones."""
    a, b = (cv2.cvtColor((255 * x).astype(np.uint8), cv2.COLOR_RGB2GRAY).astype(np.uint8) for x in (first, second))
    yield from (SimulatedInput(_some(vectors, rng), flow, np.nan) for vectors in _matched(a, b, rng))
    for _ in range(CORRUPTED_PER_SCENE):
        truth = _one_channel(flow, rng) if rng.random() < _ONE_CHANNEL else flow
        yield _corrupted(_as_measured(truth, rng), flow, rng)
    for _ in range(CLEAN_PER_SCENE):
        truth = _as_measured(_one_channel(flow, rng) if rng.random() < _ONE_CHANNEL else flow, rng)
        yield SimulatedInput(_at(_mask(flow.shape[:2], rng), truth), truth, 0.0)


def _matched(a: matchers.Grey, b: matchers.Grey, rng: Rng) -> Iterator[npt.NDArray[np.float32]]:
    """Vectors of SIFT, Lucas-Kanade, ORB and DIS with drawn settings, strict and loose ones."""
    yield matchers.sift(a, b, contrast=rng.choice([0.003, 0.01, 0.02]), ratio=rng.choice([0.7, 0.8, 0.8, 0.9, 1.0]))
    for _ in range(2):
        yield matchers.lucas_kanade(
            a,
            b,
            quality=rng.choice([0.001, 0.003, 0.01]),
            distance=int(rng.integers(3, 8)),
            window=int(rng.choice([11, 15, 21, 31])),
            levels=int(rng.integers(3, 6)),
            limit=rng.choice([0.5, 1, 1, 2, np.inf]),
        )
    if rng.random() < 0.5:
        yield matchers.orb(a, b, ratio=rng.choice([0.8, 0.9, 1.0]))
    yield matchers.dis(a, b, fast=rng.random() < 0.5, limit=rng.choice([0.5, 1, 1, 2, 5]))


def _some(vectors: npt.NDArray[np.float32], rng: Rng) -> npt.NDArray[np.float32]:
    """All vectors or, in a quarter of the cases, 3 to 50 % of them: fast motion leaves a matcher few."""
    if rng.random() < 0.75:
        return vectors
    lost = rng.random(vectors.shape[:2]) > np.exp(rng.uniform(np.log(0.03), np.log(0.5)))
    return np.where(lost[..., None], np.float32(np.nan), vectors)


def _at(mask: Mask, field: Float) -> npt.NDArray[np.float32]:
    return np.where(mask[..., None], field, np.nan).astype(np.float32)


def _mask(size: tuple[int, ...], rng: Rng) -> Mask:
    """Random pixels of 0.2 to 20 %, a grid, or scan lines without the sky."""
    H, W = size
    kind = rng.random()
    if kind < 0.7:
        return np.asarray(rng.random((H, W)) < np.exp(rng.uniform(np.log(0.002), np.log(0.2))))
    mask = np.zeros((H, W), bool)
    if kind < 0.8:
        step = rng.integers(3, 14)
        mask[rng.integers(step) :: step, rng.integers(step) :: step] = True
        return mask
    mask[int(H * rng.uniform(0, 0.4)) :: rng.integers(2, 7), :: rng.integers(1, 4)] = True
    return mask & (rng.random((H, W)) < 0.9)


def _as_measured(truth: Float, rng: Rng) -> npt.NDArray[np.float32]:
    """The truth at another magnitude and, in a third of the cases, as sensors measure it.

    Then its edges are not exactly those of the image, and its surfaces are slightly rough. Both are correct: without
    such examples the assessor rejects good vectors next to edges.
    """
    truth = np.asarray(truth * np.exp(rng.uniform(np.log(0.3), np.log(6))), np.float32)
    if rng.random() < 0.35:
        H, W = truth.shape[:2]
        rows, columns = np.indices((H, W), np.float32)
        shift = cv2.GaussianBlur(rng.standard_normal((H, W, 2)).astype(np.float32), (0, 0), rng.uniform(5, 30))
        shift = np.asarray(shift * (rng.uniform(0.5, 3) / np.std(shift)), np.float32)
        x, y = columns + shift[..., 0], rows + shift[..., 1]
        moved: Any = cv2.remap(truth.astype(np.float32), x, y, cv2.INTER_NEAREST)
        truth = moved.reshape(truth.shape)
        if rng.random() < 0.5:
            roughness = np.exp(rng.uniform(np.log(0.01), np.log(0.15)))
            truth = truth + roughness * rng.standard_normal(truth.shape)
    return truth.astype(np.float32)


def _corrupted(truth: Float, flow: Float, rng: Rng) -> SimulatedInput:
    """Vectors with noise of some kind and, in two of three inputs, wrong vectors of some kind."""
    field, mask = truth, _mask(truth.shape[:2], rng)
    past_edges, depth = rng.random(), truth.shape[2] == 1 and bool((truth > 0).all())
    if depth and past_edges < 0.5:
        field, mask = _seen_from_beside(truth, truth[..., 0], mask, rng)
    elif past_edges < 0.15:
        shift = tuple(rng.integers(-7, 8, 2))
        chosen = rng.random(mask.shape) < rng.uniform(0.02, 0.5)
        field = np.where(chosen[..., None], np.roll(truth, shift, (0, 1)), truth)
    elif past_edges < 0.3:
        field, mask = _seen_from_beside(truth, flow @ rng.standard_normal(2), mask, rng)
    noise = 0.0 if rng.random() < 0.35 else float(np.exp(rng.uniform(np.log(0.03), np.log(2.5))))
    field = field + noise * _noise(truth.shape, rng)
    if rng.random() < 0.65:
        field = _with_outliers(field, truth, rng)
    if rng.random() < 0.12:  # quantised matches
        step = float(rng.choice([0.25, 0.5, 1, 1, 2]))
        field = np.round(field / step) * step
        noise = max(noise, step / np.sqrt(12))
    return SimulatedInput(_at(mask, field), truth.astype(np.float32), noise)


def _one_channel(flow: Float, rng: Rng) -> Float:
    """A field (H, W, 1): a component of the flow, or the inverse depth (> 0) of a scene with its edges."""
    if rng.random() < 0.4:
        return flow[..., :1]
    nearness = flow @ rng.standard_normal(2)
    nearness = nearness - nearness.min()
    return np.asarray((nearness + rng.uniform(0.02, 0.5) * (nearness.max() + 1e-3))[..., None])


def _seen_from_beside(truth: Float, nearness: Float, mask: Mask, rng: Rng) -> tuple[Float, Mask]:
    """The vectors of a mask as another viewpoint sees them: moved by a parallax, so that some land past an edge.

    A laser scanner is not where the camera is. The parallax is proportional to the nearness (H, W).
    """
    parallax = nearness - np.median(nearness)
    parallax *= rng.uniform(2, 10) / (np.quantile(np.abs(parallax), 0.95) + 1e-6)
    direction = rng.uniform(0, np.pi)
    rows, columns = mask.nonzero()
    moved = np.clip(parallax[mask], -20, 20)
    to_rows = np.rint(rows + np.sin(direction) * moved).astype(int)
    to_columns = np.rint(columns + np.cos(direction) * moved).astype(int)
    inside = (to_rows >= 0) & (to_columns >= 0) & (to_rows < mask.shape[0]) & (to_columns < mask.shape[1])
    field, seen = truth.copy(), np.zeros_like(mask)
    field[to_rows[inside], to_columns[inside]] = truth[rows[inside], columns[inside]]
    seen[to_rows[inside], to_columns[inside]] = True
    return field, seen


def _noise(shape: tuple[int, ...], rng: Rng) -> Float:
    """Noise of deviation one: Gaussian, heavy-tailed, or correlated over some pixels."""
    kind = rng.random()
    if kind < 0.15:
        smooth = cv2.GaussianBlur(rng.standard_normal(shape), (0, 0), rng.uniform(3, 20)).reshape(shape)
        return np.asarray(smooth / smooth.std())
    return rng.standard_t(3, shape) / np.sqrt(3) if kind < 0.3 else rng.standard_normal(shape)


def _with_outliers(field: Float, truth: Float, rng: Rng) -> Float:
    """Replace a share of 0.3 to 40 % by wrong vectors: displaced, copied from elsewhere, in clusters, or random."""
    share = np.exp(rng.uniform(np.log(0.003), np.log(0.4)))
    reach = np.exp(rng.uniform(np.log(2), np.log(80)))
    size, C, kind = truth.shape[:2], truth.shape[2], rng.random()
    wrong = (rng.random(size) < share)[..., None]
    if kind < 0.5:
        return np.where(wrong, field + rng.uniform(-reach, reach, truth.shape), field)
    if kind < 0.65:
        return np.where(wrong, rng.permutation(truth.reshape(-1, C)).reshape(truth.shape), field)
    if kind < 0.8:
        blobs = cv2.GaussianBlur(rng.standard_normal(size), (0, 0), rng.uniform(3, 15))
        wrong = (blobs > np.quantile(blobs, 1 - min(share, 0.25)))[..., None]
        offset = cv2.GaussianBlur(rng.standard_normal(truth.shape), (0, 0), 20).reshape(truth.shape)
        offset = offset / offset.std() * reach / 2 + rng.uniform(-reach, reach, C) / 2
        return np.where(wrong, field + offset, field)
    return np.where(wrong, truth.mean((0, 1)) + rng.uniform(-reach, reach, truth.shape), field)
