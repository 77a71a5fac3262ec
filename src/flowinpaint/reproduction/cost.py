"""The paper's Figure 4: parameters and inference time of the networks, ours and the paper's side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flowinpaint.baselines.pd.config import paper_pd_config
from flowinpaint.evaluation.paper_figures import PAPER_COSTS, PaperCost
from flowinpaint.evaluation.plotting import can_plot
from flowinpaint.evaluation.results_tables import markdown_table
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.networks.registry import ModelConfig
from flowinpaint.reproduction.ordering import compare
from flowinpaint.reproduction.report import Report
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import (
    CONTENDERS,
    FAMILIES,
    MIDDLE,
    NETWORKS,
    OURS,
    PD,
    explicit_parameters,
    network_at,
)
from flowinpaint.reproduction.style import LOOKS, render
from flowinpaint.reproduction.times import (
    TIMES,
    InferenceTime,
    count_parameters,
    described,
    measure_time,
    read_times,
    write_times,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (13.0, 3.8)
_PAPER = "paper"
PAPER_SIZED_PD = "pd-paper"
"""PD with as many parameters as the paper's; what is trained here is smaller."""
_REMARKS = {
    OURS: "The authors' code has the paper's 1,311,635 parameters of Ours with the diffusion blocks of +W, which the "
    "network here has not.",
    PAPER_SIZED_PD: "The paper's PD is larger than the one that is trained here; `PD, paper's size` has about as many "
    "parameters, and was not trained, since weights do not change the time.",
}
"""What is to be said of a method where it has a place in the table."""


@dataclass(frozen=True)
class Timed:
    """A method to time: a network by its configuration, or one without by its own name and parameters."""

    label: str
    contender: str
    config: ModelConfig | None
    parameters: dict[str, float | str]


@dataclass(frozen=True)
class Cost:
    """A method's parameters, 0 without a network, and the times that were measured of it.

    paper: what the paper calls it, "" where the paper has no figures of it.
    """

    name: str
    label: str
    paper: str
    look: str
    parameters: int
    times: tuple[InferenceTime, ...]

    @property
    def printed(self) -> PaperCost | None:
        """The paper's figures."""
        return PAPER_COSTS.get(self.paper)


def figure_cost(session: Session) -> Report:
    """Count parameters and time one call of each method, or take the time from a file."""
    costs = measure_costs(session)
    paragraphs = [
        "# Figure 4: parameters and inference time",
        "Learned parameters, counted from the modules, and the time of one call, a median, with tensors on the device "
        "in and out. The paper tells neither size nor device of its times; it trained on an A100, at 384×384. It has "
        "no times of methods without a network, nor of `neuroexplicit` and `neuroexplicit-paper`, which come with the "
        "package and take more steps than Ours. AMLE runs on the CPU wherever it is called.",
        cost_table(costs),
        *(_REMARKS[cost.name] for cost in costs if cost.name in _REMARKS),
        *_reckoned(costs),
        *_comparisons(costs),
        *_skipped(session),
        *_measured(costs),
    ]
    pictures = None
    if can_plot() and any(cost.parameters or cost.times for cost in costs):
        pictures = partial(render, partial(draw_costs, costs=costs), _SIZE, session.scale.rehearsal)
    return Report("figure-cost", _rows(costs), paragraphs, pictures, "Parameters and milliseconds, logarithmic bars")


def measure_costs(session: Session) -> list[Cost]:
    """The costs of all methods; times that are not known are measured and kept."""
    device = torch.device(session.machine.device)
    path = session.out / TIMES
    own = read_times(path) if path.is_file() else []
    others = [time for file in session.times for time in read_times(file)]
    taken = 0
    costs = []
    for name, method in _methods(session).items():
        model = method.config or method.contender
        wanted = described(name, model, method.parameters, session.scale.crop, MIDDLE, device)
        known = [time for time in own if time.is_of(wanted)]
        if not known and not session.obstacle(method.contender):
            session.audience.note(f"Timing {method.label} at {wanted.size}×{wanted.size} on {wanted.machine}.")
            found = measure_time(model, method.parameters, wanted.size, MIDDLE, device, session.scale.repeats)
            known = [replace(wanted, milliseconds=1000 * found.seconds, calls=found.calls, share=found.share)]
            own = [*own, *known]
            write_times(path, own)
        elsewhere = [time for time in others if (time.name, time.model, time.size) == (name, wanted.model, wanted.size)]
        taken += len(elsewhere)
        times = tuple(_by_machine([*known, *elsewhere]))
        paper = CONTENDERS[method.contender].paper
        count = 0 if method.config is None else count_parameters(method.config)
        costs.append(Cost(name, method.label, paper if paper in PAPER_COSTS else "", method.contender, count, times))
    if others and not taken:
        size = f"{session.scale.crop}×{session.scale.crop}"
        session.tell_once(f"--times: what it has is left out, since it is of other methods or sizes than {size}.")
    return costs


def cost_table(costs: Sequence[Cost]) -> str:
    """Parameters and times of each method, the paper's beside them."""
    machines = _machines(costs)
    headings = ["method", "parameters", "paper", *(f"ms on {machine}" for machine in machines), "paper"]
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
    return markdown_table(headings, rows)


def draw_costs(figure: Figure, costs: Sequence[Cost]) -> None:
    """Bars of parameters and of milliseconds, both logarithmic: first what is measured here, then the paper's."""
    learned = [cost for cost in costs if cost.parameters]
    sizes = {"here": {c.name: _Bar(c.parameters) for c in learned}}
    papers = {c.name: _Bar(c.printed.parameters) for c in learned if c.printed}
    panels = [("learned parameters", learned, sizes | {_PAPER: papers})]
    measured = {
        machine: {c.name: _Bar(t.milliseconds, t.share < 1) for c in costs for t in c.times if t.machine == machine}
        for machine in _machines(costs)
    }
    papers = {c.name: _Bar(c.printed.milliseconds) for c in costs if c.printed}
    panels.append(("milliseconds a call", list(costs), measured | {_PAPER: papers}))
    drawn = [(title, own, groups) for title, own, groups in panels if any(groups.values())]
    grid = figure.subplots(1, len(drawn), width_ratios=[len(own) for _, own, _ in drawn], squeeze=False)
    for axes, (title, own, groups) in zip(grid[0], drawn, strict=True):
        _bars(axes, own, {name: values for name, values in groups.items() if values}, title)


class _Bar(NamedTuple):
    """A value to draw, and whether it is reckoned from a part."""

    value: float
    reckoned: bool = False


def _bars(axes: Axes, costs: Sequence[Cost], groups: dict[str, dict[str, _Bar]], title: str) -> None:
    """A bar for each method of each group, its value written upright above it, where neighbours do not meet."""
    width = 0.8 / len(groups)
    for place, (name, values) in enumerate(groups.items()):
        strength = 0.3 if name == _PAPER else 1.0 - 0.3 * place
        for i, cost in enumerate(costs):
            if cost.name not in values:
                continue
            value, reckoned = values[cost.name]
            look = LOOKS[cost.look]
            there = [other for other, own in groups.items() if cost.name in own]
            x = i + (there.index(name) - (len(there) - 1) / 2) * width
            hatch = "//" if name == _PAPER else ""
            axes.bar(
                x, value, width * 0.92, color=(look.colour, strength), edgecolor=look.colour, hatch=hatch, linewidth=0.6
            )
            text = f"{'≈ ' if reckoned else ''}{_short(value)}"
            axes.annotate(text, (x, value), (0, 3), textcoords="offset points", ha="center", fontsize=6.5, rotation=90)
        axes.bar(
            0, 0, color=("#555555", strength), edgecolor="#555555", hatch="//" if name == _PAPER else "", label=name
        )
    axes.set_yscale("log")
    labels = [cost.label.replace(", ", ",\n").replace("-", "-\n") for cost in costs]
    axes.set_xticks(range(len(costs)), labels, rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
    axes.set_title(title)
    axes.margins(y=0.2)
    axes.legend(loc="upper left", fontsize=7)


def _methods(session: Session) -> dict[str, Timed]:
    """What there is to time, by name: the families' networks first, as the paper has them."""
    found: dict[str, Timed] = {}
    for c in session.contenders([*FAMILIES, *(name for name in CONTENDERS if name not in FAMILIES)]):
        if c.family:
            if c.name == PD and BUILTIN[PD].not_installed():
                continue
            config = session.shelf.config(NETWORKS[network_at(c.family, MIDDLE)]).model
            found[c.name] = Timed(c.label, c.name, config, session.scale.sampling_of(c.family))
            if c.name == PD and not session.scale.rehearsal:
                found[PAPER_SIZED_PD] = Timed("PD, paper's size", PD, paper_pd_config(), {})
        else:
            shipped = BUILTIN[c.name].config
            parameters = {} if shipped else explicit_parameters(c.name, MIDDLE)
            found[c.name] = Timed(c.label, c.name, shipped, parameters)
    return found


def _comparisons(costs: Sequence[Cost]) -> list[str]:
    """Which networks are smaller and which are faster than ours, here and in the paper."""
    trained = [cost for cost in costs if cost.printed and cost.name != PAPER_SIZED_PD]
    base = next((cost.label for cost in trained if cost.name == OURS), "")
    if not base:
        return []
    figures: dict[str, tuple[dict[str, float | None], dict[str, float | None]]] = {
        "parameters": (
            {c.label: c.parameters for c in trained},
            {c.label: c.printed.parameters for c in trained if c.printed},
        )
    }
    for machine in _machines(trained):
        own = {c.label: next((t.milliseconds for t in c.times if t.machine == machine), None) for c in trained}
        printed: dict[str, float | None] = {c.label: c.printed.milliseconds for c in trained if c.printed}
        figures[f"milliseconds on {machine}"] = own, printed
    rows = []
    for name, (here, paper) in figures.items():
        found = compare(here, paper, base)
        rows.append([name, ", ".join(found.here.ahead) or "–", ", ".join(found.here.behind) or "–", found.verdict])
    table = markdown_table(["figure", "less than Ours", "more", "as in the paper"], rows, words=range(4))
    return ["## Smaller and faster than Ours", table]


def _milliseconds(time: InferenceTime) -> str:
    return f"{time.milliseconds:,.2f}" if time.share == 1 else f"≈ {float(f'{time.milliseconds:.3g}'):,.0f}"


def _reckoned(costs: Sequence[Cost]) -> list[str]:
    """Which times were not measured as a whole."""
    told = [
        f"≈: of {cost.label}'s iterations {100 * time.share:.0f} % were run on {time.machine}, by which the time of "
        "all is reckoned, since each does the same work."
        for cost in costs
        for time in cost.times
        if time.share < 1
    ]
    return ["\n".join(told)] if told else []


def _skipped(session: Session) -> list[str]:
    reasons = {c.label: reason for c in session.contenders() if (reason := session.obstacle(c.name))}
    return ["\n".join(f"- {name} was not timed here: {reason}." for name, reason in reasons.items())] if reasons else []


def _measured(costs: Sequence[Cost]) -> list[str]:
    """On which machines and by which software, a line for each."""
    lines = [
        f"- A field of {time.size}×{time.size} with {100 * time.density:g} % given, on {time.device} ({time.machine}); "
        f"flowinpaint {time.version}, torch {time.torch}."
        for cost in costs
        for time in cost.times
    ]
    return ["## What was measured", "\n".join(dict.fromkeys(lines))] if lines else []


def _rows(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    rows = []
    for cost in costs:
        printed = cost.printed
        row: dict[str, Any] = {
            "method": cost.name,
            "parameters": cost.parameters or None,
            "paper_parameters": printed.parameters if printed else None,
            "paper_milliseconds": printed.milliseconds if printed else None,
        }
        for time in cost.times or (None,):
            own = (
                {}
                if time is None
                else {
                    "milliseconds": time.milliseconds,
                    "calls": time.calls,
                    "share_run": time.share,
                    "size": time.size,
                }
            )
            place = {} if time is None else {"device": time.device, "machine": time.machine, "torch": time.torch}
            rows.append(row | own | place)
    return rows


def _machines(costs: Sequence[Cost]) -> list[str]:
    return list(dict.fromkeys(time.machine for cost in costs for time in cost.times))


def _by_machine(times: Sequence[InferenceTime]) -> list[InferenceTime]:
    """The first time of each machine."""
    return list({time.machine: time for time in reversed(times)}.values())[::-1]


def _short(value: float) -> str:
    """A number in as few letters as can be: 8.8M, 17.6."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
