"""The paper's Figure 4: parameters and inference time of the methods, ours and the paper's side by side."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flowinpaint.baselines.pd.config import paper_pd_config
from flowinpaint.data.folder import stable_seed
from flowinpaint.evaluation.paper_figures import PAPER_COSTS, PaperCost
from flowinpaint.machine import device_name
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
    label,
    network_at,
)
from flowinpaint.reproduction.page import Page, paragraph
from flowinpaint.reproduction.ranking import AHEAD, BEHIND, compare, names_at
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.timing import (
    TIMES,
    InferenceTime,
    count_parameters,
    measure_time,
    read_times,
    write_times,
)
from flowinpaint.text_tables import NONE, markdown_table
from flowinpaint.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (13.0, 3.8)
_HERE, _PAPER = "here", "paper"
PAPER_SIZED_PD = "pd-paper"
"""PD with the paper's number of parameters; the network trained here is smaller."""
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
    """A method and the times of its calls.

    method: the compared method that it belongs to. model: the configuration of a network, or the name of a method
    without a network; settings: parameters of the timed call.
    """

    name: str
    label: str
    method: str
    model: ModelConfig | str
    settings: dict[str, Any]
    times: dict[str, InferenceTime] = field(default_factory=dict)
    """Times by machine."""

    def planned(self, size: int, device: str) -> InferenceTime:
        """A measurement to make."""
        model = f"{stable_seed(str(self.model), str(sorted(self.settings.items()))):016x}"
        machine, versions = device_name(device), (torch.__version__, __version__)
        return InferenceTime(self.name, model, size, MIDDLE, device, machine, *versions)

    @property
    def printed(self) -> PaperCost | None:
        """The paper's values."""
        return PAPER_COSTS.get(label(self.method))

    @property
    def parameters(self) -> int:
        """The number of learned parameters; 0 without a network."""
        return 0 if isinstance(self.model, str) else count_parameters(self.model)

    @property
    def sizes(self) -> dict[str, float]:
        """The number of parameters, here and in the paper; nothing without a network."""
        here: dict[str, float] = {_HERE: self.parameters} if self.parameters else {}
        return here | ({_PAPER: self.printed.parameters} if here and self.printed else {})

    @property
    def speeds(self) -> dict[str, float]:
        """The milliseconds on each machine, and in the paper."""
        here = {machine: time.milliseconds for machine, time in self.times.items()}
        return here | ({_PAPER: self.printed.milliseconds} if self.printed else {})


def figure_cost(session: Session) -> Page:
    """Parameters, and the time of one call of each method, measured or read from a file."""
    costs = measure_costs(session)
    lines = [
        f"- A field of {time.size}×{time.size} with {100 * time.density:g} % given, on {time.device} ({time.machine}); "
        f"flowinpaint {time.version}, torch {time.torch}."
        for cost in costs
        for time in cost.times.values()
    ]
    extrapolated = [
        f"≈: extrapolated from {100 * time.share:.0f} % of the iterations of {cost.label} on {time.machine}; all "
        "iterations do the same work."
        for cost in costs
        for time in cost.times.values()
        if time.share < 1
    ]
    obstacles = {label(name): session.obstacle(name) for name in session.among()}
    not_timed = [f"- {name} was not timed here: {reason}." for name, reason in obstacles.items() if reason]
    paragraphs = [
        "# Figure 4: parameters and inference time",
        _INTRODUCTION,
        cost_table(costs),
        *(_REMARKS[cost.name] for cost in costs if cost.name in _REMARKS),
        *paragraph(extrapolated),
        *_comparisons(costs),
        *paragraph(not_timed),
        *paragraph(dict.fromkeys(lines), "## What was measured"),
    ]
    drawn = any(cost.parameters or cost.times for cost in costs)
    pictures = partial(render, partial(draw_costs, costs=costs), _SIZE, session.scale.rehearsal) if drawn else dict
    return Page(_rows(costs), paragraphs, pictures, "Parameters and milliseconds, logarithmic bars")


def measure_costs(session: Session) -> list[Cost]:
    """The costs of all methods; missing times are measured and saved."""
    size, path = session.scale.crop, session.out / TIMES
    own = read_times(path) if path.is_file() else []
    others = [time for file in session.times for time in read_times(file)]
    matching = 0
    costs = []
    for cost in _costs(session):
        planned = cost.planned(size, session.run_options.device)
        known = [time for time in own if time.planned == planned]
        if not known and not session.obstacle(cost.method):
            session.callbacks.note(f"Timing {cost.label} at {size}×{size} on {planned.machine}.")
            known = [measure_time(planned, cost.model, cost.settings, session.scale.repeats)]
            gc.collect()  # the paper's PD has 4 GB of weights
            own = [*own, *known]
            write_times(path, own)
        elsewhere = [time for time in others if (time.name, time.model, time.size) == (cost.name, planned.model, size)]
        matching += len(elsewhere)
        for time in (*known, *elsewhere):
            cost.times.setdefault(time.machine, time)
        costs.append(cost)
    if others and not matching:
        session.callbacks.note_once(f"--times has no time of these methods at {size}×{size}, and is left out.")
    return costs


def _costs(session: Session) -> list[Cost]:
    """The methods to time: networks of the families first, as in the paper."""
    costs = []
    for name in session.among([*FAMILIES, *(name for name in METHODS if name not in FAMILIES)]):
        if name == PD and BUILTIN[PD].not_installed():
            continue
        if name in FAMILIES:
            config = session.networks.config(NETWORKS[network_at(name, MIDDLE)]).model
            costs.append(Cost(name, label(name), name, config, session.scale.sampling_of(name)))
        else:
            costs.append(Cost(name, label(name), name, BUILTIN[name].config or name, explicit_parameters(name, MIDDLE)))
        if name == PD and not session.scale.rehearsal:
            costs.append(Cost(PAPER_SIZED_PD, "PD, paper's size", PD, paper_pd_config(), {}))
    return costs


def cost_table(costs: Sequence[Cost]) -> str:
    """Parameters and times of each method next to the paper's."""
    machines = list(dict.fromkeys(machine for cost in costs for machine in cost.times))
    rows = []
    for cost in costs:
        printed = cost.printed
        times = [_milliseconds(cost.times[machine]) if machine in cost.times else NONE for machine in machines]
        here = f"{cost.parameters:,}" if cost.parameters else NONE
        paper = (f"*{printed.parameters:,}*", f"*{printed.milliseconds:,.2f}*") if printed else (NONE, NONE)
        rows.append([cost.label, here, paper[0], *times, paper[1]])
    headings = ["method", "parameters", "paper", *(f"ms on {machine}" for machine in machines), "paper"]
    return markdown_table(headings, rows)


def _milliseconds(time: InferenceTime) -> str:
    return f"{time.milliseconds:,.2f}" if time.share == 1 else f"≈ {float(f'{time.milliseconds:.3g}'):,.0f}"


def _comparisons(costs: Sequence[Cost]) -> list[str]:
    """Networks that are smaller and faster than ours, here and in the paper."""
    trained = [cost for cost in costs if cost.printed and cost.name != PAPER_SIZED_PD]
    if OURS not in [cost.name for cost in trained]:
        return []
    rows = []
    for figure, values in (("parameters", [c.sizes for c in trained]), ("milliseconds", [c.speeds for c in trained])):
        by_group = {
            group: {cost.label: own.get(group) for cost, own in zip(trained, values, strict=True)}
            for group in _groups(values)
        }
        paper = by_group.pop(_PAPER)
        for group, here in by_group.items():
            found = compare(here, paper, label(OURS))
            title = figure if group == _HERE else f"{figure} on {group}"
            rows.append([title, *names_at(found.here, AHEAD, BEHIND), found.verdict])
    table = markdown_table(["figure", "less than Ours", "more", "as in the paper"], rows, words=range(4))
    return ["## Smaller and faster than Ours", table]


def _rows(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Rows of the CSV file."""
    rows = []
    for cost in costs:
        row: dict[str, Any] = {
            "method": cost.name,
            "parameters": cost.sizes.get(_HERE),
            "paper_parameters": cost.sizes.get(_PAPER),
            "paper_milliseconds": cost.speeds.get(_PAPER),
        }
        names = ("milliseconds", "calls", "share", "size", "device", "machine", "torch")
        times = [{"share_run" if n == "share" else n: getattr(time, n) for n in names} for time in cost.times.values()]
        rows += [row | time for time in times or [{}]]
    return rows


def _groups(values: Sequence[Mapping[str, float]]) -> list[str]:
    """The keys of all values, the paper last."""
    return sorted(dict.fromkeys(group for own in values for group in own), key=lambda group: group == _PAPER)


def draw_costs(figure: Figure, costs: Sequence[Cost]) -> None:
    """Logarithmic bars of parameters and of milliseconds: first those measured here, then the paper's."""
    learned = [cost for cost in costs if cost.parameters]
    panels = [
        ("learned parameters", learned, [cost.sizes for cost in learned]),
        ("milliseconds a call", costs, [cost.speeds for cost in costs]),
    ]
    panels = [panel for panel in panels if any(panel[2])]
    grid = figure.subplots(1, len(panels), width_ratios=[len(own) for _, own, _ in panels], squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw_bars(axes, *panel)


def _draw_bars(axes: Axes, title: str, costs: Sequence[Cost], values: Sequence[Mapping[str, float]]) -> None:
    """One bar per method and group, with its value above it."""
    groups = _groups(values)
    width = 0.8 / len(groups)
    above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 6.5, "rotation": 90}
    for place, group in enumerate(groups):
        strength, hatch = (0.3, "//") if group == _PAPER else (1.0 - 0.3 * place, "")
        for i, (cost, own) in enumerate(zip(costs, values, strict=True)):
            if group not in own:
                continue
            colour = LOOKS[cost.method].colour
            there = [other for other in groups if other in own]
            x = i + (there.index(group) - (len(there) - 1) / 2) * width
            look = (colour, strength)
            axes.bar(x, own[group], width * 0.92, color=look, edgecolor=colour, hatch=hatch, linewidth=0.6)
            prefix = "≈ " if group in cost.times and cost.times[group].share < 1 else ""
            axes.annotate(prefix + _short(own[group]), (x, own[group]), (0, 3), **above)
        axes.bar(0, 0, color=("#555555", strength), edgecolor="#555555", hatch=hatch, label=group)
    labels = [cost.label.replace(", ", ",\n").replace("-", "-\n") for cost in costs]
    axes.set(yscale="log", title=title)
    axes.set_xticks(range(len(costs)), labels, rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.2)
    axes.legend(loc="upper left", fontsize=7)


def _short(value: float) -> str:
    """A number in few characters: 8.8M, 17.6."""
    limit, unit = next(((limit, unit) for limit, unit in ((1e6, "M"), (1e3, "k")) if value >= limit), (1.0, ""))
    return f"{value / limit:.3g}{unit}"
