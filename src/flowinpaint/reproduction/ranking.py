"""Rankings of methods against one of them, here and in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowinpaint.masks.cases import case_text
from flowinpaint.text_tables import markdown_table

DIGITS = 3
"""Values that are equal when rounded to these digits are level."""


@dataclass(frozen=True)
class Ranking:
    """The names with a smaller (better), an equal and a larger value than the base."""

    ahead: tuple[str, ...] = ()
    level: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    def place(self, name: str) -> str:
        """The place of a name: "ahead", "level", "behind", or "" without one."""
        return next((place for place in ("ahead", "level", "behind") if name in getattr(self, place)), "")

    @property
    def cells(self) -> list[str]:
        """The three places as cells of a table."""
        return [names_text(self.ahead), names_text(self.level), names_text(self.behind)]


@dataclass(frozen=True)
class Comparison:
    """Rankings here and in the paper.

    compared: the number of names that are ranked here and ahead or behind in the paper; the paper's level names do not
    count. differing: those of them that are elsewhere here, with their place in the paper.
    """

    here: Ranking
    paper: Ranking
    compared: int
    differing: dict[str, str]

    @property
    def verdict(self) -> str:
        """The agreement in a few words."""
        if not self.compared:
            return "nothing to compare"
        agreeing = f"{self.compared - len(self.differing)} of {self.compared}"
        if not self.differing:
            return f"yes ({agreeing})"
        differences = ", ".join(f"{name} is {place} in the paper" for name, place in self.differing.items())
        return f"no ({agreeing}): {differences}"


def rank(values: Mapping[str, float | None], base: str) -> Ranking:
    """The ranking of the names that have a value against the base, best first."""
    own = values.get(base)
    if own is None:
        return Ranking()
    ranked = sorted((value, name) for name, value in values.items() if value is not None and name != base)
    differences = {name: round(value, DIGITS) - round(own, DIGITS) for value, name in ranked}
    return Ranking(
        tuple(name for name, difference in differences.items() if difference < 0),
        tuple(name for name, difference in differences.items() if difference == 0),
        tuple(name for name, difference in differences.items() if difference > 0),
    )


def compare(here: Mapping[str, float | None], paper: Mapping[str, float | None], base: str) -> Comparison:
    """The rankings here and in the paper."""
    own, printed = rank(here, base), rank(paper, base)
    compared = [name for name in here if own.place(name) and printed.place(name) in ("ahead", "behind")]
    differing = {name: printed.place(name) for name in compared if own.place(name) != printed.place(name)}
    return Comparison(own, printed, len(compared), differing)


def comparison_table(comparisons: Mapping[tuple[str, float], Comparison], base: str) -> str:
    """The comparisons by data set and density as Markdown."""
    rows = []
    for (dataset, density), found in comparisons.items():
        paper = found.paper
        printed = f"{names_text(paper.ahead)} / {names_text(paper.behind)}" if any((paper.ahead, paper.behind)) else "–"
        rows.append([dataset, case_text(density), *found.here.cells, printed, found.verdict])
    headings = ["data set", "given", f"ahead of {base}", "level", "behind", "paper: ahead / behind", "as in the paper"]
    return markdown_table(headings, rows, words=range(len(headings)))


def names_text(names: tuple[str, ...]) -> str:
    """Names with commas, or a dash."""
    return ", ".join(names) or "–"
