"""`robust_fill`: fill a field from vectors that may be noisy or wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.pyramid import pull
from flowinpaint.methods.method import Fill
from flowinpaint.progress import Reporter
from flowinpaint.result import Progress, ProgressCallback, Solution
from flowinpaint.robust.assessor import Assessor, Verdict, overall_noise, shipped_assessor
from flowinpaint.robust.cross_fit import coarse_size
from flowinpaint.robust.estimate import FEWEST, FILLS, Observation, observe
from flowinpaint.robust.expected_error import expected_error
from flowinpaint.robust.features import Features, hint_features
from flowinpaint.robust.hints import Hints
from flowinpaint.robust.points import Points, norm, points_of
from flowinpaint.robust.refinement import refined
from flowinpaint.robust.trend import ramps

EXACT_NOISE = 0.2
"""Vectors are kept exactly, as far as they are correct, if their noise is below this share of their scale."""
WORSE, HARDLY_WRONG = 1.1, 0.02
"""So are they if their estimates are expected to be worse, with errors above this multiple of those of the vectors, and
less than this share of them is probably wrong: then there is nothing to gain."""
ROUGH_NOISE, ROUGH_WORSE, ROUGH_WRONG, SURELY_WRONG = 0.5, 1.4, 0.01, 0.05
"""And those of a rough but measured field: noise below this share of the scale, estimates that are worse by this
multiple, and less than this share of vectors with a probability below the last number."""
LEAST_EXACT, LEAST_NOISY = (0.5, 0.1), 0.5
"""A vector with a lower probability than this is left out: if the vectors are exact, and if they are noisy.

If they are exact, for a method without and with weights. The networks spread a wrong vector less than the explicit
methods, and need the vectors next to motion edges, of which many have a low probability.
"""
WEIGHT = 100.0
"""Weight k of a vector if no other vector shares its error, in units of the smoothness term."""
RAMP_SPACINGS = 2.0
"""The result has ramps only farther from all vectors than this multiple of their spacing. The candidates of the
cross-fit have them from nearer on: the assessor can reject those."""
TINY, HUGE = 1e-3, 1e6
"""Fields whose largest value is not between these are judged in another unit."""
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
    # The photometric comparison needs vectors in px.
    unit = 1.0 if hints.second is not None else _unit_of(f, mask)
    if unit != 1:
        scaled = hints._replace(noise=None if hints.noise is None else hints.noise / unit)
        own = partial(_fill_in_unit, fill, unit)
        return _in_unit(robust_fill(own, image, f / unit, mask, scaled, seed, progress, soft, assessor), unit)
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
        return counted.finish(_unjudged(counted, image, f, mask, hints, device))
    counted.expect((f.shape[-2], f.shape[-1]), is_dense=int((mask > 0).sum()) > len(points))
    assessor = assessor or shipped_assessor()
    with torch.no_grad():
        seen, verdict = _judge(counted, image, points, hints, assessor, seed)
        noise = overall_noise(verdict)
        exact = _are_exact(verdict, noise / points.scale)
        if exact:
            solution, inliers = _from_exact(counted, image, f, mask, points, verdict, LEAST_EXACT[soft])
        else:
            kept = _kept(torch.sigmoid(verdict.logit), LEAST_NOISY)
            weight = points.on_grid(kept * (WEIGHT / seen.sharing)) if soft else None
            solution = counted(image, points.on_grid(kept[:, None] * verdict.vectors), points.on_grid(kept), weight)
            u = _with_ramps(solution.u.float(), points, verdict.vectors, kept * _trust(points, verdict))
            inliers, solution = _inliers(points, verdict, u, f, mask), replace(solution, u=u)
        error = expected_error(solution.expected_error, points, verdict, seen.candidates.sharp)
        if hints.second is not None and not exact:
            second = hints.second.cpu().float()
            solution = replace(solution, u=refined(solution.u, error, points, verdict, image, second))
        solution = replace(solution, u=solution.u.to(device), expected_error=error.to(device))
    return counted.finish(_told(RobustSolution(solution, inliers, noise), hints))


def _unit_of(f: Tensor, mask: Tensor) -> float:
    """The unit in which to judge a field: 1, but for tiny or huge fields a power of two near their largest value.

    Squares and floors of the features would underflow or overflow; and dividing by a power of two is exact.
    """
    largest = float(torch.where(mask > 0, f, 0).abs().max())
    # Not below the smallest normal number, whose inverse is finite.
    return 1.0 if largest == 0 or TINY < largest < HUGE else 2.0 ** max(-126, math.frexp(largest)[1] - 1)


def _fill_in_unit(fill: Fill, unit: float, image: Tensor, f: Tensor, mask: Tensor, **keywords: Any) -> Solution:
    """The fill of a field in units of `unit`, by a function that expects the caller's unit."""
    return _scaled(fill(image, f * unit, mask, **keywords), 1 / unit)


def _in_unit(found: RobustSolution, unit: float) -> RobustSolution:
    noise = None if found.noise is None else found.noise * unit
    return found._replace(solution=_scaled(found.solution, unit), noise=noise)


def _scaled(solution: Solution, factor: float) -> Solution:
    error = solution.expected_error
    return replace(solution, u=solution.u * factor, expected_error=None if error is None else error * factor)


def _told(found: RobustSolution, hints: Hints) -> RobustSolution:
    """Final probabilities are those of the caller, also at vectors of a dense field that are no points."""
    if hints.estimate or hints.confidence is None:
        return found
    return found._replace(inliers=torch.where(found.inliers.isnan(), torch.nan, hints.confidence.cpu().float()))


class _Counter:
    """A fill function on the CPU that reports the share of the whole computation, of which its fills are parts."""

    def __init__(self, fill: Fill, device: torch.device, progress: ProgressCallback | None) -> None:
        self.fill, self.device, self.done = fill, device, 0
        self.reporter = None if progress is None else Reporter(progress)
        self.pixels = [1]
        """Sizes of all fills, as far as they are known in advance."""

    def expect(self, size: tuple[int, int], is_dense: bool) -> None:
        """Fills of half this size, then one of the whole size; for a dense field possibly two."""
        halves = coarse_size(size)
        self.pixels = [halves[0] * halves[1]] * FILLS + [size[0] * size[1]] * (1 + is_dense)

    def __call__(self, image: Tensor, f: Tensor, mask: Tensor, weight: Tensor | None) -> Solution:
        keywords: dict[str, Any] = {} if weight is None else {"weight": weight.to(self.device)}
        if self.reporter is not None:
            keywords["progress"] = partial(self._report, self.reporter, self.done)
        self.done += 1
        found = self.fill(image.to(self.device), f.to(self.device), mask.to(self.device), **keywords)
        error = found.expected_error
        return replace(found, u=found.u.cpu(), expected_error=None if error is None else error.cpu())

    def _report(self, reporter: Reporter, done: int, state: Progress) -> None:
        part = (sum(self.pixels[:done]) + (state.share or 0) * self.pixels[done]) / sum(self.pixels)
        reporter(Progress(done + 1, len(self.pixels), state.iterations, share=part))

    def finish(self, found: RobustSolution) -> RobustSolution:
        """Report the end."""
        if self.reporter is not None:
            self.reporter.finish(found.solution.iterations, found.solution.residual)
        return found


def _judge(
    fill: Callable[..., Solution], image: Tensor, points: Points, hints: Hints, assessor: Assessor, seed: int
) -> tuple[Observation, Verdict]:
    """What is seen of the points, and the verdict on them."""
    second = None if hints.second is None else hints.second.cpu().float()
    noise, confidence = (
        None if x is None else points.at(x.cpu().float())[:, 0] for x in (hints.noise, hints.confidence)
    )
    seen = observe(fill, image, points, second, assessor, seed, confidence)
    known: tuple[Tensor | None, Tensor | None] = (None, None)
    if not hints.estimate:
        known = noise, torch.ones(len(points)) if confidence is None else confidence

    def judge(told: Features) -> Verdict:
        return assessor.judge(seen.features, told, seen.candidates, points.neighbours, points.scale, *known)

    if seen.photo is not None:  # exact vectors are better than what the second image can tell about them
        alone = judge(hint_features(points, noise, confidence))
        if _are_exact(alone, overall_noise(alone) / points.scale):
            return seen, alone
    return seen, judge(hint_features(points, noise, confidence, seen.photo))


def _from_exact(
    fill: Callable[..., Solution],
    image: Tensor,
    f: Tensor,
    mask: Tensor,
    points: Points,
    verdict: Verdict,
    least: float,
) -> tuple[Solution, Tensor]:
    """Fill from the given vectors themselves, without those whose probability is at most `least`; and the inliers."""
    of_points = _kept(torch.sigmoid(verdict.logit), least)
    kept = points.on_grid(of_points)
    solution = fill(image, f * kept, kept, None)
    inliers = _inliers(points, verdict, solution.u, f, mask)
    if int((mask > 0).sum()) > len(points):  # a dense field: keep the vectors between the points, too
        kept = mask * (inliers.nan_to_num() > least)
        solution = fill(image, f * kept, kept, None)
    u = _with_ramps(solution.u.float(), points, points.vectors, of_points * _trust(points, verdict))
    return replace(solution, u=torch.where(kept > 0, f, u)), inliers


def _are_exact(verdict: Verdict, noise: float) -> bool:
    """Whether vectors with this noise, relative to their scale, are better than their estimates."""
    if noise < EXACT_NOISE:
        return True
    p, correct = torch.sigmoid(verdict.logit), verdict.logit > 0
    if not bool(correct.any()):
        return False
    ratio = float((verdict.error / (math.sqrt(math.pi / 2) * verdict.noise))[correct].median())
    if ratio > WORSE and float((~correct).float().mean()) < HARDLY_WRONG:
        return True
    return ratio > ROUGH_WORSE and noise < ROUGH_NOISE and float((p < SURELY_WRONG).float().mean()) < ROUGH_WRONG


def _kept(p: Tensor, least: float) -> Tensor:
    """1 for the points (N,) to fill from, else 0; all of them if hardly one has this probability."""
    kept = (p > least).float()
    return kept if int(kept.sum()) >= FEWEST else torch.ones_like(kept)


def _with_ramps(u: Tensor, points: Points, vectors: Tensor, trust: Tensor) -> Tensor:
    found = ramps(points, vectors, trust, RAMP_SPACINGS)
    return u if found is None else u + found


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
    solution = replace(solution, u=u.to(device), expected_error=None if error is None else error.to(device))
    return RobustSolution(solution, torch.where(known, inliers, torch.nan), noise)


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
