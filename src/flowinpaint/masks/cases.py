"""Cases of an evaluation: masks of a density, or patterns with fixed numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from flowinpaint.errors import InputError
from flowinpaint.masks.arrays import Mask, grid_mask, lidar_mask, random_mask, rectangle_hole_mask

Pattern = Literal["lidar", "holes", "grid", "single"]
Case = float | Pattern
"""A density in (0, 1] of random pixels, or the name of a pattern."""
Size = tuple[int, int]

_LEAST_HOLE, _LARGEST_HOLE = 0.25, 0.5
"""Sides of the holes as fractions of the frame's shorter side."""
_FEWEST = 1e-9
"""A density of less than one pixel in any image, for which one is drawn."""


def _holes(size: Size, seed: int, valid: Mask) -> Mask:
    least, largest = (max(1.0, share * min(size)) for share in (_LEAST_HOLE, _LARGEST_HOLE))
    return rectangle_hole_mask(size, 3, least, largest, density=0.1, seed=seed, valid=valid)


PATTERNS: dict[Pattern, tuple[Callable[..., Mask], float]] = {
    "lidar": (partial(lidar_mask, lines=64, spacing=2.0, horizon=0.35, lost=0.1, gaps=0.1, focal=0.8), 0.06),
    "holes": (_holes, 0.08),
    "grid": (partial(grid_mask, spacing=16), 1 / 256),
    "single": (partial(random_mask, density=_FEWEST), 2.5e-6),
}
"""A function of size, seed= and valid= that draws a pattern, and the pattern's density in about 400 x 1000 pixels."""


def drawn_mask(case: Case, size: Size, seed: int, valid: Mask) -> Mask:
    """Draw the mask of a case; size, seed and valid pixels determine it."""
    draw = PATTERNS[case][0] if isinstance(case, str) else partial(random_mask, density=case)
    return draw(size, seed=seed, valid=valid)


def check_patterns(names: list[str], argument: str = "patterns") -> list[Pattern]:
    """The patterns of these names, each once, in the order of PATTERNS; InputError for an unknown name."""
    if unknown := [name for name in names if name not in PATTERNS]:
        raise InputError(f"{argument} must be among {', '.join(PATTERNS)}, got {unknown[0]!r}")
    return [pattern for pattern in PATTERNS if pattern in names]


def case_text(case: Case) -> str:
    """The case as text: "5 %" or "lidar"."""
    return case if isinstance(case, str) else f"{100 * case:g} %"


def case_label(case: Case) -> str:
    """The case in a file name: the percentage as in mask files (01, 05, 10, 0.5), or the pattern."""
    if isinstance(case, str):
        return case
    percent = f"{100 * case:.6g}"
    return percent if "." in percent else percent.zfill(2)


def case_order(case: Case) -> tuple[int, float]:
    """Sort key of cases: increasing densities, then the patterns."""
    return (1, float(list(PATTERNS).index(case))) if isinstance(case, str) else (0, case)


def nominal_share(case: Case) -> float:
    """The density by which to look up tuned parameters."""
    return PATTERNS[case][1] if isinstance(case, str) else case
