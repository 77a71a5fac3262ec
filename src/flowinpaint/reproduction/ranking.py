"""Rankings of methods relative to one of them, here and in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowinpaint.masks.cases import case_text
from flowinpaint.text_tables import NONE, markdown_table

DIGITS = 3
"""Values that are equal when rounded to these digits are level."""
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
Ranking = dict[str, str]
"""The place of each name relative to the base, best first; a smaller value is ahead."""


@dataclass(frozen=True)
class Comparison:
    """Rankings here and in the paper.

    compared: the number of names that are ranked here and are ahead or behind, not level, in the paper. differing: the
    names among these whose place here differs, with their place in the paper.
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
    """The ranking relative to the base of all names with a value."""
    own = values.get(base)
    if own is None:
        return {}
    ranked = sorted((value, name) for name, value in values.items() if value is not None and name != base)
    differences = {name: round(value, DIGITS) - round(own, DIGITS) for value, name in ranked}
    return {name: AHEAD if by < 0 else BEHIND if by else LEVEL for name, by in differences.items()}


def compare(here: Mapping[str, float | None], paper: Mapping[str, float | None], base: str) -> Comparison:
    """The rankings here and in the paper."""
    own, printed = rank(here, base), rank(paper, base)
    compared = [name for name in here if name in own and printed.get(name) in (AHEAD, BEHIND)]
    differing = {name: printed[name] for name in compared if own[name] != printed[name]}
    return Comparison(own, printed, len(compared), differing)


def comparison_table(comparisons: Mapping[tuple[str, float], Comparison], base: str) -> str:
    """The comparisons by data set and density as Markdown."""
    rows = []
    for (dataset, density), found in comparisons.items():
        differs = set(found.paper.values()) - {LEVEL}
        printed = " / ".join(names_at(found.paper, AHEAD, BEHIND)) if differs else NONE
        rows.append([dataset, case_text(density), *names_at(found.here), printed, found.verdict])
    headings = ["data set", "given", f"ahead of {base}", "level", "behind", "paper: ahead / behind", "as in the paper"]
    return markdown_table(headings, rows, words=range(len(headings)))


def names_at(ranking: Ranking, *places: str) -> list[str]:
    """The names at each place, by default all three, separated by commas; a dash if there are none."""
    by_place = {place: [name for name, own in ranking.items() if own == place] for place in (AHEAD, LEVEL, BEHIND)}
    return [", ".join(by_place[place]) or NONE for place in places or by_place]
