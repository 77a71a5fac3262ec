"""Imperfect inputs of an evaluation: vectors computed from two images, and the truth with noise or wrong vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.data.matchers import MATCHERS
from flowinpaint.masks.arrays import Mask
from flowinpaint.masks.cases import Case
from flowinpaint.opencv import cv2
from flowinpaint.viz.colours import as_rgb

Field = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Damage:
    """What a corrupted input does to the given vectors.

    noise: standard deviation in px of the Gaussian noise of every component. wrong: the share of vectors that are
    displaced; each component moves by a uniformly random length up to `reach` px in either direction.
    """

    noise: float = 0.0
    wrong: float = 0.0
    reach: float = 0.0


DAMAGES: dict[Case, Damage] = {
    "noise": Damage(noise=0.5),
    "outliers": Damage(wrong=0.1, reach=10.0),
    "gross": Damage(wrong=0.2, reach=40.0),
}
"""The corrupted inputs. Their densities are those of `masks.cases.INPUTS`."""


def corrupted(damage: Damage, truth: Field, mask: Mask, seed: int) -> Field:
    """The truth (H, W, C) at the pixels of a mask (H, W) with damage drawn from the seed, NaN elsewhere."""
    rng = np.random.default_rng(seed)
    vectors = truth[mask].astype(np.float64)
    vectors += damage.noise * rng.standard_normal(vectors.shape)
    moved = rng.choice(len(vectors), round(damage.wrong * len(vectors)), replace=False)
    vectors[moved] += rng.uniform(-damage.reach, damage.reach, (len(moved), truth.shape[2]))
    field = np.full(truth.shape, np.nan, np.float32)
    field[mask] = vectors
    return field


def matched(name: Case, image: npt.NDArray[Any], second: npt.NDArray[Any]) -> Field:
    """The vectors (H, W, 2) from an image to a second one that a matcher computes, NaN where it has none."""
    first, other = (cv2.cvtColor(as_rgb(x), cv2.COLOR_RGB2GRAY).astype(np.uint8, copy=False) for x in (image, second))
    return MATCHERS[name](first, other)
