"""The paper's Figure 4: parameters and inference time of the methods, ours and the paper's side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flowinpaint.baselines.pd.config import paper_pd_config
from flowinpaint.evaluation.paper_figures import PAPER_COSTS, PaperCost
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.networks.registry import ModelConfig
from flowinpaint.reproduction.drawing import LOOKS, render
from flowinpaint.reproduction.experiment import (
    FAMILIES,
    METHODS,
    MIDDLE,
    NETWORKS,
    OURS,
    PD,
    explicit_parameters,
    network_at,
)
from flowinpaint.reproduction.page import Page
from flowinpaint.reproduction.ranking import compare, names_text
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.timing import (
    TIMES,
    InferenceTime,
    count_parameters,
    measure_time,
    planned_time,
    read_times,
    write_times,
)
from flowinpaint.text_tables import markdown_table
from flowinpaint.viz.plots import can_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bars = dict[str, dict[str, tuple[float, str]]]
"""Values and a prefix of their text, by group and name of the method."""

_SIZE = (13.0, 3.8)
_PAPER = "paper"
PAPER_SIZED_PD = "pd-paper"
"""PD with the paper's number of parameters; the one that is trained here is smaller."""
_INTRODUCTION = (
    "Learned parameters, counted from the modules, and the median time of one call, with tensors on the device in and "
    "out. The paper states neither size nor device of its times; it trained on an A100, at 384×384. It has no times of "
    "methods without a network, nor of `neuroexplicit` and `neuroexplicit-paper`, which are shipped with the package "
    "and take more steps than Ours. AMLE always runs on the CPU."
)
_REMARKS = {
    OURS: "The paper's 1,311,635 parameters of Ours include, by the authors' code, the diffusion blocks of +W. The "
    "network here does not have them.",
    PAPER_SIZED_PD: "The paper's PD is larger than the one trained here. `PD, paper's size` has about as many "
    "parameters and is not trained, since weights do not change the time.",
}
"""Remarks on methods of the table."""


@dataclass(frozen=True)
class Cost:
    """A method's number of parameters, 0 without a network, and its inference times.

    method: the compared method that it belongs to. model: a network's configuration, or the name of a method without
    one; settings: parameters of the timed call.
    """

    name: str
    label: str
    method: str
    model: ModelConfig | str
    settings: Mapping[str, float | str]
    parameters: int
    times: tuple[InferenceTime, ...] = ()

    @property
    def printed(self) -> PaperCost | None:
        """The paper's values."""
        return PAPER_COSTS.get(METHODS[self.method].paper)

    def milliseconds(self, machine: str) -> float | None:
        """The time on a machine."""
        return next((time.milliseconds for time in self.times if time.machine == machine), None)


def figure_cost(session: Session) -> Page:
    """Parameters, and the time of one call of each method, measured or read from a file."""
    costs = measure_costs(session)
    lines = [
        f"- A field of {time.size}×{time.size} with {100 * time.density:g} % given, on {time.device} ({time.machine}); "
        f"flowinpaint {time.version}, torch {time.torch}."
        for cost in costs
        for time in cost.times
    ]
    paragraphs = [
        "# Figure 4: parameters and inference time",
        _INTRODUCTION,
        cost_table(costs),
        *(_REMARKS[cost.name] for cost in costs if cost.name in _REMARKS),
        *_extrapolated(costs),
        *_comparisons(costs),
        *_not_timed(session),
        *(["## What was measured", "\n".join(dict.fromkeys(lines))] if lines else []),
    ]
    pictures = None
    if can_plot() and any(cost.parameters or cost.times for cost in costs):
        pictures = partial(render, partial(draw_costs, costs=costs), _SIZE, session.scale.rehearsal)
    return Page("figure-cost", _rows(costs), paragraphs, pictures, "Parameters and milliseconds, logarithmic bars")


def measure_costs(session: Session) -> list[Cost]:
    """The costs of all methods; unknown times are measured and kept."""
    size, device = session.scale.crop, torch.device(session.run_options.device)
    path = session.out / TIMES
    own = read_times(path) if path.is_file() else []
    others = [time for file in session.times for time in read_times(file)]
    matching = 0
    costs = []
    for cost in _costs(session):
        settings = dict(cost.settings)
        wanted = planned_time(cost.name, cost.model, settings, size, MIDDLE, device)
        known = [time for time in own if time.unmeasured == wanted.unmeasured]
        if not known and not session.methods.obstacle(cost.method):
            session.callbacks.note(f"Timing {cost.label} at {size}×{size} on {wanted.machine}.")
            found = measure_time(cost.model, settings, size, MIDDLE, device, session.scale.repeats)
            known = [replace(wanted, milliseconds=1000 * found.seconds, calls=found.calls, share=found.share)]
            own = [*own, *known]
            write_times(path, own)
        elsewhere = [time for time in others if (time.name, time.model, time.size) == (cost.name, wanted.model, size)]
        matching += len(elsewhere)
        first_by_machine = {time.machine: time for time in reversed([*known, *elsewhere])}
        costs.append(replace(cost, times=tuple(first_by_machine.values())[::-1]))
    if others and not matching:
        session.callbacks.note_once(f"--times has no time of these methods at {size}×{size}, and is left out.")
    return costs


def _costs(session: Session) -> list[Cost]:
    """The methods to time: networks of the families first, as in the paper."""
    costs = []
    for method in session.methods.among([*FAMILIES, *(name for name in METHODS if name not in FAMILIES)]):
        name, config, settings = method.name, None, dict[str, float | str]()
        if name == PD and BUILTIN[PD].not_installed():
            continue
        if method.family:
            config = session.methods.networks.config(NETWORKS[network_at(method.family, MIDDLE)]).model
            settings = session.scale.sampling_of(method.family)
        elif BUILTIN[name].is_network:
            config = BUILTIN[name].config
        else:
            settings = explicit_parameters(name, MIDDLE)
        parameters = 0 if config is None else count_parameters(config)
        costs.append(Cost(name, method.label, name, config or name, settings, parameters))
        if name == PD and not session.scale.rehearsal:
            large = paper_pd_config()
            costs.append(Cost(PAPER_SIZED_PD, "PD, paper's size", PD, large, {}, count_parameters(large)))
    return costs


def cost_table(costs: Sequence[Cost]) -> str:
    """Parameters and times of each method next to the paper's."""
    machines = _machines(costs)
    rows = []
    for cost in costs:
        printed = cost.printed
        by_machine = {time.machine: _milliseconds(time) for time in cost.times}
        rows.append(
            [
                cost.label,
                f"{cost.parameters:,}" if cost.parameters else "–",
                f"*{printed.parameters:,}*" if printed else "–",
                *(by_machine.get(machine, "–") for machine in machines),
                f"*{printed.milliseconds:,.2f}*" if printed else "–",
            ]
        )
    headings = ["method", "parameters", "paper", *(f"ms on {machine}" for machine in machines), "paper"]
    return markdown_table(headings, rows)


def _milliseconds(time: InferenceTime) -> str:
    return f"{time.milliseconds:,.2f}" if time.share == 1 else f"≈ {float(f'{time.milliseconds:.3g}'):,.0f}"


def _extrapolated(costs: Sequence[Cost]) -> list[str]:
    texts = [
        f"≈: extrapolated from {100 * time.share:.0f} % of the iterations of {cost.label} on {time.machine}; all "
        "iterations do the same work."
        for cost in costs
        for time in cost.times
        if time.share < 1
    ]
    return ["\n".join(texts)] if texts else []


def _not_timed(session: Session) -> list[str]:
    methods = session.methods
    reasons = {method.label: reason for method in methods.among() if (reason := methods.obstacle(method.name))}
    return ["\n".join(f"- {name} was not timed here: {reason}." for name, reason in reasons.items())] if reasons else []


def _comparisons(costs: Sequence[Cost]) -> list[str]:
    """Networks that are smaller and faster than ours, here and in the paper."""
    trained = [(cost, cost.printed) for cost in costs if cost.printed and cost.name != PAPER_SIZED_PD]
    base = next((cost.label for cost, _ in trained if cost.name == OURS), "")
    if not base:
        return []
    sizes = {cost.label: paper.parameters for cost, paper in trained}
    speeds = {cost.label: paper.milliseconds for cost, paper in trained}
    found = {"parameters": compare({cost.label: cost.parameters for cost, _ in trained}, sizes, base)}
    for machine in _machines([cost for cost, _ in trained]):
        here = {cost.label: cost.milliseconds(machine) for cost, _ in trained}
        found[f"milliseconds on {machine}"] = compare(here, speeds, base)
    rows = [[name, names_text(c.here.ahead), names_text(c.here.behind), c.verdict] for name, c in found.items()]
    table = markdown_table(["figure", "less than Ours", "more", "as in the paper"], rows, words=range(4))
    return ["## Smaller and faster than Ours", table]


def _rows(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Rows of the CSV file."""
    rows = []
    for cost in costs:
        printed = cost.printed
        row: dict[str, Any] = {
            "method": cost.name,
            "parameters": cost.parameters or None,
            "paper_parameters": printed.parameters if printed else None,
            "paper_milliseconds": printed.milliseconds if printed else None,
        }
        names = ("milliseconds", "calls", "share", "size", "device", "machine", "torch")
        times = [{"share_run" if n == "share" else n: getattr(time, n) for n in names} for time in cost.times]
        rows += [row | time for time in times or [{}]]
    return rows


def _machines(costs: Sequence[Cost]) -> list[str]:
    return list(dict.fromkeys(time.machine for cost in costs for time in cost.times))


def draw_costs(figure: Figure, costs: Sequence[Cost]) -> None:
    """Logarithmic bars of parameters and of milliseconds: first those measured here, then the paper's."""
    learned = [cost for cost in costs if cost.parameters]
    sizes: Bars = {
        "here": {cost.name: (cost.parameters, "") for cost in learned},
        _PAPER: {cost.name: (cost.printed.parameters, "") for cost in learned if cost.printed},
    }
    speeds: Bars = {
        machine: {
            c.name: (t.milliseconds, "≈ " * (t.share < 1)) for c in costs for t in c.times if t.machine == machine
        }
        for machine in _machines(costs)
    }
    speeds[_PAPER] = {cost.name: (cost.printed.milliseconds, "") for cost in costs if cost.printed}
    panels = [("learned parameters", learned, sizes), ("milliseconds a call", list(costs), speeds)]
    panels = [panel for panel in panels if any(panel[2].values())]
    grid = figure.subplots(1, len(panels), width_ratios=[len(own) for _, own, _ in panels], squeeze=False)
    for axes, (title, own, groups) in zip(grid[0], panels, strict=True):
        _draw_bars(axes, own, {name: values for name, values in groups.items() if values}, title)


def _draw_bars(axes: Axes, costs: Sequence[Cost], groups: Bars, title: str) -> None:
    """A bar for each method of each group, with its value above it."""
    width = 0.8 / len(groups)
    above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 6.5, "rotation": 90}
    for place, (name, values) in enumerate(groups.items()):
        strength, hatch = (0.3, "//") if name == _PAPER else (1.0 - 0.3 * place, "")
        for i, cost in enumerate(costs):
            if cost.name not in values:
                continue
            value, prefix = values[cost.name]
            colour = LOOKS[cost.method].colour
            there = [other for other, own in groups.items() if cost.name in own]
            x = i + (there.index(name) - (len(there) - 1) / 2) * width
            look = (colour, strength)
            axes.bar(x, value, width * 0.92, color=look, edgecolor=colour, hatch=hatch, linewidth=0.6)
            axes.annotate(prefix + _short(value), (x, value), (0, 3), **above)
        axes.bar(0, 0, color=("#555555", strength), edgecolor="#555555", hatch=hatch, label=name)
    labels = [cost.label.replace(", ", ",\n").replace("-", "-\n") for cost in costs]
    axes.set(yscale="log", title=title)
    axes.set_xticks(range(len(costs)), labels, rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.2)
    axes.legend(loc="upper left", fontsize=7)


def _short(value: float) -> str:
    """A number in few letters: 8.8M, 17.6."""
    limit, unit = next(((limit, unit) for limit, unit in ((1e6, "M"), (1e3, "k")) if value >= limit), (1.0, ""))
    return f"{value / limit:.3g}{unit}"
