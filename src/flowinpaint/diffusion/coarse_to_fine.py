"""The coarse-to-fine loop, the only one in the package: solve a level, refine, solve the next finer one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

LevelT = TypeVar("LevelT")


def coarse_to_fine(
    levels: Sequence[LevelT],
    start: Tensor,
    refine: Callable[[Tensor, LevelT], Tensor],
    solve: Callable[[int, LevelT, Tensor], Tensor],
) -> Tensor:
    """Solve every level in turn and return the finest field, (B, C, H, W).

    levels: coarse to fine. start (B, C, h, w): the initial field of the coarsest level. refine(u, level): the initial
    field of a level from the result u of the next coarser one. solve(k, level, u): the result of level k from u.
    """
    u = solve(0, levels[0], start)
    for k, level in enumerate(levels[1:], start=1):
        u = solve(k, level, refine(u, level))
    return u
