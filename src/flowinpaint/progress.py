"""Shares of a computation for `progress=`: from 0 to 1, never decreasing, 1 at the end.

A method reports what it can; `reporting` adds the start and the end. `solver_share` and `level_share` estimate how far
an iteration has come, `Part` places one computation inside a longer one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from flowinpaint.result import Progress

if TYPE_CHECKING:
    from flowinpaint.result import ProgressCallback, Solution

Tell = Callable[[float], None]
"""Called with the finished share of a part of a computation, from 0 to 1."""


class Reporter:
    """A progress callback whose shares never decrease. It reports the start when it is made, and the end in `finish`.

    A method that reports no share keeps None there.
    """

    def __init__(self, callback: ProgressCallback) -> None:
        self._callback, self._last = callback, Progress(1, 1, 0, share=0.0)
        self._share = 0.0
        callback(self._last)

    def __call__(self, state: Progress) -> None:
        """Pass a state on."""
        if state.share is not None:
            self._share = min(1.0, max(self._share, state.share))
            state = replace(state, share=self._share)
        self._last = state
        self._callback(state)

    def finish(self, iterations: int, residual: float | None = None) -> None:
        """Report the share 1, unless the last state had it."""
        if self._last.share != 1:
            levels = self._last.levels
            self(Progress(levels, levels, iterations, residual, 1.0))


def reporting(fill: Callable[..., Solution]) -> Callable[..., Solution]:
    """A fill function whose `progress` is called at its start and its end in any case."""

    @wraps(fill)
    def fill_and_report(*tensors: Any, progress: ProgressCallback | None = None, **keywords: Any) -> Solution:
        if progress is None:
            return fill(*tensors, progress=None, **keywords)
        reporter = Reporter(progress)
        solution = fill(*tensors, progress=reporter, **keywords)
        reporter.finish(solution.iterations, solution.residual)
        return solution

    return fill_and_report


def part_of(tell: Tell, start: float, end: float) -> Tell:
    """The `Tell` of a part that begins at the share `start` of the whole and ends at `end`."""
    return lambda share: tell(start + share * (end - start))


def solver_share(residual: float, goal: float, first: float = 1.0) -> float:
    """How far a residual has fallen from the first one to its goal, on a logarithmic scale, from 0 to 1."""
    if not residual > goal:
        return 1.0
    if not first > residual:
        return 0.0
    return math.log(residual / first) / math.log(goal / first)


def level_share(level: int, levels: int, share: float) -> float:
    """The finished share of a pyramid: `share` of a level, 0 the coarsest, each costing four times the coarser one."""
    return float((4**level * (1 + 3 * share) - 1) / (4**levels - 1))
