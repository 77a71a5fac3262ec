"""Speed results as tables, sentences, Markdown, JSON and a plot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flowinpaint.machine import device_name, machine, processor_model
from flowinpaint.opencv import installed_wheels
from flowinpaint.speed.measure import SizeSweep, SpeedResult, Timing
from flowinpaint.speed.roofline import PeakRates
from flowinpaint.text_tables import NONE, TextTable, markdown_table, three_figures
from flowinpaint.viz.plots import plain_number, plot_file

COUNT_HEADINGS = ["Gop", "MB moved"]
HEADINGS = [
    *("method", "median ms", "quartiles", "inpaint ms", "first s", "memory MB"),
    *COUNT_HEADINGS,
    *("floor ms", "× floor"),
]


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
        """Method, precision if not the default, and device."""
        precision = "" if self.precision == "auto" else f" {self.precision}"
        return f"{self.method}{precision}, {self.device}"


def growths(results: Sequence[SpeedResult]) -> list[Growth]:
    """The growth of each method, device and precision that was timed at two or more numbers of pixels."""
    points = defaultdict[tuple[str, str, str], dict[int, float]](dict)
    for r in results:
        if r.call is not None:
            points[r.case.method, r.case.device, r.case.precision][r.case.height * r.case.width] = r.call.median
    fitted = []
    for key, times in points.items():
        if len(times) > 1:
            pixels, seconds = (list(column) for column in zip(*sorted(times.items()), strict=True))
            slope = np.polynomial.Polynomial.fit(np.log(pixels), np.log(seconds), 1).convert().coef[1]
            fitted.append(Growth(*key, float(slope), pixels, seconds))
    return fitted


def speed_tables(results: Sequence[SpeedResult]) -> list[TextTable]:
    """One table per device and size, with the methods in the requested order."""
    tables: dict[str, TextTable] = {}
    for r in results:
        case = r.case
        title = f"{case.height}×{case.width} ({case.height * case.width / 1e6:.2g} Mpx) on {_device_text(case.device)}"
        tables.setdefault(title, TextTable(title, HEADINGS, [])).rows.append(_row(r))
    return list(tables.values())


def _row(r: SpeedResult) -> list[str]:
    if r.call is None or r.floor is None:
        return [r.case.label, "failed", *[""] * (len(HEADINGS) - 2)]
    low, high = r.call.quartiles
    operations = sum(count.operations for count in r.counts)
    return [
        r.case.label,
        three_figures(1e3 * r.call.median),
        f"{three_figures(1e3 * low)}–{three_figures(1e3 * high)}",
        NONE if r.end_to_end is None else three_figures(1e3 * r.end_to_end.median),
        three_figures(r.call.first),
        NONE if r.memory is None else f"{r.memory / 1e6:.0f}",
        three_figures(operations / 1e9) if operations else NONE,
        three_figures(sum(count.bytes for count in r.counts) / 1e6),
        three_figures(1e3 * r.floor) if operations else NONE,
        three_figures(r.call.median / r.floor) if operations else NONE,
    ]


def sentences(rates: Sequence[PeakRates], grown: Sequence[Growth], sweeps: Sequence[SizeSweep]) -> list[str]:
    """The sentences below the tables: peak rates, growth, and many sizes in a row."""
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
            f"{s.method}, {s.device}: {len(s.sizes)} sizes in a row, with sides of {min(map(min, s.sizes))} to "
            f"{max(map(max, s.sizes))} px, took {sum(s.first[1:]):.3g} s after the first ({s.first[0]:.3g} s), "
            f"{s.ratio:.2f} times their steady {sum(s.steady[1:]):.3g} s."
            for s in sweeps
            if s.ratio is not None
        ),
    ]


def as_markdown(tables: Sequence[TextTable], below: Sequence[str]) -> str:
    """The tables, and a list of the sentences below them."""
    parts = ["# Speed"]
    for table in tables:
        parts += [f"## {table.title}", markdown_table(table.headings, table.rows)]
    return "\n\n".join([*parts, "\n".join(f"- {sentence}" for sentence in below)]) + "\n"


def as_json(
    settings: dict[str, Any],
    results: Sequence[SpeedResult],
    rates: Sequence[PeakRates],
    grown: Sequence[Growth],
    sweeps: Sequence[SizeSweep],
) -> str:
    """All measurements with all samples, settings and machine; times are in seconds."""
    packages: dict[str, str | None] = dict.fromkeys(("triton", "numba"))
    for package in packages:
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    packages |= installed_wheels()
    devices = {device: _device_text(device) for device in dict.fromkeys(rate.device for rate in rates)}
    content = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine("cpu") | packages | {"devices": devices, "threads": torch.get_num_threads()},
        "settings": settings,
        "rates": [asdict(rate) for rate in rates],
        "cells": [_result_json(r) for r in results],
        "growth": [asdict(g) for g in grown],
        "many_sizes": [asdict(s) | {"ratio": s.ratio} for s in sweeps],
    }
    return json.dumps(content, indent=1) + "\n"


def _result_json(r: SpeedResult) -> dict[str, Any]:
    content = asdict(r)
    content |= content.pop("case") | {"call": _timing_json(r.call), "end_to_end": _timing_json(r.end_to_end)}
    content["over_floor"] = None if r.call is None or r.floor is None else r.call.median / r.floor
    return content


def _timing_json(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None
    spread = {"median": timing.median, "quartiles": timing.quartiles}
    return spread | {"min": min(timing.samples), "max": max(timing.samples)} | asdict(timing)


def write_plot(path: Path, grown: Sequence[Growth]) -> None:
    """Plot time against pixels, both logarithmic, and the linear growth of the first method as a dashed line."""
    with plot_file(path) as figure:
        axes = figure.add_subplot()
        for g in grown:
            megapixels = [n / 1e6 for n in g.pixels]
            axes.plot(megapixels, [1e3 * t for t in g.seconds], "o-", label=f"{g.label}: N^{g.exponent:.2f}")
        sizes = sorted({n for g in grown for n in g.pixels})
        first = grown[0]
        guide = [1e3 * first.seconds[-1] * n / first.pixels[-1] for n in (sizes[0], sizes[-1])]
        axes.plot([sizes[0] / 1e6, sizes[-1] / 1e6], guide, "--", color="0.6", label=f"linear growth of {first.label}")
        axes.set(xscale="log", yscale="log", xlabel="megapixels", ylabel="milliseconds, median")
        axes.set_xticks([n / 1e6 for n in sizes], [f"{n / 1e6:.2g}" for n in sizes])
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_formatter(plain_number)
        axes.yaxis.set_minor_formatter(plain_number)
        axes.grid(which="both", alpha=0.3)
        axes.legend(fontsize="small")


def _device_text(device: str) -> str:
    if device.startswith("cuda"):
        return f"{device} ({device_name(device)})"
    return f"{device} ({processor_model()}, {torch.get_num_threads()} threads)"
