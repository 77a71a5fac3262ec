"""The paper's grid search for the parameters of `eed`: contrast λ and discretisation α, by density."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.checks import check_device
from flowinpaint.data.folder import Sample, find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_cases
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES
from flowinpaint.evaluation.records import Record, open_store
from flowinpaint.evaluation.runner import Job, Step, complete, frame_key
from flowinpaint.io import StrPath

LAMBDA_RANGE = (1e-6, 1e-2)
ALPHA_RANGE = (0.001, 0.5)
LAMBDAS, ALPHAS = 9, 14
"""The number of values, evenly spaced in log λ and in α. Ranges and numbers are the paper's."""


@dataclass(frozen=True)
class ParameterGrid:
    """Mean EPE (L, A) over the samples for each λ and α at one density; NaN where a sample failed."""

    density: float
    samples: int
    lambdas: tuple[float, ...]
    alphas: tuple[float, ...]
    epe: npt.NDArray[np.float64]

    @property
    def best(self) -> tuple[int, int]:
        """Row and column of the smallest mean."""
        row, column = np.unravel_index(int(np.nanargmin(self.epe)), self.epe.shape)
        return int(row), int(column)

    @property
    def parameters(self) -> dict[str, float | str]:
        """The best λ and α."""
        row, column = self.best
        return {"lam": self.lambdas[row], "alpha": self.alphas[column]}

    @property
    def border(self) -> list[str]:
        """The parameters whose best value is at an end of their range, so that the optimum may be outside."""
        places = zip(("lam", "alpha"), self.best, self.epe.shape, strict=True)
        return [name for name, place, count in places if place in (0, count - 1)]


def tune_eed(
    root: StrPath,
    densities: Sequence[float] = PAPER_DENSITIES,
    *,
    samples: int = 128,
    crop: int = 384,
    lambdas: int = LAMBDAS,
    alphas: int = ALPHAS,
    tolerance: float = 1e-5,
    seed: int = 0,
    device: str | torch.device = "auto",
    jobs: int = 1,
    records: StrPath | None = None,
    progress: Callable[[Step], None] | None = None,
) -> list[ParameterGrid]:
    """Compute the mean EPE of `eed` on every point of the grid, at every density.

    samples: the maximum number of frames, drawn at random below root; the seed selects them, and the masks of frames
    without mask files. crop: the side of the central part that is used, 0 for all. records: a file for finished runs,
    so that a second call continues from there.
    """
    check_cases(densities)
    if crop < 0:
        raise InputError(f"crop must be a side in pixels, or 0 for no crop, got {crop}")
    for name, value in {"jobs": jobs, "samples": samples, "lambdas": lambdas, "alphas": alphas}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be a relative residual between 0 and 1, got {tolerance}")
    chosen = str(check_device(device))
    frames = draw_samples(find_samples(root), samples, seed)
    lams, alps = grid_values(lambdas, alphas)
    shares = list(dict.fromkeys(densities))

    plan = []
    for density in shares:
        for sample in frames:
            key = replace(frame_key(sample, density, seed, chosen, crop), method="eed")
            for lam in lams:  # a job per λ, so that an interruption costs minutes at most
                points = [{"lam": lam, "alpha": alpha, "tolerance": tolerance} for alpha in alps]
                plan.append(Job(sample, tuple(replace(key, parameters=dict(point)) for point in points)))
    with open_store(records) as store:
        found = complete(store, plan, jobs, progress)
    return [_grid([r for r in found if r.key.density == density], density, lams, alps) for density in shares]


def grid_values(lambdas: int = LAMBDAS, alphas: int = ALPHAS) -> tuple[list[float], list[float]]:
    """The values of λ and of α, to six digits."""
    lams, alps = np.geomspace(*LAMBDA_RANGE, lambdas), np.linspace(*ALPHA_RANGE, alphas)
    return [float(f"{lam:.6g}") for lam in lams], [float(f"{alpha:.6g}") for alpha in alps]


def draw_samples(samples: Sequence[Sample], count: int, seed: int) -> list[Sample]:
    """Up to `count` random samples, without repeats and in their order."""
    count = min(count, len(samples))
    places = np.random.default_rng(seed).choice(len(samples), size=count, replace=False)
    return [samples[place] for place in sorted(places)]


def grids_as_csv(grids: Sequence[ParameterGrid]) -> str:
    """One line per density, λ and α, below a heading."""
    lines = [
        f"{grid.density},{lam},{alpha},{grid.epe[i, j]},{grid.samples}"
        for grid in grids
        for i, lam in enumerate(grid.lambdas)
        for j, alpha in enumerate(grid.alphas)
    ]
    return "\n".join(["density,lam,alpha,epe,samples", *lines]) + "\n"


def _grid(records: Sequence[Record], density: float, lams: list[float], alphas: list[float]) -> ParameterGrid:
    """The grid of a density from its records, which are ordered by sample, then λ, then α."""
    errors = [math.nan if record.measured is None else record.measured.epe for record in records]
    by_sample = np.reshape(errors, (-1, len(lams), len(alphas)))
    # Contiguous, so that numpy sums pairwise: `mean(0)` rounds differently and would change stored results.
    epe = np.ascontiguousarray(np.moveaxis(by_sample, 0, -1)).mean(-1)
    if np.isnan(epe).all():
        reason = next(record.error for record in records if record.error)
        raise InputError(
            f"root must have samples that eed can fill at {100 * density:g} %, got errors at all points of the "
            f"grid: {reason}"
        )
    return ParameterGrid(density, len(by_sample), tuple(lams), tuple(alphas), epe)
