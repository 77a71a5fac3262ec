"""Training examples: points of simulated inputs with their features, candidates and true vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.robust.assessor import Assessor
from flowinpaint.robust.cross_fit import FillField
from flowinpaint.robust.estimate import observe
from flowinpaint.robust.features import PHOTO_HINT, Candidates, Features, hint_features, point_features
from flowinpaint.robust.points import NEIGHBOURS, Points, local_affine, points_of
from flowinpaint.robust.training.second_image import second_image
from flowinpaint.robust.training.simulated_inputs import simulated_inputs

SIZE = (384, 512)
POINTS = 400
"""Points of an example, drawn from those of an input."""


@dataclass(frozen=True)
class Examples:
    """E inputs with P points each; lengths are relative to the scale of each input.

    own (E, P, ·), near (E, P, k, ·), pair (E, P, k, ·): features. photo (E, P, ·), photo_pair (E, P, k, ·): hints of
    the second image. candidates (E, P, ·, 2), truth (E, P, 2); one channel c is repeated, (c, c) / √2. correct (E, P):
    1 or 0. noise (E,): NaN where unknown. matched (E,) bool: whether the second image applies.
    """

    own: Tensor
    near: Tensor
    pair: Tensor
    photo: Tensor
    photo_pair: Tensor
    candidates: Tensor
    truth: Tensor
    correct: Tensor
    noise: Tensor
    matched: Tensor

    def __len__(self) -> int:
        return len(self.own)

    def at(self, chosen: Tensor) -> Examples:
        """Some of the inputs, in float32."""
        return Examples(*(getattr(self, f.name)[chosen].float() for f in fields(self)))

    def to(self, device: torch.device) -> Examples:
        """All inputs on a device."""
        return Examples(*(getattr(self, f.name).to(device) for f in fields(self)))


def join(parts: list[Examples]) -> Examples:
    """All inputs of several parts."""
    return Examples(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Examples)))


def examples_of_scene(
    generator: LayeredFlow, number: int, seed: int, fill: FillField | None, assessor: Assessor
) -> Iterator[Examples]:
    """The examples of the inputs of a scene; without a fill function only the features of the points alone."""
    batch = generator.scenes(torch.tensor([number]))
    image, flow = (x[0].permute(1, 2, 0).numpy() for x in (batch.image, batch.flow))
    rng = np.random.default_rng([seed, number])
    other = second_image(image, flow, rng)
    first, second = (torch.from_numpy(x).permute(2, 0, 1)[None].float() for x in (image, other))
    for given in simulated_inputs(image, other, flow, rng):
        known = np.isfinite(given.vectors[..., 0])
        if known.sum() <= NEIGHBOURS:
            continue
        f, truth = (torch.from_numpy(np.nan_to_num(x)).permute(2, 0, 1)[None] for x in (given.vectors, given.truth))
        points = points_of(first, f, torch.from_numpy(known)[None, None].float())
        true = points.at(truth)
        errors = torch.linalg.vector_norm(points.vectors - true, dim=-1)
        correct = errors <= max(given.tolerance(errors.numpy()), points.scale)  # neighbours differ by as much
        drawn = torch.from_numpy(rng.choice(len(points), POINTS, replace=len(points) < POINTS))
        photo = None
        if fill is None:
            features = point_features(points, *local_affine(points, torch.ones(len(points))))
            candidates = Candidates(*[points.vectors] * len(Candidates._fields))
        else:
            matched = second if given.matched else None
            seen = observe(fill, first, points, matched, assessor, number)
            features, candidates, photo = seen.features, seen.candidates, seen.photo
        yield _example(points, drawn, features, candidates, photo, true, correct, given.noise)


def _example(
    points: Points,
    drawn: Tensor,
    features: Features,
    candidates: Candidates,
    photo: Tensor | None,
    truth: Tensor,
    correct: Tensor,
    noise: float,
) -> Examples:
    hints = hint_features(points, photo=photo)
    near = points.neighbours[drawn]
    vectors = torch.stack([_pair(x[drawn]) for x in candidates], 1) / points.scale
    return Examples(
        own=features.point[drawn][None].half(),
        near=features.point[near][None].half(),
        pair=features.pair[drawn][None].half(),
        photo=hints.point[drawn][None, :, -PHOTO_HINT:].half(),
        photo_pair=hints.pair[drawn][None].half(),
        candidates=vectors[None],
        truth=_pair(truth[drawn])[None] / points.scale,
        correct=correct[drawn][None].float(),
        noise=torch.tensor([noise / points.scale]),
        matched=torch.tensor([photo is not None]),
    )


def _pair(x: Tensor) -> Tensor:
    """Vectors (N, C) as (N, 2) with the same `norm`."""
    return x if x.shape[1] == 2 else x.expand(-1, 2)
