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
    METHODS,
    MIDDLE,
    OURS,
    SAMPLE_COUNTS,
    TESTED_DENSITIES,
    ComparedMethod,
    label,
    network_at,
)
from flowinpaint.reproduction.page import Page, provenance
from flowinpaint.reproduction.ranking import names_at, rank
from flowinpaint.reproduction.runs import Means
from flowinpaint.reproduction.session import Session
from flowinpaint.text_tables import NONE, markdown_table, number
from flowinpaint.viz.plots import plain_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_NUMBERS = "The paper draws this plot without printing its numbers, so there are none to compare with."
PAPER_TRENDS = {OURS: "falls", EED: "falls", "flownets": "rises", "wgain": "rises"}
"""Change of the error of methods for 5 % with more given, by the paper's text; of PD it says nothing."""
_PANEL = (3.7, 3.0)
_COLUMNS = 3


@dataclass(frozen=True)
class Curves:
    """EPE by method and data set at each place on the x-axis; None where nothing was measured."""

    places: tuple[float, ...]
    values: dict[tuple[str, str], tuple[float | None, ...]]

    @property
    def methods(self) -> list[str]:
        """The methods in their order."""
        return list(dict.fromkeys(method for method, _ in self.values))

    @property
    def datasets(self) -> list[str]:
        """The data sets."""
        return list(dict.fromkeys(dataset for _, dataset in self.values))

    def at(self, dataset: str, place: int) -> dict[str, float | None]:
        """The values of all methods at a place, by their label."""
        return {label(method): self.values[method, dataset][place] for method in self.methods}

    def tables(self, axis: str, texts: Sequence[str]) -> list[str]:
        """A heading and a table of values for each data set."""
        parts = []
        for dataset in self.datasets:
            rows = [[text, *map(number, self.at(dataset, i).values())] for i, text in enumerate(texts)]
            parts += [f"### {dataset}", markdown_table([axis, *map(label, self.methods)], rows)]
        return parts

    def rankings(self, axis: str, texts: Sequence[str]) -> list[str]:
        """A heading and a table of the rankings against ours; nothing without ours."""
        rows = [
            [dataset, text, *names_at(rank(self.at(dataset, i), label(OURS)))]
            for dataset in self.datasets
            for i, text in enumerate(texts)
        ]
        table = markdown_table(["data set", axis, "ahead of Ours", "level", "behind"], rows, words=range(5))
        return ["## Ahead of Ours and behind", table] if OURS in self.methods else []

    def rows(self, axis: str) -> list[dict[str, Any]]:
        """Rows of the CSV file."""
        return [
            {"dataset": dataset, axis: place, "method": method, "label": label(method), "epe": value}
            for (method, dataset), values in self.values.items()
            for place, value in zip(self.places, values, strict=True)
        ]


def curves_of(means: Mapping[Any, Means], places: Sequence[float]) -> Curves:
    """The curves through means by place, which is a density or a number of samples."""
    methods = dict.fromkeys(column for found in means.values() for column in found.columns)
    datasets = dict.fromkeys(dataset for found in means.values() for dataset in found.datasets)
    values = {
        (method, dataset): tuple(means[p].value(method, dataset, p if p < 1 else MIDDLE) for p in places)
        for method in methods
        for dataset in datasets
    }
    return Curves(tuple(places), values)


def figure_density(session: Session) -> Page:
    """Networks and parameters for 5 %, at other densities."""
    chosen = session.among([*FAMILIES, EED])
    columns = [session.column(method, density, tuned=MIDDLE) for method in chosen for density in TESTED_DENSITIES]
    means = session.means(session.square, columns)
    curves = curves_of(dict.fromkeys(TESTED_DENSITIES, means), TESTED_DENSITIES)
    texts = [case_text(density) for density in TESTED_DENSITIES]
    networks = [network_at(method.family, MIDDLE) for method in chosen if method.family]
    paragraphs = [
        "# Figure 3, right: other densities than that of training",
        "EPE (px) of networks trained with 5 % given, and of EED with its parameters for 5 %, when more or less is "
        f"given. The grey line marks the training density. {_NO_NUMBERS}",
        *curves.tables("given", texts),
        *curves.rankings("given", texts),
        "## With more given than in training",
        "According to the paper's text, the error of Ours and EED falls from 5 % on; that of FlowNetS and WGAIN rises.",
        trend_table(curves),
        *_trained_at_ten(session, curves),
        *provenance(session, session.square, means, networks),
    ]
    ticks = [text.removesuffix(" %") for text in texts]
    pictures = _pictures(session, curves, "given (%)", ticks, mark=MIDDLE)
    alternative = "EPE over the density, on logarithmic axes"
    return Page("figure-density", curves.rows("density"), paragraphs, pictures, alternative)


def figure_data(session: Session) -> Page:
    """Networks that saw fewer different samples in as much training."""
    chosen = session.among(FAMILIES)
    trained_on = {(method.name, n): k for method in chosen for n, k in networks_by_samples(session, method).items()}
    eed = [session.column(method, MIDDLE) for method in session.among([EED])]
    means = {}
    for n in SAMPLE_COUNTS:
        own = [session.column(method, MIDDLE, samples=trained_on[method.name, n]) for method in chosen]
        means[n] = session.means(session.square, [*own, *eed])
    curves = curves_of(means, SAMPLE_COUNTS)
    texts = [f"{n:,}" for n in SAMPLE_COUNTS]
    networks = [network_at(m.family, MIDDLE, trained_on[m.name, n]) for m in chosen for n in SAMPLE_COUNTS]
    paragraphs = [
        "# Figure 3, left: fewer training samples",
        "EPE (px) at 5 % of networks that were trained equally long on a limited number of different samples, with new "
        f"masks each time. EED is not trained. {_NO_NUMBERS}",
        *curves.tables("samples", texts),
        "According to the paper's text, Ours is ahead of all others with any number of samples, and barely loses by "
        "few.",
        *curves.rankings("samples", texts),
        *_loss_by_fewer(curves),
        *_without_repeats(session, networks),
        *(f"{label(m)} with {n:,} samples is its network of {k:,}." for (m, n), k in trained_on.items() if k != n),
        *provenance(session, session.square, means[SAMPLE_COUNTS[-1]], networks),
    ]
    pictures = _pictures(session, curves, "distinct training samples", texts)
    return Page("figure-data", curves.rows("samples"), paragraphs, pictures, "EPE over the number of training samples")


def networks_by_samples(session: Session, method: ComparedMethod) -> dict[int, int]:
    """For each number of samples, that of the network to use; missing networks are trained.

    A training that ends before it sees a sample twice would be the same with more samples. Its network serves for more
    samples too, unless they have one of their own.
    """
    found: dict[int, int] = {}
    enough = 0
    for n in SAMPLE_COUNTS:
        name = network_at(method.family, MIDDLE, n)
        trained = session.networks.find(name)
        if trained is None and not enough:
            trained = session.network(name, train=not session.obstacle(method.name))
        found[n] = enough if trained is None and enough else n
        if trained is not None and trained.without_repeats:
            enough = enough or n
    return found


def trend_table(curves: Curves) -> str:
    """The change of each error from the training density to the largest, here and in the paper's text."""
    rows = []
    for dataset in curves.datasets:
        for method in curves.methods:
            first, last = (curves.values[method, dataset][i] for i in (curves.places.index(MIDDLE), -1))
            found = "" if first is None or last is None else "falls" if last < first else "rises"
            said = PAPER_TRENDS.get(method, "")
            agrees = NONE if not (found and said) else "yes" if found == said else f"no: there it {said}"
            rows.append([dataset, label(method), number(first), number(last), found or NONE, agrees])
    headings = ["data set", "method", "EPE at 5 %", f"at {case_text(curves.places[-1])}", "trend", "as in the paper"]
    return markdown_table(headings, rows, words=(0, 1, 4, 5))


def _trained_at_ten(session: Session, curves: Curves) -> list[str]:
    """Our networks for 5 % and for 10 % at 10 %, if the second exists: the paper prints these two."""
    most = DENSITIES[-1]
    if OURS not in curves.methods or session.networks.find(network_at(OURS, most)) is None:
        return []
    own = session.means(session.square, [session.column(METHODS[OURS], most)])
    place = curves.places.index(most)
    lines = [
        f"- {dataset}: {number(curves.values[OURS, dataset][place])} and {number(own.value(OURS, dataset, most))}."
        for dataset in curves.datasets
    ]
    printed = " and ".join(f"{value:.2f}" for value in PAPER_UNSEEN_DENSITY)
    return [f"Ours at 10 %, trained with 5 % and with 10 %; in the paper, on Sintel, {printed}:", "\n".join(lines)]


def _without_repeats(session: Session, networks: Sequence[str]) -> list[str]:
    trained = {name: session.networks.find(name) for name in networks}
    names = [name for name, found in trained.items() if found is not None and found.without_repeats]
    text = (
        "The training of these networks ended before they saw a sample twice, so with more samples each would have "
        f"been the same: {', '.join(names)}."
    )
    return [text] if names else []


def _loss_by_fewer(curves: Curves) -> list[str]:
    """The loss of each network with the fewest samples, compared with the most."""
    lines = []
    for dataset in curves.datasets:
        for method in curves.methods:
            fewest, *_, most = curves.values[method, dataset]
            if METHODS[method].family and fewest is not None and most:
                lines.append(f"- {dataset}, {label(method)}: {100 * (fewest / most - 1):+z.1f} %.")
    fewer, all_of_them = f"{SAMPLE_COUNTS[0]:,}", f"{SAMPLE_COUNTS[-1]:,}"
    return [f"The error with {fewer} samples, compared with {all_of_them}:", "\n".join(lines)] if lines else []


def _pictures(
    session: Session, curves: Curves, axis: str, ticks: Sequence[str], mark: float | None = None
) -> Callable[[], Pictures]:
    columns = min(_COLUMNS, len(curves.datasets))
    rows = -(-len(curves.datasets) // columns)
    size = (_PANEL[0] * columns + 0.4, _PANEL[1] * rows + 0.5)
    draw = partial(_draw, curves=curves, grid=(rows, columns), axis=axis, ticks=ticks, mark=mark)
    return partial(render, draw, size, session.scale.rehearsal)


def _draw(
    figure: Figure, curves: Curves, grid: tuple[int, int], axis: str, ticks: Sequence[str], mark: float | None
) -> None:
    lines = {}
    for place, dataset in enumerate(curves.datasets, 1):
        axes = figure.add_subplot(*grid, place)
        if mark is not None:
            axes.axvline(mark, color=GREY, linewidth=0.8, zorder=1)
        for method in curves.methods:
            # A logarithmic axis has no 0.
            points = [(x, y) for x, y in zip(curves.places, curves.values[method, dataset], strict=True) if y]
            x, y = [x for x, _ in points], [y for _, y in points]
            look, front = LOOKS[method], 3 if method == OURS else 2
            style = {"color": look.colour, "marker": look.marker, "label": label(method), "zorder": front}
            (lines[label(method)],) = axes.plot(x, y, look.line, **style)  # type: ignore[arg-type]
        axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="EPE (px)", title=dataset)
        axes.set_xticks(list(curves.places), ticks)
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_formatter(plain_number)
        axes.yaxis.set_minor_formatter(plain_number)
        axes.tick_params(labelsize=8, which="both")
    narrow = grid[1] == 1
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3 if narrow else len(lines))
