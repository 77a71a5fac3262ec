"""Cases of an evaluation: masks of a density, patterns with fixed numbers, and the names of imperfect inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeGuard, get_args

from flowinpaint.errors import InputError
from flowinpaint.masks.arrays import Mask, grid_mask, lidar_mask, random_mask, rectangle_hole_mask

Pattern = Literal["lidar", "holes", "grid", "single"]
Matcher = Literal["sift", "orb", "lk", "dis"]
"""An input that is computed from two images."""
Corruption = Literal["noise", "outliers", "gross"]
"""An input that is the truth, corrupted."""
Input = Matcher | Corruption | Literal["given"]
Case = float | Pattern | Input
"""A density in (0, 1] of random pixels, the name of a pattern, or the name of an input (`data.inputs`)."""
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

INPUTS: dict[Input, float] = {
    "sift": 0.005,
    "orb": 0.01,
    "lk": 0.01,
    "dis": 0.8,
    "noise": 0.05,
    "outliers": 0.05,
    "gross": 0.01,
    "given": 0.05,
}
"""The density of each input: exact for a corrupted one, a usual value for the others."""


def drawn_mask(case: Case, size: Size, seed: int, valid: Mask) -> Mask:
    """Draw the mask of a case; size, seed and valid pixels determine it."""
    pattern = next((draw for name, (draw, _) in PATTERNS.items() if name == case), None)
    draw = pattern or partial(random_mask, density=nominal_share(case))
    return draw(size, seed=seed, valid=valid)


def mask_case(case: Case) -> Case:
    """The case whose mask is used: for a corrupted input its density, for others the case itself."""
    return nominal_share(case) if case in get_args(Corruption) else case


def check_patterns(names: list[str], argument: str = "patterns") -> list[Pattern]:
    """The patterns of these names, each once, in the order of PATTERNS; InputError for an unknown name."""
    if unknown := [name for name in names if name not in PATTERNS]:
        raise InputError(f"{argument} must be among {', '.join(PATTERNS)}, got {unknown[0]!r}")
    return [pattern for pattern in PATTERNS if pattern in names]


def check_inputs(names: list[str], argument: str = "inputs") -> list[Input]:
    """The inputs of these names, each once, in the order of INPUTS; InputError for an unknown name."""
    if unknown := [name for name in names if name not in INPUTS]:
        raise InputError(f"{argument} must be among {', '.join(INPUTS)}, got {unknown[0]!r}")
    return [name for name in INPUTS if name in names]


def why_left_out(case: Case) -> str:
    """The reason, as a clause, why frames have no vectors for a case."""
    if case in get_args(Matcher):
        return "they lack image2.png or a truth of two channels"
    return "they lack given.flo, .png, .pfm or .npy" if case == "given" else "fewer of their pixels are valid"


def is_input(case: Case) -> TypeGuard[Input]:
    """Whether the case is the name of an input."""
    return case in INPUTS


def case_text(case: Case) -> str:
    """The case as text: "5 %", "lidar" or "sift"."""
    return case if isinstance(case, str) else f"{100 * case:g} %"


def case_label(case: Case) -> str:
    """The case in a file name: the percentage as in mask files (01, 05, 10, 0.5), or the name."""
    if isinstance(case, str):
        return case
    percent = f"{100 * case:.6g}"
    return percent if "." in percent else percent.zfill(2)


def case_order(case: Case) -> tuple[int, float]:
    """Sort key of cases: increasing densities, then the patterns, then the inputs."""
    return (1, float([*PATTERNS, *INPUTS].index(case))) if isinstance(case, str) else (0, case)


def nominal_share(case: Case) -> float:
    """The density by which to look up tuned parameters."""
    if not isinstance(case, str):
        return case
    return INPUTS[case] if is_input(case) else next(share for name, (_, share) in PATTERNS.items() if name == case)
