"""What a number of a configuration may be, and the sentence that says so."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from enum import Enum

from flowinpaint.errors import InputError


class Limit(Enum):
    """A rule for one number; the value is how a message puts it."""

    ANY = "of any sign"
    WEIGHT = "of at least 0"
    SHARE = "above 0 and up to 1"
    PART = "of at least 0 and below 1"
    CHANCE = "from 0 to 1"
    POSITIVE = "above 0"
    LENGTH = "of at least 1"
    COUNT = "that is whole and from 1 to 10000"
    WHOLE = "that is whole and from 0 to 10000"


_RULES: dict[Limit, Callable[[float], bool]] = {
    Limit.ANY: lambda x: True,
    Limit.WEIGHT: lambda x: x >= 0,
    Limit.SHARE: lambda x: 0 < x <= 1,
    Limit.PART: lambda x: 0 <= x < 1,
    Limit.CHANCE: lambda x: 0 <= x <= 1,
    Limit.POSITIVE: lambda x: x > 0,
    Limit.LENGTH: lambda x: x >= 1,
    Limit.COUNT: lambda x: 1 <= x <= 10_000 and x == int(x),
    Limit.WHOLE: lambda x: 0 <= x <= 10_000 and x == int(x),
}


def check_number(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a finite number within the limit."""
    if not _passes(value, limit):
        raise InputError(f"{name} is {value!r}; a finite number {limit.value} is taken.")


def check_range(name: str, value: object, limit: Limit) -> None:
    """Raise InputError unless the value is a pair (low, high) of finite numbers within the limit."""
    fits = isinstance(value, tuple) and len(value) == 2 and all(_passes(x, limit) for x in value)
    if not fits or value[0] > value[1]:  # type: ignore[index]
        raise InputError(f"{name} is {value!r}; two finite numbers {limit.value} are taken, the lower one first.")


def _passes(value: object, limit: Limit) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value) and _RULES[limit](float(value))
