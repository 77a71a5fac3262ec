"""Pages: NAME.csv, NAME.md, NAME.png and NAME.svg of a table or figure, all created before the first is written."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flowinpaint.io import make_folder, publishing
from flowinpaint.io.files import write_bytes
from flowinpaint.machine import device_name
from flowinpaint.masks.cases import case_text
from flowinpaint.reproduction.drawing import Pictures
from flowinpaint.reproduction.experiment import PD, budget_text, label
from flowinpaint.reproduction.frames import FrameSet
from flowinpaint.reproduction.networks import TrainedNetwork
from flowinpaint.reproduction.runs import Means
from flowinpaint.reproduction.session import Session
from flowinpaint.text_tables import markdown_table, wrapped
from flowinpaint.training.config import GENERATED as LAYERED
from flowinpaint.version import __version__

_REHEARSAL = (
    "**This is a rehearsal (`--quick`): tiny networks, trained for a moment, on a few small frames. Its results are "
    "meaningless; it only shows that every step works.**"
)


@dataclass(frozen=True)
class Page:
    """Rows of the CSV file, paragraphs of the Markdown page, and pictures, empty if they cannot be drawn.

    alternative: the alternative text of the picture.
    """

    rows: list[dict[str, Any]]
    paragraphs: list[str]
    pictures: Callable[[], Pictures]
    alternative: str


def write_page(path: Path, page: Page, rehearsal: bool) -> list[Path]:
    """Write a page's files, `path` with their suffixes, and return them; outdated pictures are removed."""
    pictures = page.pictures()
    head, *rest = page.paragraphs
    image = f"![{page.alternative}]({path.name}.png)"
    none = "No picture was drawn; it needs matplotlib, the extra `plots`."
    parts = [head, *([_REHEARSAL] if rehearsal else []), image if pictures else none, *rest]
    text = "\n\n".join(map(wrapped, parts)) + "\n"
    rows = [{**row, "version": __version__, "rehearsal": "yes" if rehearsal else "no"} for row in page.rows]
    table = io.StringIO()
    writer = csv.DictWriter(table, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    make_folder(path.parent)
    contents = {".csv": table.getvalue().encode(), ".md": text.encode(), **pictures}
    with publishing():
        for suffix, content in contents.items():
            write_bytes(path.with_suffix(suffix), content)
    for suffix in {".png", ".svg"} - pictures.keys():
        path.with_suffix(suffix).unlink(missing_ok=True)
    return [path.with_suffix(suffix) for suffix in contents]


def paragraph(lines: Iterable[str], *heading: str) -> list[str]:
    """Lines as a paragraph below a heading; empty without lines."""
    text = "\n".join(lines)
    return [*heading, text] if text else []


def provenance(session: Session, frames: FrameSet, means: Means | None, networks: Iterable[str]) -> list[str]:
    """Paragraphs on frames, devices, the training of the networks, and missing methods."""
    lines = [
        *(f"- **{name}**, {text}." for name, text in frames.about.items()),
        "- The given share is of all pixels, drawn among those with ground truth. Masks come from the frames' files "
        f"where they exist, otherwise from seed {session.run_options.seed}.",
        "- EPE (px) covers all pixels with ground truth, including the given ones, as in the paper.",
        f"- Filled on {_devices(session, means)}; flowinpaint {__version__}, torch {torch.__version__}.",
    ]
    failures = [
        f"- {label(column)} failed on {mean.failures} of {mean.frames} frames of {dataset} at {case_text(case)}; the "
        f"mean covers the others: {mean.error}"
        for (column, dataset, case), mean in (means or {}).items()
        if mean.failures
    ]
    missing = [f"- {label(name)} is left out: {reason}." for name, reason in session.missing.items()]
    parts = [*paragraph(lines, "## What was measured"), *paragraph(failures), *paragraph(missing)]
    trained = [found for name in dict.fromkeys(networks) if (found := session.networks.find(name)) is not None]
    if trained:
        parts += ["## How the networks were trained", _networks_table(trained), *_budget_note(trained)]
    return parts


def _networks_table(trained: Sequence[TrainedNetwork]) -> str:
    """A line per network: its data, masks, budget, and machine."""
    rows = []
    for found in trained:
        training = found.training
        if training is None:
            rows.append([found.spec.name, "weights made elsewhere", "–", "–", "–", "–", found.hash[:8]])
            continue
        low, high = training.config["masks"]["density"]
        given = f"{100 * low:g} %" if low == high else f"{100 * low:g} to {100 * high:g} %"
        data = _data_text(training.config["data"], training.bank)
        budget = [f"{training.steps}", f"{training.seconds / 60:.2f}", training.device]
        rows.append([found.spec.name, data, "–" if found.spec.family == PD else given, *budget, found.hash[:8]])
    headings = ["network", "trained on", "given", "steps", "minutes", "on", "weights"]
    return markdown_table(headings, rows, words=(0, 1, 5, 6))


def _data_text(data: dict[str, Any], bank: str) -> str:
    """The data of a training run in words."""
    height, width = data["size"]
    source = "generated scenes" if data["source"] == LAYERED else data["source"]
    pictures = " with pictures of a bank" if bank else ""
    distinct = f", {data['distinct']:,} distinct ones" if data.get("distinct") else ""
    return f"{source}{pictures}{distinct}, {height}×{width}, {data['batch']} to a step"


def _devices(session: Session, means: Means | None) -> str:
    """The devices of the runs in words; for another machine only the device type is known."""
    own = session.run_options.device
    names = {own: f"{own} ({device_name(own)})"}
    devices = means.devices if means is not None else [own]
    return ", ".join(names.get(device, f"{device} of another machine") for device in devices) or names[own]


def _budget_note(trained: Sequence[TrainedNetwork]) -> list[str]:
    """A warning unless all networks are known to have the same budget."""
    known = [found.training for found in trained if found.training is not None]
    schedules = [training.config["schedule"] for training in known]
    budgets = {budget_text(schedule["minutes"], schedule["steps"]) for schedule in schedules}
    if len(budgets) > 1:
        return [f"**The networks had different budgets: {', '.join(sorted(budgets))}.**"]
    if len(known) < len(trained):
        return ["The training of weights made elsewhere is unknown."]
    return []
