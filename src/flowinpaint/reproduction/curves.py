"""Both halves of the paper's Figure 3: the error by the number of training samples, and by the density."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flowinpaint.evaluation.paper_figures import PAPER_UNSEEN_DENSITY
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.drawing import GREY, LOOKS, Pictures, render
from flowinpaint.reproduction.experiment import (
    DENSITIES,
    EED,
    FAMILIES,
    MIDDLE,
    OURS,
    SAMPLE_COUNTS,
    TESTED_DENSITIES,
    label,
    network_at,
    networks_at,
)
from flowinpaint.reproduction.page import Page, paragraph, provenance
from flowinpaint.reproduction.ranking import names_at, rank
from flowinpaint.reproduction.runs import Means
from flowinpaint.reproduction.session import Session
from flowinpaint.text_tables import NONE, markdown_table, number
from flowinpaint.viz.plots import plain_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_NUMBERS = "The paper draws this plot without printing its numbers, so there are none to compare with."
PAPER_TRENDS = {OURS: "falls", EED: "falls", "flownets": "rises", "wgain": "rises"}
"""Trend of the error of methods for 5 % at higher densities, by the paper's text, which does not mention PD."""
_PANEL = (3.7, 3.0)
_COLUMNS = 3


def figure_density(session: Session) -> Page:
    """Networks and parameters for 5 %, at other densities."""
    chosen = session.among([*FAMILIES, EED])
    columns = [session.column(name, d, tuned=MIDDLE) for name in chosen for d in TESTED_DENSITIES]
    means = session.means(session.square, columns)
    curves = Curves(means, {density: case_text(density) for density in TESTED_DENSITIES}, "density", "given")
    paragraphs = [
        "# Figure 3, right: other densities than that of training",
        "EPE (px) of networks trained with 5 % given, and of EED with its parameters for 5 %, when more or less is "
        f"given. The grey line marks the training density. {_NO_NUMBERS}",
        *curves.tables,
        *curves.rankings,
        "## With more given than in training",
        "According to the paper's text, the error of Ours and EED falls from 5 % on; that of FlowNetS and WGAIN rises.",
        trend_table(means),
        *_trained_at_ten(session, means),
        *provenance(session, session.square, means, networks_at(chosen, MIDDLE)),
    ]
    pictures = _pictures(session, curves, "given (%)", mark=MIDDLE)
    return Page(curves.rows, paragraphs, pictures, "EPE over the density, on logarithmic axes")


def figure_data(session: Session) -> Page:
    """Networks trained equally long on fewer different samples."""
    chosen = session.among(FAMILIES)
    trained_on = {(family, n): k for family in chosen for n, k in networks_by_samples(session, family).items()}
    eed = [session.column(name, MIDDLE) for name in session.among([EED])]
    by_samples = {}
    for n in SAMPLE_COUNTS:
        own = [session.column(family, MIDDLE, samples=trained_on[family, n]) for family in chosen]
        by_samples[n] = session.means(session.square, [*own, *eed])
    means = Means(
        {(column, dataset, n): mean for n, own in by_samples.items() for (column, dataset, _), mean in own.items()}
    )
    curves = Curves(means, {n: f"{n:,}" for n in SAMPLE_COUNTS}, "samples", "samples")
    networks = [network_at(family, MIDDLE, trained_on[family, n]) for family in chosen for n in SAMPLE_COUNTS]
    paragraphs = [
        "# Figure 3, left: fewer training samples",
        "EPE (px) at 5 % of networks that were trained equally long on a limited number of different samples, with new "
        f"masks each time. EED is not trained. {_NO_NUMBERS}",
        *curves.tables,
        "According to the paper's text, Ours is ahead of all others with any number of samples, and barely loses by "
        "few.",
        *curves.rankings,
        *_loss_by_fewer(means),
        *_without_repeats(session, networks),
        *(f"{label(m)} with {n:,} samples is its network of {k:,}." for (m, n), k in trained_on.items() if k != n),
        *provenance(session, session.square, by_samples[SAMPLE_COUNTS[-1]], networks),
    ]
    pictures = _pictures(session, curves, "distinct training samples")
    return Page(curves.rows, paragraphs, pictures, "EPE over the number of training samples")


@dataclass(frozen=True)
class Curves:
    """Means over positions on an axis (densities or numbers of samples), and the positions in words.

    column, heading: names of the axis in the CSV file and in the tables.
    """

    means: Means
    places: Mapping[float, str]
    column: str
    heading: str

    @property
    def tables(self) -> list[str]:
        """A heading and a table of EPE for each data set."""
        parts = []
        for dataset in self.means.datasets:
            rows = [[text, *map(number, self._at(dataset, place).values())] for place, text in self.places.items()]
            parts += [f"### {dataset}", markdown_table([self.heading, *map(label, self.means.columns)], rows)]
        return parts

    @property
    def rankings(self) -> list[str]:
        """A heading and a table of the rankings against Ours; empty without Ours."""
        rows = [
            [dataset, text, *names_at(rank(self._at(dataset, place), label(OURS)))]
            for dataset in self.means.datasets
            for place, text in self.places.items()
        ]
        table = markdown_table(["data set", self.heading, "ahead of Ours", "level", "behind"], rows, words=range(5))
        return ["## Ahead of Ours and behind", table] if OURS in self.means.columns else []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the CSV file."""
        return [
            {"dataset": dataset, self.column: place, "method": method, "label": label(method)}
            | {"epe": self.means.value(method, dataset, place)}
            for method in self.means.columns
            for dataset in self.means.datasets
            for place in self.places
        ]

    def _at(self, dataset: str, place: float) -> dict[str, float | None]:
        """The EPE of all methods at a position, by label."""
        return {label(method): self.means.value(method, dataset, place) for method in self.means.columns}


def networks_by_samples(session: Session, family: str) -> dict[int, int]:
    """For each number of samples, the number of samples of the network to use; missing networks are trained.

    A training that ends before it sees a sample twice would be the same with more samples, so its network is also used
    for larger numbers of samples that have no network.
    """
    found: dict[int, int] = {}
    enough = 0
    for n in SAMPLE_COUNTS:
        name = network_at(family, MIDDLE, n)
        trained = session.networks.find(name)
        if trained is None and not enough:
            trained = session.network(name, train=not session.obstacle(family))
        found[n] = enough if trained is None and enough else n
        if trained is not None and trained.without_repeats:
            enough = enough or n
    return found


def trend_table(means: Means) -> str:
    """The change of each error from the training density to the largest, here and in the paper's text."""
    most = TESTED_DENSITIES[-1]
    rows = []
    for dataset in means.datasets:
        for method in means.columns:
            first, last = means.value(method, dataset, MIDDLE), means.value(method, dataset, most)
            found = "" if first is None or last is None else "falls" if last < first else "rises"
            said = PAPER_TRENDS.get(method, "")
            agrees = NONE if not (found and said) else "yes" if found == said else f"no: there it {said}"
            rows.append([dataset, label(method), number(first), number(last), found or NONE, agrees])
    headings = ["data set", "method", "EPE at 5 %", f"at {case_text(most)}", "trend", "as in the paper"]
    return markdown_table(headings, rows, words=(0, 1, 4, 5))


def _trained_at_ten(session: Session, means: Means) -> list[str]:
    """Our networks for 5 % and for 10 % at 10 %, if the second exists: the paper prints these two."""
    most = DENSITIES[-1]
    if OURS not in means.columns or session.networks.find(network_at(OURS, most)) is None:
        return []
    own = session.means(session.square, [session.column(OURS, most)])
    lines = [
        f"- {dataset}: {number(means.value(OURS, dataset, most))} and {number(own.value(OURS, dataset, most))}."
        for dataset in means.datasets
    ]
    printed = " and ".join(f"{value:.2f}" for value in PAPER_UNSEEN_DENSITY)
    return paragraph(lines, f"Ours at 10 %, trained with 5 % and with 10 %; in the paper, on Sintel, {printed}:")


def _without_repeats(session: Session, networks: Sequence[str]) -> list[str]:
    find = session.networks.find
    names = [n for n in dict.fromkeys(networks) if (found := find(n)) is not None and found.without_repeats]
    text = "The training of these networks ended before they saw a sample twice, so with more samples each would have"
    return [f"{text} been the same: {', '.join(names)}."] if names else []


def _loss_by_fewer(means: Means) -> list[str]:
    """The increase in error of each network with the fewest samples, compared with the most."""
    ends = SAMPLE_COUNTS[0], SAMPLE_COUNTS[-1]
    lines = []
    for dataset in means.datasets:
        for method in means.columns:
            fewest, most = (means.value(method, dataset, n) for n in ends)
            if method in FAMILIES and fewest is not None and most:
                lines.append(f"- {dataset}, {label(method)}: {100 * (fewest / most - 1):+z.1f} %.")
    return paragraph(lines, "The error with {:,} samples, compared with {:,}:".format(*ends))


def _pictures(session: Session, curves: Curves, axis: str, mark: float | None = None) -> Callable[[], Pictures]:
    """A panel of all curves for each data set, both axes logarithmic; mark: position of a grey line."""
    means, datasets = curves.means, curves.means.datasets
    columns = min(_COLUMNS, len(datasets))
    rows = -(-len(datasets) // columns)

    def draw(figure: Figure) -> None:
        lines = {}
        for panel, dataset in enumerate(datasets, 1):
            axes = figure.add_subplot(rows, columns, panel)
            if mark is not None:
                axes.axvline(mark, color=GREY, linewidth=0.8, zorder=1)
            for method in means.columns:
                # A logarithmic axis has no 0.
                points = {x: y for x in curves.places if (y := means.value(method, dataset, x))}
                look, front = LOOKS[method], 3 if method == OURS else 2
                style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": look.line}
                (lines[label(method)],) = axes.plot(list(points), list(points.values()), zorder=front, **style)
            axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="EPE (px)", title=dataset)
            axes.set_xticks(list(curves.places), [text.removesuffix(" %") for text in curves.places.values()])
            axes.xaxis.minorticks_off()
            axes.yaxis.set_major_formatter(plain_number)
            axes.yaxis.set_minor_formatter(plain_number)
            axes.tick_params(labelsize=8, which="both")
        legend = 3 if columns == 1 else len(lines)
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=legend)

    size = (_PANEL[0] * columns + 0.4, _PANEL[1] * rows + 0.5)
    return partial(render, draw, size, session.scale.rehearsal)
