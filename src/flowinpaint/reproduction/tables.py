"""Tables 1, 2 and 3 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flowinpaint.evaluation.paper_figures import PAPER_ABLATIONS, PAPER_TABLES, PaperTable
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.drawing import Block, Pictures, Row, draw_table, render, table_size
from flowinpaint.reproduction.experiment import ABLATIONS, DENSITIES, FULL, OURS, PD, SHIPPED, label, networks_at
from flowinpaint.reproduction.frames import GENERATED, FrameSet
from flowinpaint.reproduction.page import Page, provenance
from flowinpaint.reproduction.ranking import DIGITS, Comparison, compare, comparison_table
from flowinpaint.reproduction.runs import Means
from flowinpaint.reproduction.session import Session
from flowinpaint.text_tables import number

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
    return _error_page(session, "Table 1: all methods", session.square, ["epe"])


def table3(session: Session) -> Page:
    """EPE and Fl on whole frames, KITTI's if there are any; without PD, as in the paper."""
    return _error_page(session, "Table 3: whole frames", session.wide, list(_FIGURES), _FL_READING, without=PD)


def table2(session: Session) -> Page:
    """The full network's EPE and the ablations' differences to it."""
    networks = [name for name in ABLATIONS if session.network(name) is not None]
    means = session.means(session.square, [session.column(name, d) for name in networks for d in DENSITIES])
    blocks = [table_block(means, dataset) for dataset in means.datasets]

    def values(*place: Any) -> dict[str, Any]:
        return {
            "network": place[0],
            "epe": means.value(*place),
            "difference": difference(means, *place),
            "paper_epe": paper_value(*place),
            "paper_difference": _paper_difference(*place),
        }

    paragraphs = [
        "# Table 2: what is learned",
        _ABLATION_READING,
        *(block.markdown for block in blocks),
        "## Ahead of Full and behind",
        comparison_table(compare_with_paper(means, FULL), "Full"),
        *provenance(session, session.square, means, ABLATIONS),
    ]
    rows = [row for row in _rows(means, values) if row["epe"] is not None]
    alternative = "Differences of the ablations to the full network"
    return Page(rows, paragraphs, _pictures(session, blocks), alternative)


def _error_page(
    session: Session, title: str, frames: FrameSet, figures: Sequence[str], note: str = "", without: str = ""
) -> Page:
    means = session.table(frames, without)
    blocks = [table_block(means, dataset, figure) for dataset in means.datasets for figure in figures]

    def values(column: str, dataset: str, density: float) -> dict[str, Any]:
        found: dict[str, Any] = {"method": column, "label": label(column)}
        for figure in _FIGURES:
            found[figure] = means.value(column, dataset, density, figure)
            found[f"paper_{figure}"] = paper_value(column, dataset, density, figure)
        return found

    paragraphs = [f"# {title}", _READING, *([note] if note else []), *(block.markdown for block in blocks)]
    for figure in figures if OURS in means.columns else ():
        comparisons = comparison_table(compare_with_paper(means, OURS, figure), label(OURS))
        paragraphs += [f"## Ahead of Ours and behind, by {_FIGURES[figure]}", comparisons]
    paragraphs += provenance(session, frames, means, networks_at(means.columns, *DENSITIES))
    return Page(_rows(means, values), paragraphs, _pictures(session, blocks), f"{title}, with the paper's values")


def table_block(means: Means, dataset: str, figure: str = "epe") -> Block:
    """Values of all columns at each density, with the paper's below; for ablations, the differences to Full."""
    columns, ablations = means.columns, means.columns[0] in ABLATIONS
    paper = _paper_table(dataset, figure, ablations)

    def here(column: str, density: float) -> str:
        if not ablations or column == FULL:
            return number(means.value(column, dataset, density, figure))
        return number(difference(means, column, dataset, density, printed=True), sign=True)

    def printed(column: str, density: float) -> str:
        if not ablations or column == FULL:
            return number(paper_value(column, dataset, density, figure), 2)
        return number(_paper_difference(column, dataset, density), 2, sign=True)

    rows = []
    for density in _densities(means, dataset):
        cells = tuple(here(column, density) for column in columns)
        best = _best(cells) if FULL not in columns else frozenset[int]()
        rows.append(Row(case_text(density), cells, bold=best))
        if paper is not None:
            rows.append(Row("paper", tuple(printed(column, density) for column in columns), quiet=True))
    title = f"{dataset} (not in the paper)" if paper is None else dataset
    if paper is not None and dataset == GENERATED:
        title += ", the training's domain (in the paper FlyingThings3D)"
    own = next((i for i, column in enumerate(columns) if column in (OURS, FULL)), None)
    return Block(f"{title}, {_FIGURES[figure]}", "given", tuple(map(_label, columns)), tuple(rows), own)


def difference(means: Means, name: str, dataset: str, density: float, *, printed: bool = False) -> float | None:
    """A network's EPE minus the full network's; None for the full network.

    printed: use the rounded values as printed, by which networks are ranked.
    """
    own, full = (means.value(column, dataset, density) for column in (name, FULL))
    if name == FULL or own is None or full is None:
        return None
    return round(own, DIGITS) - round(full, DIGITS) if printed else own - full


def compare_with_paper(means: Means, base: str, figure: str = "epe") -> dict[tuple[str, float], Comparison]:
    """Rankings of all columns relative to one of them, Ours or the full network, by data set and density."""
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
    table = _paper_table(dataset, figure, column in ABLATIONS)
    return None if table is None or column in SHIPPED else table.value(column, density)


def _paper_difference(name: str, dataset: str, density: float) -> float | None:
    table = _paper_table(dataset, "epe", ablations=True)
    return table.difference(name, density) if table is not None else None


def _paper_table(dataset: str, figure: str, ablations: bool) -> PaperTable | None:
    """The paper's table of a data set; for generated scenes, the one of its training domain."""
    domain = _TRAINING_DOMAIN if dataset == GENERATED else dataset
    tables = PAPER_ABLATIONS if ablations else [table for table in PAPER_TABLES if table.figure == figure]
    return next((table for table in tables if table.is_of(domain)), None)


def _rows(means: Means, values: Callable[[str, str, float], dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the CSV file: values of each column, data set and density, and details of the measurement."""
    rows = []
    for dataset in means.datasets:
        for density in _densities(means, dataset):
            for column in means.columns:
                row = {"dataset": dataset, "density": density} | values(column, dataset, density)
                if mean := means.get((column, dataset, density)):
                    row |= {"seconds": mean.seconds, "frames": mean.frames, "failures": mean.failures}
                    row["device"] = " ".join(mean.devices)
                rows.append(row)
    return rows


def _pictures(session: Session, blocks: Sequence[Block]) -> Callable[[], Pictures]:
    draw = partial(draw_table, blocks=blocks)
    return partial(render, draw, table_size(blocks), session.scale.rehearsal, arranged=False)


def _densities(means: Means, dataset: str) -> list[float]:
    """The densities with a result on a data set."""
    return [d for d in DENSITIES if any((column, dataset, d) in means for column in means.columns)]


def _label(column: str) -> str:
    return ABLATIONS.get(column) or label(column)


def _best(cells: Sequence[str]) -> frozenset[int]:
    """The indices of the cells with the smallest printed number."""
    values = {i: float(cell) for i, cell in enumerate(cells) if cell != "–"}
    best = min(values.values(), default=0.0)
    return frozenset(i for i, value in values.items() if value == best)
