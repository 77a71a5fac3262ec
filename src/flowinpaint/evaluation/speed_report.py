"""The figures of `flowinpaint speed` as tables, Markdown and JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flowinpaint.evaluation.report import TextTable, machine
from flowinpaint.evaluation.speed import Measurement, Timing
from flowinpaint.evaluation.speed_cells import Cell
from flowinpaint.evaluation.speed_floor import Rates
from flowinpaint.evaluation.speed_sizes import ManySizes

COUNT_HEADINGS = ("Gop", "MB moved")
HEADINGS = [
    *("method", "median ms", "quartiles", "inpaint ms", "first s", "memory MB"),
    *COUNT_HEADINGS,
    *("floor ms", "× floor"),
]
CPU_MODEL = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Growth:
    """A method's time as a power of the number of pixels, fitted over its sizes."""

    method: str
    device: str
    precision: str
    exponent: float
    pixels: list[int]
    seconds: list[float]

    @property
    def label(self) -> str:
        """Whose growth it is, in a few words."""
        return f"{label(self.method, self.precision)}, {self.device}"


def label(method: str, precision: str) -> str:
    """A method with its precision, if that is not the usual one."""
    return method if precision == "auto" else f"{method} {precision}"


def speed_tables(measured: Sequence[Measurement]) -> list[TextTable]:
    """One table per device and size, the methods in the order they were asked for."""
    tables = []
    for device, height, width in dict.fromkeys((m.cell.device, m.cell.height, m.cell.width) for m in measured):
        rows = [_row(m) for m in measured if (m.cell.device, m.cell.height, m.cell.width) == (device, height, width)]
        title = f"{height}×{width} ({height * width / 1e6:.2g} Mpx) on {device_name(device)}"
        tables.append(TextTable(title, HEADINGS, rows))
    return tables


def growths(measured: Sequence[Measurement]) -> list[Growth]:
    """The growth of each method, device and precision that was timed at two numbers of pixels or more."""
    points: dict[tuple[str, str, str], dict[int, float]] = {}
    for m in measured:
        if m.call is not None:
            times = points.setdefault((m.cell.method, m.cell.device, m.cell.precision), {})
            times[m.cell.height * m.cell.width] = m.call.median
    fitted = []
    for key, times in points.items():
        pixels = sorted(times)
        if len(pixels) > 1:
            seconds = [times[n] for n in pixels]
            slope = np.polynomial.Polynomial.fit(np.log(pixels), np.log(seconds), 1).convert().coef[1]
            fitted.append(Growth(*key, float(slope), pixels, seconds))
    return fitted


def sentences(rates: Sequence[Rates], grown: Sequence[Growth], many: Sequence[ManySizes]) -> list[str]:
    """What stands below the tables: the machine's rates, growth, and many sizes in a row."""
    return [
        *(
            f"{r.device} copies {r.copy / 1e9:.4g} GB/s and multiplies {r.dtype} matrices at {r.matrix / 1e12:.3g} "
            "Top/s."
            for r in rates
        ),
        *(
            f"{g.label}: time grows as N^{g.exponent:.2f} from {g.pixels[0] / 1e6:.2g} to {g.pixels[-1] / 1e6:.2g} Mpx."
            for g in grown
        ),
        *(
            f"{m.method}, {m.device}: {len(m.sizes)} sizes in a row, with sides of {min(map(min, m.sizes))} to "
            f"{max(map(max, m.sizes))} px, took {sum(m.first[1:]):.3g} s after the first ({m.first[0]:.3g} s), "
            f"{m.ratio:.2f} times their steady {sum(m.steady[1:]):.3g} s."
            for m in many
            if m.ratio is not None
        ),
    ]


def as_markdown(tables: Sequence[TextTable], below: Sequence[str]) -> str:
    """The tables and what stands below them."""
    parts = ["# Speed"]
    for table in tables:
        rule = "|" + "|".join("---" if i == 0 else "--:" for i in range(len(table.headings))) + "|"
        lines = ["| " + " | ".join(cells) + " |" for cells in (table.headings, *table.rows)]
        parts += [f"## {table.title}", "\n".join([lines[0], rule, *lines[1:]])]
    return "\n\n".join([*parts, "\n".join(f"- {sentence}" for sentence in below)]) + "\n"


def as_json(
    settings: dict[str, Any],
    measured: Sequence[Measurement],
    rates: Sequence[Rates],
    grown: Sequence[Growth],
    many: Sequence[ManySizes],
) -> str:
    """Everything, each sample included; times are in seconds."""
    content = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": speed_machine([rate.device for rate in rates]),
        "settings": settings,
        "rates": [asdict(rate) for rate in rates],
        "cells": [_cell_json(m) for m in measured],
        "growth": [asdict(g) for g in grown],
        "many_sizes": [asdict(m) | {"ratio": m.ratio} for m in many],
    }
    return json.dumps(content, indent=1) + "\n"


def speed_machine(devices: Sequence[str]) -> dict[str, Any]:
    """Versions, the devices by name, and the threads that PyTorch uses."""
    packages: dict[str, str | None] = {}
    for package in ("triton", "numba", "opencv-contrib-python-headless"):
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = None
    names = {device: device_name(device) for device in dict.fromkeys(devices)}
    return machine([]) | packages | {"devices": names, "threads": torch.get_num_threads()}


def device_name(device: str) -> str:
    """The device in words."""
    if device.startswith("cuda"):
        return f"{device} ({torch.cuda.get_device_name(device)})"
    models = [line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")]
    return f"{device} ({models[0] if models else platform.machine()}, {torch.get_num_threads()} threads)"


def _cpu_lines() -> list[str]:
    return CPU_MODEL.read_text(encoding="utf-8").splitlines() if CPU_MODEL.exists() else []


def _row(m: Measurement) -> list[str]:
    name = label(m.cell.method, m.cell.precision)
    if m.call is None or m.floor is None:
        return [name, "failed", *[""] * (len(HEADINGS) - 2)]
    low, high = m.call.quartiles
    operations = sum(count.operations for count in m.counts)
    return [
        name,
        three_figures(1e3 * m.call.median),
        f"{three_figures(1e3 * low)}–{three_figures(1e3 * high)}",
        "–" if m.end_to_end is None else three_figures(1e3 * m.end_to_end.median),
        three_figures(m.call.first),
        "–" if m.memory is None else f"{m.memory / 1e6:.0f}",
        three_figures(operations / 1e9) if operations else "–",
        three_figures(sum(count.bytes for count in m.counts) / 1e6),
        *((three_figures(1e3 * m.floor), three_figures(m.call.median / m.floor)) if operations else ("–", "–")),
    ]


def _cell_json(m: Measurement) -> dict[str, Any]:
    cell: Cell = m.cell
    return {
        **asdict(cell),
        "call": _timing_json(m.call),
        "end_to_end": _timing_json(m.end_to_end),
        "memory": m.memory,
        "counts": [asdict(count) for count in m.counts],
        "floor": m.floor,
        "over_floor": None if m.call is None or m.floor is None else m.call.median / m.floor,
        "error": m.error,
        "notes": m.notes,
    }


def _timing_json(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    spread = {"median": timing.median, "quartiles": timing.quartiles}
    return spread | {"min": min(timing.samples), "max": max(timing.samples)} | asdict(timing)


def three_figures(value: float) -> str:
    """A number as text, without a power of ten where it is large."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
