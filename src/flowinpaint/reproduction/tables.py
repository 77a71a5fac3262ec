"""Tables 1, 2 and 3 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flowinpaint.evaluation.paper_figures import PAPER_ABLATIONS, PAPER_TABLES, PaperTable
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.drawing import Block, Pictures, Row, draw_table, render, table_size
from flowinpaint.reproduction.experiment import ABLATIONS, DENSITIES, FULL, METHODS, OURS, PD, label, network_at
from flowinpaint.reproduction.frames import GENERATED, FrameSet
from flowinpaint.reproduction.page import Page, provenance
from flowinpaint.reproduction.ranking import DIGITS, Comparison, compare, comparison_table
from flowinpaint.reproduction.runs import Means
from flowinpaint.reproduction.session import Session
from flowinpaint.text_tables import number
from flowinpaint.viz.plots import can_plot

Comparisons = dict[tuple[str, float], Comparison]
"""By data set and density."""

_TRAINING_DOMAIN = "flyingthings"
_FIGURES = {"epe": "EPE (px)", "fl": "Fl (%)"}
_READING = (
    "Rows in italics are the paper's; the others are measured here, the best in bold. Each density has its own "
    "network, as in the paper; PD has one for all, since it sees no mask in training. EED has the parameters that the "
    "paper found for the density; AMLE and LB have those that their authors chose for Sintel. `neuroexplicit` and "
    "`neuroexplicit-paper` are shipped with the package, one network for all densities; they are not in the paper."
)
_ABLATION_READING = (
    "EPE (px) of Full, and the difference to it for every other network. Rows in italics are the paper's. -μ, -v and "
    "-α replace a learned quantity by the structure tensor's or by a constant; +β and +W learn more. `decoder 2` (a "
    "decoder without holes) and `first guess` (the network also sees a first guess of the flow) are ours. **Here one "
    "network serves all three densities** (trained with 1 to 10 % given); the paper trained one for each."
)
_FL_READING = (
    "Fl is the percentage of pixels whose error exceeds both 3 px and 5 %. This is KITTI's rule and that of the "
    "paper's code, though the paper's text says *or*. PD is missing, as in the paper: it fails on frames this wide."
)


def table1(session: Session) -> Page:
    """EPE of all methods at the paper's densities, on the central part of frames."""
    means = session.table(session.square)
    return _error_page(session, "table1", "Table 1: all methods", session.square, means, ["epe"])


def table3(session: Session) -> Page:
    """EPE and Fl on whole frames, KITTI's if there are any; without PD, as in the paper."""
    means = session.table(session.wide, [name for name in METHODS if name != PD])
    return _error_page(session, "table3", "Table 3: whole frames", session.wide, means, list(_FIGURES), _FL_READING)


def table2(session: Session) -> Page:
    """The full network's EPE and the ablations' differences to it."""
    methods = session.methods
    networks = {name: found for name in ABLATIONS if (found := methods.network(name)) is not None}
    columns = [methods.network_column(found, name, d) for name, found in networks.items() for d in DENSITIES]
    means = session.means(session.square, columns)
    blocks = [ablation_block(means, dataset) for dataset in means.datasets]
    rows = [
        {
            "dataset": dataset,
            "density": density,
            "network": name,
            "epe": epe,
            "difference": difference(means, name, dataset, density),
            "paper_epe": paper_value(name, dataset, density),
            "paper_difference": None if paper is None else paper.difference(name, density),
            **_counts(means, name, dataset, density),
        }
        for dataset in means.datasets
        for paper in [_paper_ablations(dataset)]
        for density in DENSITIES
        for name in means.columns
        if (epe := means.value(name, dataset, density)) is not None
    ]
    paragraphs = [
        "# Table 2: what is learned",
        _ABLATION_READING,
        *(block.markdown for block in blocks),
        "## Ahead of Full and behind",
        comparison_table(compare_with_paper(means, FULL), "Full"),
        *provenance(session, session.square, means, ABLATIONS),
    ]
    alternative = "Differences of the ablations to the full network"
    return Page("table2", rows, paragraphs, _pictures(session, blocks), alternative)


def _error_page(
    session: Session, name: str, title: str, frames: FrameSet, means: Means, figures: Sequence[str], note: str = ""
) -> Page:
    families = [METHODS[column].family for column in means.columns]
    networks = [network_at(family, density) for family in families if family for density in DENSITIES]
    blocks = [error_block(means, dataset, figure) for dataset in means.datasets for figure in figures]
    paragraphs = [f"# {title}", _READING, *([note] if note else []), *(block.markdown for block in blocks)]
    for figure in figures if OURS in means.columns else ():
        comparisons = compare_with_paper(means, OURS, figure)
        paragraphs += [
            f"## Ahead of Ours and behind, by {_FIGURES[figure]}",
            comparison_table(comparisons, label(OURS)),
        ]
    paragraphs += provenance(session, frames, means, networks)
    rows = [
        {"dataset": dataset, "density": density, "method": column, "label": label(column)}
        | {
            f"{source}{figure}": value
            for figure in _FIGURES
            for source, value in (
                ("", means.value(column, dataset, density, figure)),
                ("paper_", paper_value(column, dataset, density, figure)),
            )
        }
        | _counts(means, column, dataset, density)
        for dataset in means.datasets
        for density in _densities(means, dataset)
        for column in means.columns
    ]
    return Page(name, rows, paragraphs, _pictures(session, blocks), f"{title}, with the paper's values")


def error_block(means: Means, dataset: str, figure: str) -> Block:
    """A figure of all columns at each density, with the paper's below."""

    def here(column: str, density: float) -> str:
        return number(means.value(column, dataset, density, figure))

    def printed(column: str, density: float) -> str:
        return number(paper_value(column, dataset, density, figure), 2)

    return _block(means, dataset, figure, _paper_table(dataset, figure), here, printed)


def ablation_block(means: Means, dataset: str) -> Block:
    """Full's EPE and the differences to it at each density, with the paper's below."""
    paper = _paper_ablations(dataset)

    def here(name: str, density: float) -> str:
        if name == FULL:
            return number(means.value(name, dataset, density))
        return number(difference(means, name, dataset, density, printed=True), sign=True)

    def printed(name: str, density: float) -> str:
        if paper is None or name == FULL:
            return number(paper_value(name, dataset, density), 2)
        return number(paper.difference(name, density), 2, sign=True)

    return _block(means, dataset, "epe", paper, here, printed)


def _block(
    means: Means,
    dataset: str,
    figure: str,
    paper: PaperTable | None,
    here: Callable[[str, float], str],
    printed: Callable[[str, float], str],
) -> Block:
    rows = []
    own = next((i for i, column in enumerate(means.columns) if column in (OURS, FULL)), None)
    for density in _densities(means, dataset):
        cells = tuple(here(column, density) for column in means.columns)
        best = _best(cells) if FULL not in means.columns else frozenset[int]()
        rows.append(Row(case_text(density), cells, bold=best))
        if paper is not None:
            rows.append(Row("paper", tuple(printed(column, density) for column in means.columns), quiet=True))
    title = f"{dataset} (not in the paper)" if paper is None else dataset
    if paper is not None and dataset == GENERATED:
        title += ", the training's domain (in the paper FlyingThings3D)"
    headings = tuple(map(_label, means.columns))
    return Block(f"{title}, {_FIGURES[figure]}", "given", headings, tuple(rows), own)


def difference(means: Means, name: str, dataset: str, density: float, *, printed: bool = False) -> float | None:
    """A network's EPE minus the full one's; None for the full one itself.

    printed: of the values as they are printed, by which networks are ranked.
    """
    own, full = (means.value(column, dataset, density) for column in (name, FULL))
    if name == FULL or own is None or full is None:
        return None
    return round(own, DIGITS) - round(full, DIGITS) if printed else own - full


def compare_with_paper(means: Means, base: str, figure: str = "epe") -> Comparisons:
    """Rankings of all columns against one of them, ours or the full network."""
    return {
        (dataset, density): compare(
            {_label(column): means.value(column, dataset, density, figure) for column in means.columns},
            {_label(column): paper_value(column, dataset, density, figure) for column in means.columns},
            _label(base),
        )
        for dataset in means.datasets
        for density in _densities(means, dataset)
    }


def paper_value(column: str, dataset: str, density: float, figure: str = "epe") -> float | None:
    """The paper's value for a method, or for a network of Table 2; None if it has none."""
    if column in ABLATIONS:
        ablations = _paper_ablations(dataset)
        return None if ablations is None else ablations.value(column, density)
    table, name = _paper_table(dataset, figure), METHODS[column].paper
    return table.value(name, density) if table is not None and name else None


def _paper_table(dataset: str, figure: str) -> PaperTable | None:
    return next((table for table in PAPER_TABLES if table.figure == figure and table.is_of(_domain(dataset))), None)


def _paper_ablations(dataset: str) -> PaperTable | None:
    return next((table for table in PAPER_ABLATIONS if table.is_of(_domain(dataset))), None)


def _domain(dataset: str) -> str:
    """The data set to compare with: for generated scenes, the training domain of the paper."""
    return _TRAINING_DOMAIN if dataset == GENERATED else dataset


def _counts(means: Means, column: str, dataset: str, density: float) -> dict[str, Any]:
    """Seconds, frames, failures and devices, for the CSV file."""
    mean = means.at(column, dataset, density)
    if mean is None:
        return {}
    devices = " ".join(mean.devices)
    return {"seconds": mean.seconds, "frames": mean.frames, "failures": mean.failures, "device": devices}


def _pictures(session: Session, blocks: Sequence[Block]) -> Callable[[], Pictures] | None:
    if not can_plot() or not blocks:
        return None
    draw = partial(draw_table, blocks=blocks)
    return partial(render, draw, table_size(blocks), session.scale.rehearsal, arranged=False)


def _densities(means: Means, dataset: str) -> list[float]:
    """The densities with a result on a data set."""
    return [d for d in DENSITIES if any(means.at(column, dataset, d) for column in means.columns)]


def _label(column: str) -> str:
    return ABLATIONS.get(column) or label(column)


def _best(cells: Sequence[str]) -> frozenset[int]:
    """The indices of the cells that read as the smallest number."""
    values = {i: float(cell) for i, cell in enumerate(cells) if cell != "–"}
    best = min(values.values(), default=0.0)
    return frozenset(i for i, value in values.items() if value == best)
