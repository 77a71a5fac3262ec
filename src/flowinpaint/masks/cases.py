"""What an evaluation gives of a frame: a share of its pixels, or a pattern of them whose numbers are fixed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from flowinpaint.errors import InputError
from flowinpaint.masks.arrays import Mask, grid_mask, lidar_mask, random_mask, rectangle_hole_mask

Pattern = Literal["lidar", "holes", "grid", "single"]
Case = float | Pattern
"""A share of the pixels in (0, 1], spread at random, or the name of a pattern."""
Size = tuple[int, int]

_LEAST_HOLE, _LARGEST_HOLE = 0.25, 0.5
"""Sides of the holes over the shorter side of the frame."""
_FEWEST = 1e-9
"""A share of the pixels that is less than one of them in any picture; one is drawn then."""


class PatternRule(NamedTuple):
    """How a pattern is drawn from size, seed and valid pixels; its share of a frame of some 400 x 1000 valid pixels.

    The share chooses among parameters that were tuned for densities, and nothing else.
    """

    draw: Callable[[Size, int, Mask], Mask]
    share: float


def _lidar(size: Size, seed: int, valid: Mask) -> Mask:
    return lidar_mask(size, 64, spacing=2.0, horizon=0.35, lost=0.1, gaps=0.1, focal=0.8, seed=seed, valid=valid)


def _holes(size: Size, seed: int, valid: Mask) -> Mask:
    least, largest = (max(1.0, share * min(size)) for share in (_LEAST_HOLE, _LARGEST_HOLE))
    return rectangle_hole_mask(size, 3, least, largest, density=0.1, seed=seed, valid=valid)


def _grid(size: Size, seed: int, valid: Mask) -> Mask:
    return grid_mask(size, 16, seed=seed, valid=valid)


def _single(size: Size, seed: int, valid: Mask) -> Mask:
    return random_mask(size, _FEWEST, seed, valid)


PATTERNS: dict[Pattern, PatternRule] = {
    "lidar": PatternRule(_lidar, 0.06),
    "holes": PatternRule(_holes, 0.08),
    "grid": PatternRule(_grid, 1 / 256),
    "single": PatternRule(_single, 2.5e-6),
}


def drawn_mask(case: Case, size: Size, seed: int, valid: Mask) -> Mask:
    """The mask of a case that size, seed and valid pixels decide."""
    return PATTERNS[case].draw(size, seed, valid) if isinstance(case, str) else random_mask(size, case, seed, valid)


def check_patterns(names: list[str], argument: str = "patterns") -> list[Pattern]:
    """The patterns of these names, each once and in the order of PATTERNS; InputError for any other name."""
    if unknown := [name for name in names if name not in PATTERNS]:
        raise InputError(f"{argument}: {unknown[0]!r} was given; {', '.join(PATTERNS)} are taken.")
    return [pattern for pattern in PATTERNS if pattern in names]


def case_text(case: Case) -> str:
    """The case in words: "5 %" or "lidar"."""
    return case if isinstance(case, str) else f"{100 * case:g} %"


def case_label(case: Case) -> str:
    """The case in a file's name: 01, 05, 10, 0.5 per cent as the mask files have it, or the pattern."""
    if isinstance(case, str):
        return case
    percent = f"{100 * case:.6g}"
    return percent if "." in percent else percent.zfill(2)


def case_order(case: Case) -> tuple[int, float]:
    """What sorts cases: densities first, from few to many, then the patterns."""
    return (1, float(list(PATTERNS).index(case))) if isinstance(case, str) else (0, case)


def nominal_share(case: Case) -> float:
    """A share of the pixels to look tuned parameters up by."""
    return PATTERNS[case].share if isinstance(case, str) else case
