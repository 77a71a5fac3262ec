"""What a part leaves: NAME.csv, NAME.md, NAME.png and NAME.svg, all made before the first is written."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flowinpaint.evaluation.paper_figures import PaperAblations, PaperTable
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.machine import device_name
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.frames import GENERATED, FrameSet
from flowinpaint.reproduction.means import Means
from flowinpaint.reproduction.networks import Trained
from flowinpaint.reproduction.ordering import Comparison, names_text
from flowinpaint.reproduction.scale import budget_text
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import CONTENDERS, PD
from flowinpaint.text_tables import markdown_table
from flowinpaint.training.config import GENERATED as LAYERED
from flowinpaint.version import __version__

PICTURES = (".png", ".svg")
_TRAINING_DOMAIN = "flyingthings"
_REHEARSAL = (
    "**This is a rehearsal (`--quick`): tiny networks, trained for a moment, on a few small frames. Its figures mean "
    "nothing; it shows only that every step works.**"
)


@dataclass(frozen=True)
class Report:
    """A part's results: rows of the CSV file, paragraphs of the Markdown page, and pictures by suffix if drawn."""

    name: str
    rows: list[dict[str, Any]]
    paragraphs: list[str]
    pictures: Callable[[], dict[str, bytes]] | None
    alternative: str
    """What the picture shows, in words."""


def write_report(out: Path, report: Report, rehearsal: bool) -> list[Path]:
    """Write a report's files, and return their paths; pictures of an earlier one that cannot be drawn are removed."""
    pictures = report.pictures() if report.pictures is not None else {}
    head, *rest = report.paragraphs
    parts = [head, *([_REHEARSAL] if rehearsal else [])]
    if pictures:
        parts.append(f"![{report.alternative}]({report.name}.png)")
    else:
        parts.append("No picture was drawn; it needs matplotlib, the extra `plots`.")
    text = "\n\n".join(map(wrapped, [*parts, *rest])) + "\n"
    rows = [{**row, "version": __version__, "rehearsal": "yes" if rehearsal else "no"} for row in report.rows]
    contents = {".csv": csv_text(rows).encode(), ".md": text.encode(), **pictures}
    make_folder(out)
    for suffix in PICTURES:
        if suffix not in pictures:
            (out / f"{report.name}{suffix}").unlink(missing_ok=True)
    for suffix, content in contents.items():
        with atomic_path(out / f"{report.name}{suffix}") as temporary:
            temporary.write_bytes(content)
    return [out / f"{report.name}{suffix}" for suffix in contents]


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV under the names of all their columns; None is an empty cell."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def wrapped(text: str) -> str:
    """A paragraph or a list in lines of 120 characters; a table, a heading or a picture as it is."""
    if text.startswith(("|", "!", "#")):
        return text
    lines = []
    for line in text.splitlines():
        indent = "  " if line.startswith("- ") else ""
        lines.append(textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    return "\n".join(lines)


def provenance(session: Session, frames: FrameSet, means: Means | None, networks: Iterable[str]) -> list[str]:
    """Paragraphs on what was measured, how networks were trained, and what is missing."""
    drawn = f"masks are files of the frames where there are any, and drawn by the seed {session.machine.seed} otherwise"
    lines = [
        *(f"- **{name}**, {text}." for name, text in frames.about.items()),
        f"- What is given is a share of all pixels, drawn among those with ground truth; {drawn}.",
        "- EPE (px) is over all pixels with ground truth, the given ones included, as in the paper.",
        f"- Filled on {_devices(session, means)}; flowinpaint {__version__}, torch {torch.__version__}.",
    ]
    parts = ["## What was measured", "\n".join(lines)]
    if means is not None and means.failures:
        parts.append("\n".join(_failures(means)))
    if session.left_out:
        missing = [f"- {label(name)} is left out: {reason}." for name, reason in session.left_out.items()]
        parts.append("\n".join(missing))
    trained = [found for name in dict.fromkeys(networks) if (found := session.shelf.find(name)) is not None]
    if trained:
        parts += ["## How the networks were trained", networks_table(trained), *_budget_note(trained)]
    return parts


def networks_table(trained: Sequence[Trained]) -> str:
    """A line per network: its data, masks, budget, and where it was trained."""
    rows = []
    for found in trained:
        training = found.training
        if training is None:
            rows.append([found.network.name, "weights made elsewhere", "–", "–", "–", "–", found.hash[:8]])
            continue
        low, high = training.config["masks"]["density"]
        given = f"{100 * low:g} %" if low == high else f"{100 * low:g} to {100 * high:g} %"
        if found.network.family == PD:
            given = "–"
        rows.append(
            [
                found.network.name,
                data_text(training.config["data"], training.bank),
                given,
                f"{training.steps}",
                f"{training.seconds / 60:.2f}",
                training.device,
                found.hash[:8],
            ]
        )
    headings = ["network", "trained on", "given", "steps", "minutes", "on", "weights"]
    return markdown_table(headings, rows, words=(0, 1, 5, 6))


def data_text(data: dict[str, Any], bank: str) -> str:
    """The data of a training run in words."""
    height, width = data["size"]
    what = "generated scenes" if data["source"] == LAYERED else data["source"]
    if bank:
        what += " with pictures of a bank"
    if data.get("distinct"):
        what += f", {data['distinct']:,} distinct ones"
    return f"{what}, {height}×{width}, {data['batch']} to a step"


def comparison_table(comparisons: dict[tuple[str, float], Comparison], base: str) -> str:
    """Who is ahead of the base and who behind, by data set and density, and whether the paper has it so."""
    rows = []
    for (dataset, density), found in comparisons.items():
        here, paper = found.here, found.paper
        printed = f"{names_text(paper.ahead)} / {names_text(paper.behind)}" if any((paper.ahead, paper.behind)) else "–"
        places = [names_text(here.ahead), names_text(here.level), names_text(here.behind)]
        rows.append([dataset, case_text(density), *places, printed, found.verdict])
    headings = ["data set", "given", f"ahead of {base}", "level", "behind", "paper: ahead / behind", "as in the paper"]
    return markdown_table(headings, rows, words=range(len(headings)))


def counterpart(tables: Iterable[PaperTable], dataset: str, figure: str = "epe") -> PaperTable | None:
    """The paper's table of a data set; for generated scenes, the one of its training's domain."""
    wanted = _TRAINING_DOMAIN if dataset == GENERATED else dataset
    return next((table for table in tables if table.figure == figure and table.is_of(wanted)), None)


def ablations_of(tables: Iterable[PaperAblations], dataset: str) -> PaperAblations | None:
    """The half of the paper's Table 2 that belongs to a data set, in the same way."""
    wanted = _TRAINING_DOMAIN if dataset == GENERATED else dataset
    return next((table for table in tables if table.is_of(wanted)), None)


def dataset_title(dataset: str, paper: PaperTable | PaperAblations | None) -> str:
    """The title of a block: the data set, and which of the paper's its figures stand beside."""
    if paper is None:
        return f"{dataset} (not in the paper)"
    if dataset == GENERATED:
        return f"{dataset}, the training's domain (in the paper FlyingThings3D)"
    return dataset


def label(name: str) -> str:
    """What to call a contender in a table."""
    return CONTENDERS[name].label if name in CONTENDERS else name


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A figure as text, a dash for None."""
    return "–" if value is None else f"{value:{'+' if sign else ''}z.{digits}f}"


def _devices(session: Session, means: Means | None) -> str:
    """The devices that runs were made on, in words; of another machine only the kind is known."""
    own = session.machine.device
    names = {own: f"{own} ({device_name(torch.device(own))})"}
    made_on = means.devices if means is not None else [own]
    return ", ".join(names.get(device, f"{device} of another machine") for device in made_on) or names[own]


def _budget_note(trained: Sequence[Trained]) -> list[str]:
    """A warning where networks were not all trained for as long as each other."""
    known = [found.training for found in trained if found.training is not None]
    schedules = [training.config["schedule"] for training in known]
    goals = {budget_text(schedule["minutes"], schedule["steps"]) for schedule in schedules}
    if len(goals) > 1:
        return [f"**The networks had different budgets: {', '.join(sorted(goals))}.**"]
    if len(known) < len(trained):
        return ["Of weights that were made elsewhere nothing is known but the file."]
    return []


def _failures(means: Means) -> list[str]:
    return [
        f"- {label(column)} failed on {mean.failures} of {mean.frames} frames of {dataset} at {case_text(case)}; its "
        f"mean is of the others: {mean.error}"
        for (column, dataset, case), mean in means.failures.items()
    ]
