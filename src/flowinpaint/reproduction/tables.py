"""Tables 1, 2 and 3 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flowinpaint.evaluation.paper_figures import PAPER_ABLATIONS, PAPER_TABLES
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.blocks import Block, Row, blocks_size, draw_blocks
from flowinpaint.reproduction.frames import FrameSet
from flowinpaint.reproduction.means import Means
from flowinpaint.reproduction.ordering import DIGITS, Comparison, compare
from flowinpaint.reproduction.report import (
    Report,
    ablations_of,
    comparison_table,
    counterpart,
    dataset_title,
    label,
    number,
    provenance,
)
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import (
    ABLATIONS,
    CONTENDERS,
    DENSITIES,
    FULL,
    OURS,
    PD,
    network_at,
)
from flowinpaint.reproduction.style import render
from flowinpaint.viz.plots import can_plot

_FIGURES = {"epe": "EPE (px)", "fl": "Fl (%)"}
_READING = (
    "Rows in italics are the paper's, the others are measured here, and the best of them is bold. One network for each "
    "density, as in the paper, and one PD for all, which sees no mask in training. EED has the parameters that the "
    "paper found for the density, AMLE and LB those that their authors chose for Sintel. `neuroexplicit` and "
    "`neuroexplicit-paper` are the networks that come with the package, one for all densities; the paper has them not."
)


def table1(session: Session) -> Report:
    """EPE of all methods at the paper's densities, on the middle part of frames."""
    means = session.table(session.square)
    blocks = [error_block(means, dataset, "epe") for dataset in means.datasets]
    comparisons = compare_with_paper(means, "epe")
    return _report(session, "table1", "Table 1: all methods", session.square, means, blocks, {"epe": comparisons})


def table3(session: Session) -> Report:
    """EPE and Fl on whole frames, of KITTI where it is there; without PD, as in the paper."""
    means = session.table(session.wide, [name for name in CONTENDERS if name != PD])
    blocks = [error_block(means, dataset, figure) for dataset in means.datasets for figure in _FIGURES]
    comparisons = {figure: compare_with_paper(means, figure) for figure in _FIGURES}
    note = (
        "Fl is the per cent of pixels that is off by more than 3 px and 5 %: KITTI's rule, which the paper's code has "
        "too, though its text says *or*. PD is not in this table, nor in the paper's: there it fails on frames so wide."
    )
    return _report(session, "table3", "Table 3: whole frames", session.wide, means, blocks, comparisons, note)


def table2(session: Session) -> Report:
    """The full network's EPE and the ablations' differences to it."""
    frames = session.square
    entrants = []
    for ablation in ABLATIONS:
        found = session.network(ablation.name)
        if found is not None:
            entrants += [session.entrant_of(found, ablation.name, density) for density in DENSITIES]
    means = session.means(frames, entrants)
    blocks = [ablation_block(means, dataset) for dataset in means.datasets]
    comparisons = compare_ablations(means)
    rows = [
        {
            "dataset": dataset,
            "density": density,
            "network": name,
            "epe": epe,
            "difference": difference(means, name, dataset, density),
            "paper_epe": None if paper is None else paper.value(name, density),
            "paper_difference": None if paper is None else paper.difference(name, density),
            **_counts(means, name, dataset, density),
        }
        for dataset in means.datasets
        for paper in [ablations_of(PAPER_ABLATIONS, dataset)]
        for density in DENSITIES
        for name in means.columns
        if (epe := means.value(name, dataset, density)) is not None
    ]
    reading = (
        "Full's EPE (px), and how much larger that of each other network is. Rows in italics are the paper's. -μ, -v "
        "and -α take from the structure tensor, or as a constant, what the full network learns; +β and +W learn more. "
        "`decoder 2` (a decoder without holes) and `first guess` (the network also sees a first guess of the flow) are "
        "not the paper's. **Here one network serves all three densities** (it is trained with 1 to 10 % given); the "
        "paper trained one for each."
    )
    paragraphs = [
        "# Table 2: what is learned",
        reading,
        *(block.markdown for block in blocks),
        "## Ahead of Full and behind",
        comparison_table(comparisons, "Full"),
        *provenance(session, frames, means, [ablation.name for ablation in ABLATIONS]),
    ]
    return Report(
        "table2", rows, paragraphs, _drawn(session, blocks), "Differences of the ablations to the full network"
    )


def error_block(means: Means, dataset: str, figure: str) -> Block:
    """A figure of all columns at each density, the paper's below."""
    paper = counterpart(PAPER_TABLES, dataset, figure)
    rows = []
    for density in _densities(means, dataset):
        own = [number(means.value(column, dataset, density, figure)) for column in means.columns]
        rows.append(Row(case_text(density), tuple(own), bold=_best(own)))
        if paper is not None:
            printed = [number(paper.value(_paper_name(column), density), 2) for column in means.columns]
            rows.append(Row("paper", tuple(printed), quiet=True))
    title = f"{dataset_title(dataset, paper)}, {_FIGURES[figure]}"
    own_place = means.columns.index(OURS) if OURS in means.columns else None
    return Block(title, "given", tuple(map(label, means.columns)), tuple(rows), own_place)


def ablation_block(means: Means, dataset: str) -> Block:
    """Full's EPE and the differences to it at each density, the paper's below."""
    paper = ablations_of(PAPER_ABLATIONS, dataset)
    labels = {ablation.name: ablation.label for ablation in ABLATIONS}
    rows = []
    for density in _densities(means, dataset):
        own = [
            number(means.value(FULL, dataset, density))
            if name == FULL
            else number(difference(means, name, dataset, density, printed=True), sign=True)
            for name in means.columns
        ]
        rows.append(Row(case_text(density), tuple(own)))
        if paper is not None:
            printed = [
                number(paper.value(FULL, density), 2)
                if name == FULL
                else number(paper.difference(name, density), 2, sign=True)
                for name in means.columns
            ]
            rows.append(Row("paper", tuple(printed), quiet=True))
    own_place = means.columns.index(FULL) if FULL in means.columns else None
    headings = tuple(labels[name] for name in means.columns)
    return Block(f"{dataset_title(dataset, paper)}, EPE (px)", "given", headings, tuple(rows), own_place)


def difference(means: Means, name: str, dataset: str, density: float, *, printed: bool = False) -> float | None:
    """How much larger a network's EPE is than the full one's; None for the full one itself.

    printed: of the figures as they are printed, by which networks are ahead, level or behind.
    """
    own, full = (means.value(column, dataset, density) for column in (name, FULL))
    if name == FULL or own is None or full is None:
        return None
    return round(own, DIGITS) - round(full, DIGITS) if printed else own - full


def compare_with_paper(means: Means, figure: str) -> dict[tuple[str, float], Comparison]:
    """Who is ahead of our network and who behind, by data set and density, in the paper's names where it has any."""
    found = {}
    for dataset in means.datasets:
        paper = counterpart(PAPER_TABLES, dataset, figure)
        for density in _densities(means, dataset):
            here = {label(column): means.value(column, dataset, density, figure) for column in means.columns}
            printed = {
                label(column): None if paper is None else paper.value(_paper_name(column), density)
                for column in means.columns
            }
            found[dataset, density] = compare(here, printed, label(OURS))
    return found


def compare_ablations(means: Means) -> dict[tuple[str, float], Comparison]:
    """Which networks are ahead of the full one and which behind, by data set and density."""
    labels = {ablation.name: ablation.label for ablation in ABLATIONS}
    found = {}
    for dataset in means.datasets:
        paper = ablations_of(PAPER_ABLATIONS, dataset)
        for density in _densities(means, dataset):
            here = {labels[name]: means.value(name, dataset, density) for name in means.columns}
            printed = {labels[name]: None if paper is None else paper.value(name, density) for name in means.columns}
            found[dataset, density] = compare(here, printed, labels[FULL])
    return found


def _report(
    session: Session,
    name: str,
    title: str,
    frames: FrameSet,
    means: Means,
    blocks: Sequence[Block],
    comparisons: dict[str, dict[tuple[str, float], Comparison]],
    note: str = "",
) -> Report:
    families = [CONTENDERS[column].family for column in means.columns]
    networks = [network_at(family, density) for family in families if family for density in DENSITIES]
    paragraphs = [f"# {title}", _READING, *([note] if note else []), *(block.markdown for block in blocks)]
    for figure, found in comparisons.items():
        if OURS in means.columns:
            paragraphs += [f"## Ahead of Ours and behind, by {_FIGURES[figure]}", comparison_table(found, label(OURS))]
    paragraphs += provenance(session, frames, means, networks)
    rows = [row for dataset in means.datasets for row in _rows(means, dataset)]
    return Report(name, rows, paragraphs, _drawn(session, blocks), f"{title}, beside the paper's figures")


def _rows(means: Means, dataset: str) -> list[dict[str, Any]]:
    rows = []
    for density in _densities(means, dataset):
        for column in means.columns:
            row: dict[str, Any] = {"dataset": dataset, "density": density, "method": column, "label": label(column)}
            for figure in _FIGURES:
                paper = counterpart(PAPER_TABLES, dataset, figure)
                row[figure] = means.value(column, dataset, density, figure)
                row[f"paper_{figure}"] = None if paper is None else paper.value(_paper_name(column), density)
            rows.append(row | _counts(means, column, dataset, density))
    return rows


def _counts(means: Means, column: str, dataset: str, density: float) -> dict[str, Any]:
    mean = means.at(column, dataset, density)
    if mean is None:
        return {}
    return {
        "seconds": mean.seconds,
        "frames": mean.frames,
        "failures": mean.failures,
        "device": " ".join(mean.devices),
    }


def _drawn(session: Session, blocks: Sequence[Block]) -> Callable[[], dict[str, bytes]] | None:
    if not can_plot() or not blocks:
        return None
    size = blocks_size(blocks)
    return partial(render, lambda figure: draw_blocks(figure, blocks), size, session.scale.rehearsal, arranged=False)


def _densities(means: Means, dataset: str) -> list[float]:
    """The densities at which something was measured on a data set."""
    return [d for d in DENSITIES if any(means.at(column, dataset, d) for column in means.columns)]


def _paper_name(column: str) -> str:
    """What the paper calls a contender; a word that it has not for one that is not the paper's."""
    return CONTENDERS[column].paper or "none of the paper's"


def _best(cells: Sequence[str]) -> frozenset[int]:
    """The places of the cells that read as the smallest number."""
    values = {i: float(cell) for i, cell in enumerate(cells) if cell != "–"}
    best = min(values.values(), default=0.0)
    return frozenset(i for i, value in values.items() if value == best)
