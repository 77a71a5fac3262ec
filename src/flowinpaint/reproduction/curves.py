"""Both halves of the paper's Figure 3: the error by the number of training samples, and by the density."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flowinpaint.evaluation.paper_figures import PAPER_UNSEEN_DENSITY
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.means import Means
from flowinpaint.reproduction.ordering import names_text, standing
from flowinpaint.reproduction.report import Report, label, number, provenance
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import (
    CONTENDERS,
    DENSITIES,
    FAMILIES,
    MIDDLE,
    OURS,
    SAMPLE_COUNTS,
    TESTED_DENSITIES,
    Contender,
    network_at,
)
from flowinpaint.reproduction.style import GREY, curve, render
from flowinpaint.text_tables import markdown_table
from flowinpaint.viz.plots import can_plot, plain_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EED = "eed"
_NO_NUMBERS = "The paper draws this plot without printing its numbers, so none of its figures stand beside ours."
PAPER_TRENDS = {OURS: "falls", _EED: "falls", "flownets": "rises", "wgain": "rises"}
"""What the paper's text says of the error of methods made for 5 % when more is given; of PD it says nothing."""
_PANEL = (3.7, 3.0)
_COLUMNS = 3


@dataclass(frozen=True)
class Curves:
    """EPE by method and data set, along what the x-axis counts; None where nothing was measured."""

    places: tuple[float, ...]
    values: dict[tuple[str, str], tuple[float | None, ...]]
    """By contender and data set, one for each place."""

    @property
    def methods(self) -> list[str]:
        """The contenders, in the order in which they were asked for."""
        return list(dict.fromkeys(method for method, _ in self.values))

    @property
    def datasets(self) -> list[str]:
        """The data sets."""
        return list(dict.fromkeys(dataset for _, dataset in self.values))

    def at(self, dataset: str, place: int) -> dict[str, float | None]:
        """The values of all methods at a place, by their label."""
        return {label(method): self.values[method, dataset][place] for method in self.methods}


def figure_density(session: Session) -> Report:
    """Networks and parameters for 5 %, at other densities."""
    chosen = session.contenders([*FAMILIES, _EED])
    entrants = [session.entrant(c, density, tuned=MIDDLE) for c in chosen for density in TESTED_DENSITIES]
    means = session.means(session.square, entrants)
    curves = curves_of(dict.fromkeys(TESTED_DENSITIES, means), TESTED_DENSITIES)
    texts = [case_text(density) for density in TESTED_DENSITIES]
    paragraphs = [
        "# Figure 3, right: other densities than that of training",
        "EPE (px) of networks trained with 5 % given, and of EED with its parameters for 5 %, when more or less is "
        f"given. The grey line is the density of training. {_NO_NUMBERS}",
        *_value_tables(curves, "given", texts),
        *_standings(curves, "given", texts),
        "## With more given than in training",
        "The paper's text says that from 5 % on the error of Ours and EED falls, and that of FlowNetS and WGAIN rises.",
        trend_table(curves),
        *_beside_its_own_density(session, curves),
        *provenance(session, session.square, means, [network_at(c.family, MIDDLE) for c in chosen if c.family]),
    ]
    rows = _rows(curves, "density")
    pictures = _pictures(session, curves, "given (%)", [f"{100 * d:g}" for d in TESTED_DENSITIES], mark=MIDDLE)
    return Report("figure-density", rows, paragraphs, pictures, "EPE over the density, on logarithmic axes")


def figure_data(session: Session) -> Report:
    """Networks that saw fewer different samples in as much training."""
    chosen = session.contenders(FAMILIES)
    trained_on = {(c.name, n): k for c in chosen for n, k in networks_by_samples(session, c).items()}
    eed = [session.entrant(c, MIDDLE) for c in session.contenders([_EED])]
    means = {}
    for n in SAMPLE_COUNTS:
        own = [session.entrant(c, MIDDLE, samples=trained_on[c.name, n]) for c in chosen]
        means[n] = session.means(session.square, [*own, *eed])
    curves = curves_of(means, SAMPLE_COUNTS)
    texts = [f"{n:,}" for n in SAMPLE_COUNTS]
    networks = [network_at(c.family, MIDDLE, trained_on[c.name, n]) for c in chosen for n in SAMPLE_COUNTS]
    paragraphs = [
        "# Figure 3, left: fewer training samples",
        "EPE (px) at 5 % of networks that were trained on so many different samples, again and again, as long as each "
        f"other; masks are new each time. EED is not trained. {_NO_NUMBERS}",
        *_value_tables(curves, "samples", texts),
        "The paper's text says that Ours is ahead of all others however few samples there are, and barely loses by it.",
        *_standings(curves, "samples", texts),
        *_loss_by_fewer(curves),
        *_unlimited(session, networks),
        *(f"{label(c)} with {n:,} samples is its network of {k:,}." for (c, n), k in trained_on.items() if k != n),
        *provenance(session, session.square, means[SAMPLE_COUNTS[-1]], networks),
    ]
    rows = _rows(curves, "samples")
    pictures = _pictures(session, curves, "distinct training samples", texts)
    return Report("figure-data", rows, paragraphs, pictures, "EPE over the number of training samples")


def networks_by_samples(session: Session, contender: Contender) -> dict[int, int]:
    """For each number of samples, that of the network to take; networks that are missing are trained.

    A training that is over before a sample comes a second time would have been the same with more of them. So such a
    network is taken for more samples too, unless there is one of their own.
    """
    found: dict[int, int] = {}
    enough = 0
    for n in SAMPLE_COUNTS:
        name = network_at(contender.family, MIDDLE, n)
        trained = session.shelf.find(name)
        if trained is None and not enough:
            trained = session.network(name, train=not session.obstacle(contender.name))
        found[n] = enough if trained is None and enough else n
        if trained is not None and trained.unlimited:
            enough = enough or n
    return found


def curves_of(means: Mapping[Any, Means], places: Sequence[float]) -> Curves:
    """The curves through means by place: those of one density each, or of places that are densities."""
    methods = dict.fromkeys(column for found in means.values() for column in found.columns)
    datasets = dict.fromkeys(dataset for found in means.values() for dataset in found.datasets)
    values = {}
    for method in methods:
        for dataset in datasets:
            points = [means[place].value(method, dataset, place if place < 1 else MIDDLE) for place in places]
            values[method, dataset] = tuple(points)
    return Curves(tuple(places), values)


def trend(curves: Curves, method: str, dataset: str) -> str:
    """Whether the error of a method falls or rises from the density of training to the largest; "" if unknown."""
    values = curves.values[method, dataset]
    first, last = values[curves.places.index(MIDDLE)], values[-1]
    return "" if first is None or last is None else "falls" if last < first else "rises"


def trend_table(curves: Curves) -> str:
    """The trend of each method on each data set, and whether the paper's text says the same."""
    rows = []
    for dataset in curves.datasets:
        for method in curves.methods:
            found, said = trend(curves, method, dataset), PAPER_TRENDS.get(method, "")
            agrees = "–" if not (found and said) else "yes" if found == said else f"no: there it {said}"
            values = (curves.values[method, dataset][i] for i in (curves.places.index(MIDDLE), -1))
            rows.append([dataset, label(method), *map(number, values), found or "–", agrees])
    most = case_text(curves.places[-1])
    return markdown_table(
        ["data set", "method", "EPE at 5 %", f"at {most}", "it", "as in the paper"], rows, (0, 1, 4, 5)
    )


def _beside_its_own_density(session: Session, curves: Curves) -> list[str]:
    """What our network for 5 % makes at 10 %, beside the one for 10 % if that is there: the paper prints these two."""
    most = DENSITIES[-1]
    if OURS not in curves.methods or session.shelf.find(network_at(OURS, most)) is None:
        return []
    own = session.means(session.square, [session.entrant(CONTENDERS[OURS], most)])
    place = curves.places.index(most)
    lines = [
        f"- {dataset}: {number(curves.values[OURS, dataset][place])} and {number(own.value(OURS, dataset, most))}."
        for dataset in curves.datasets
    ]
    printed = " and ".join(f"{value:.2f}" for value in PAPER_UNSEEN_DENSITY)
    return [f"Ours at 10 %, trained with 5 % and with 10 %; in the paper, on Sintel, {printed}:", "\n".join(lines)]


def _value_tables(curves: Curves, corner: str, texts: Sequence[str]) -> list[str]:
    parts = []
    for dataset in curves.datasets:
        rows = [[text, *(number(value) for value in curves.at(dataset, i).values())] for i, text in enumerate(texts)]
        parts += [f"### {dataset}", markdown_table([corner, *map(label, curves.methods)], rows)]
    return parts


def _standings(curves: Curves, corner: str, texts: Sequence[str]) -> list[str]:
    if OURS not in curves.methods:
        return []
    rows = []
    for dataset in curves.datasets:
        for i, text in enumerate(texts):
            found = standing(curves.at(dataset, i), label(OURS))
            rows.append([dataset, text, names_text(found.ahead), names_text(found.level), names_text(found.behind)])
    headings = ["data set", corner, "ahead of Ours", "level", "behind"]
    return ["## Ahead of Ours and behind", markdown_table(headings, rows, words=range(len(headings)))]


def _unlimited(session: Session, networks: Sequence[str]) -> list[str]:
    """The networks whose training was over before a sample came a second time."""
    trained = {name: session.shelf.find(name) for name in networks}
    names = [name for name, found in trained.items() if found is not None and found.unlimited]
    if not names:
        return []
    return [
        "The training of these was over before a sample came a second time, so with more samples it would have been "
        f"the same: {', '.join(names)}."
    ]


def _loss_by_fewer(curves: Curves) -> list[str]:
    """What each method loses between the most samples and the fewest."""
    lines = []
    for dataset in curves.datasets:
        for method in curves.methods:
            fewest, most = curves.values[method, dataset][0], curves.values[method, dataset][-1]
            if CONTENDERS[method].family and fewest is not None and most:
                lines.append(f"- {dataset}, {label(method)}: {100 * (fewest / most - 1):+z.1f} %.")
    fewer, all_of_them = f"{SAMPLE_COUNTS[0]:,}", f"{SAMPLE_COUNTS[-1]:,}"
    return [f"The error with {fewer} samples, compared with {all_of_them}:", "\n".join(lines)] if lines else []


def _rows(curves: Curves, axis: str) -> list[dict[str, Any]]:
    return [
        {"dataset": dataset, axis: place, "method": method, "label": label(method), "epe": value}
        for (method, dataset), values in curves.values.items()
        for place, value in zip(curves.places, values, strict=True)
    ]


def _pictures(
    session: Session, curves: Curves, axis: str, ticks: Sequence[str], mark: float | None = None
) -> Callable[[], dict[str, bytes]] | None:
    if not can_plot() or not curves.values:
        return None
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
            points = [
                (x, y) for x, y in zip(curves.places, curves.values[method, dataset], strict=True) if y
            ]  # 0 has no place on a logarithmic axis
            x, y = (list(values) for values in zip(*points, strict=True)) if points else ([], [])
            lines[label(method)] = curve(axes, method, label(method), x, y)
        _set_axes(axes, curves, axis, ticks)
        axes.set_title(dataset)
    narrow = grid[1] == 1
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3 if narrow else len(lines))


def _set_axes(axes: Axes, curves: Curves, axis: str, ticks: Sequence[str]) -> None:
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="EPE (px)")
    axes.set_xticks(list(curves.places), ticks)
    axes.xaxis.minorticks_off()
    axes.yaxis.set_major_formatter(plain_number)
    axes.yaxis.set_minor_formatter(plain_number)
    axes.tick_params(labelsize=8, which="both")
