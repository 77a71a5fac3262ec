"""`robust_fill`: fill a field from vectors that may be noisy or wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.methods.method import Fill
from flowinpaint.result import Progress, ProgressCallback, Solution
from flowinpaint.robust.assessor import Assessor, Verdict, overall_log_noise, shipped_assessor
from flowinpaint.robust.estimate import FEWEST, FILLS, observe
from flowinpaint.robust.features import hint_features
from flowinpaint.robust.hints import Hints
from flowinpaint.robust.points import Points, norm, points_of
from flowinpaint.robust.trend import continue_ramps

EXACT_NOISE = 0.15
"""Vectors whose estimated noise is below this share of their scale are kept exactly, as far as they are correct."""
LEAST_EXACT, LEAST_NOISY = (0.5, 0.03), 0.1
"""A vector with a lower probability than this is left out: if the vectors are exact, and if they are noisy.

If they are exact, for a method without and with weights. The networks spread a wrong vector less than the explicit
methods, and need the vectors next to motion edges, of which many have a low probability.
"""
WEIGHT = 30.0
"""Weight k of a vector if no other vector shares its error, in units of the smoothness term."""
_LARGEST_CHANGE = 30.0
"""Largest change of log-odds between neighbours in a dense field."""


class RobustSolution(NamedTuple):
    """A solution; inliers (1, 1, H, W): probability that each given vector is correct, NaN where none is given.

    noise: standard deviation of the correct vectors in the field's unit; None if there are too few to tell.
    """

    solution: Solution
    inliers: Tensor
    noise: float | None


def robust_fill(
    fill: Fill,
    image: Tensor,
    f: Tensor,
    mask: Tensor,
    hints: Hints,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    soft: bool = False,
    assessor: Assessor | None = None,
) -> RobustSolution:
    """Judge the given vectors, and fill from the best estimate of each; tensors as for `Fill`, on any device.

    seed: of the random folds of the cross-fit. soft: fill from noisy vectors with weights, which only suit a method
    whose smoothness term has the unit 1, as the networks have; those of laplace-beltrami differ by up to 1e6.
    """
    if hints.confidence is not None:
        possible = mask * (hints.confidence.to(mask.device) > 0)
        if not torch.equal(possible, mask):
            known = hints._replace(confidence=torch.where(possible.cpu() > 0, hints.confidence, 1))
            found = robust_fill(fill, image, f * possible, possible, known, seed, progress, soft, assessor)
            return found._replace(inliers=torch.where((mask > possible).cpu(), 0, found.inliers))
    device, counted = f.device, _Counter(fill, f.device, progress)
    image, f, mask = image.cpu().float(), f.cpu().float(), mask.cpu()
    points = points_of(image, f, mask) if int((mask > 0).sum()) > 1 else None
    if points is None or len(points) < FEWEST:
        return _unjudged(counted, image, f, mask, hints, device)
    assessor = assessor or shipped_assessor()
    with torch.no_grad():
        verdict, sharing = _judge(counted, image, points, hints, assessor, seed)
        p = torch.sigmoid(verdict.logit)
        noise = float(overall_log_noise(torch.log(verdict.noise), verdict.logit).exp())
        if noise < EXACT_NOISE * points.scale:
            least = LEAST_EXACT[soft]
            return _told(_from_exact(counted, image, f, mask, points, verdict, noise, least, device), hints)
        kept = _kept(p, LEAST_NOISY)
        weight = points.on_grid(kept * (WEIGHT / sharing)) if soft else None
        solution = counted(image, points.on_grid(kept[:, None] * verdict.vectors), points.on_grid(kept), weight)
        u = continue_ramps(solution.u.float(), points, verdict.vectors, _trust(points, verdict))
        error = _with_error_of_points(solution.expected_error, points, verdict)
        inliers = _inliers(points, verdict, u, f, mask)
    return _told(RobustSolution(_on(device, replace(solution, u=u, expected_error=error)), inliers, noise), hints)


def _told(found: RobustSolution, hints: Hints) -> RobustSolution:
    """Final probabilities are those of the caller, also at vectors of a dense field that are no points."""
    if hints.estimate or hints.confidence is None:
        return found
    return found._replace(inliers=torch.where(found.inliers.isnan(), torch.nan, hints.confidence.cpu().float()))


class _Counter:
    """A fill function on the CPU that reports the share of finished fills."""

    def __init__(self, fill: Fill, device: torch.device, progress: ProgressCallback | None) -> None:
        self.fill, self.device, self.progress, self.done = fill, device, progress, 0

    def __call__(self, image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None) -> Solution:
        if self.progress is not None:
            self.progress(Progress(self.done + 1, FILLS + 1, 0, share=self.done / (FILLS + 1)))
        self.done += 1
        keywords = {} if weight is None else {"weight": weight.to(self.device)}
        found = self.fill(image.to(self.device), f.to(self.device), mask.to(self.device), **keywords)
        error = found.expected_error
        return replace(found, u=found.u.cpu(), expected_error=None if error is None else error.cpu())


def _judge(
    fill: Callable[..., Solution], image: Tensor, points: Points, hints: Hints, assessor: Assessor, seed: int
) -> tuple[Verdict, float]:
    """The verdict on the points, and the number of points that share one error."""
    second = None if hints.second is None else hints.second.cpu().float()
    noise, confidence = (
        None if x is None else points.at(x.cpu().float())[:, 0] for x in (hints.noise, hints.confidence)
    )
    seen = observe(fill, image, points, second, assessor, seed, confidence)
    told = hint_features(points, noise, confidence, seen.photo)
    known: tuple[Tensor | None, Tensor | None] = (None, None)
    if not hints.estimate:
        known = noise, torch.ones(len(points)) if confidence is None else confidence
    verdict = assessor.judge(seen.features, told, seen.candidates, points.neighbours, points.scale, *known)
    return verdict, seen.sharing


def _from_exact(
    fill: Callable[..., Solution],
    image: Tensor,
    f: Tensor,
    mask: Tensor,
    points: Points,
    verdict: Verdict,
    noise: float,
    least: float,
    device: torch.device,
) -> RobustSolution:
    """Fill from the given vectors themselves, without those whose probability is at most `least`."""
    kept = points.on_grid(_kept(torch.sigmoid(verdict.logit), least))
    solution = fill(image, f * kept, kept, None)
    inliers = _inliers(points, verdict, solution.u, f, mask)
    if int((mask > 0).sum()) > len(points):  # a dense field: keep the vectors between the points, too
        kept = mask * (inliers.nan_to_num() > least)
        solution = fill(image, f * kept, kept, None)
    u = continue_ramps(solution.u.float(), points, points.vectors, _trust(points, verdict))
    u = torch.where(kept > 0, f, u)
    error = _with_error_of_points(solution.expected_error, points, verdict)
    return RobustSolution(_on(device, replace(solution, u=u, expected_error=error)), inliers, noise)


def _kept(p: Tensor, least: float) -> Tensor:
    """1 for the points (N,) to fill from, else 0; all of them if hardly one has this probability."""
    kept = (p > least).float()
    return kept if int(kept.sum()) >= FEWEST else torch.ones_like(kept)


def _trust(points: Points, verdict: Verdict) -> Tensor:
    """The weight (N,) of each point in the trend."""
    return torch.sigmoid(verdict.logit) / (1 + (verdict.error / points.scale) ** 2)


def _unjudged(
    fill: Callable[..., Solution], image: Tensor, f: Tensor, mask: Tensor, hints: Hints, device: torch.device
) -> RobustSolution:
    """Fill from too few vectors to judge: each is as good as the caller says."""
    solution = fill(image, f * mask, mask, None)
    u = torch.where(mask > 0, f, solution.u.float())
    known = mask > 0
    inliers = torch.ones_like(mask) if hints.confidence is None else hints.confidence.cpu().float()
    error, noise = solution.expected_error, None
    if hints.noise is not None:
        sigma = hints.noise.cpu().float()
        noise = float(sigma[known].mean())
        if error is not None:
            error = torch.hypot(error, pull(data_term(sigma * math.sqrt(f.shape[1]), mask)))
    solution = _on(device, replace(solution, u=u, expected_error=error))
    return RobustSolution(solution, torch.where(known, inliers, torch.nan), noise)


def _with_error_of_points(error: Tensor | None, points: Points, verdict: Verdict) -> Tensor | None:
    """The expected error (1, 1, H, W) of a fill from estimated vectors: both errors, as independent ones."""
    if error is None:
        return None
    own = points.on_grid(verdict.error * math.sqrt(points.vectors.shape[1] / 2))
    return torch.hypot(error.float(), pull(data_term(own, points.on_grid(torch.ones(len(points))))))


def _inliers(points: Points, verdict: Verdict, u: Tensor, f: Tensor, mask: Tensor) -> Tensor:
    """Probabilities (1, 1, H, W) that given vectors are correct, NaN where none is given.

    A vector that is not one of the points, because the field is dense, has the odds of the nearest point, changed by
    how much more or less it differs from the filled field u.
    """
    given = mask[0, 0] > 0
    logit = torch.full(given.shape, torch.nan)
    logit[points.mask] = verdict.logit
    others = given & ~points.mask
    if bool(others.any()):
        index = distance_transform_edt(~points.mask.numpy(), return_distances=False, return_indices=True)
        rows, columns = (torch.from_numpy(i)[others] for i in index)
        off = norm((u.float() - f)[0].permute(1, 2, 0)).square()
        variance = points.on_grid(2 * verdict.noise**2 + verdict.error**2)[0, 0]
        change = (off[others] - off[rows, columns]) / (2 * variance[rows, columns].clamp(min=1e-12))
        logit[others] = logit[rows, columns] - change.clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)
    return torch.sigmoid(logit)[None, None]


def _on(device: torch.device, solution: Solution) -> Solution:
    error = solution.expected_error
    return replace(solution, u=solution.u.to(device), expected_error=None if error is None else error.to(device))
