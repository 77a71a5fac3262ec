"""Who is ahead of our network and who behind, here and in the paper, and whether the two agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DIGITS = 3
"""Values that read alike are level."""


@dataclass(frozen=True)
class Standing:
    """The names whose value is below, equal to and above that of the base; a smaller value is better."""

    ahead: tuple[str, ...]
    level: tuple[str, ...]
    behind: tuple[str, ...]

    def place(self, name: str) -> str:
        """Where a name stands: "ahead", "level", "behind", or "" if it does not stand anywhere."""
        places = (place for place in ("ahead", "level", "behind") if name in getattr(self, place))
        return next(places, "")


@dataclass(frozen=True)
class Comparison:
    """Two standings. differing: the names that the paper has on the other side of the base, with its place for them.

    compared: how many names both have on a side; those that the paper has level with the base stand on none.
    """

    here: Standing
    paper: Standing
    compared: int
    differing: dict[str, str]

    @property
    def verdict(self) -> str:
        """Whether they agree, in a few words."""
        if not self.compared:
            return "nothing to compare"
        agreeing = f"{self.compared - len(self.differing)} of {self.compared}"
        if not self.differing:
            return f"yes ({agreeing})"
        told = ", ".join(f"{name} is {place} in the paper" for name, place in self.differing.items())
        return f"no ({agreeing}): {told}"


def standing(values: Mapping[str, float | None], base: str) -> Standing:
    """How names with values stand to the base, best first; those without a value are left out."""
    own = values.get(base)
    others = sorted((value, name) for name, value in values.items() if value is not None and name != base)
    if own is None:
        return Standing((), (), ())
    mark = round(own, DIGITS)
    return Standing(
        tuple(name for value, name in others if round(value, DIGITS) < mark),
        tuple(name for value, name in others if round(value, DIGITS) == mark),
        tuple(name for value, name in others if round(value, DIGITS) > mark),
    )


def compare(here: Mapping[str, float | None], paper: Mapping[str, float | None], base: str) -> Comparison:
    """The standings here and in the paper, and where they differ."""
    own, printed = standing(here, base), standing(paper, base)
    sided = [name for name in here if own.place(name) and printed.place(name) in ("ahead", "behind")]
    differing = {name: printed.place(name) for name in sided if own.place(name) != printed.place(name)}
    return Comparison(own, printed, len(sided), differing)


def names_text(names: tuple[str, ...]) -> str:
    """Names with commas, or a dash."""
    return ", ".join(names) or "–"
