import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.networks.registry import ModelConfig
from flowinpaint.reproduction import cost
from flowinpaint.reproduction.cost import Cost, cost_table, figure_cost, measure_costs
from flowinpaint.reproduction.experiment import OURS, Scale
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.timing import (
    InferenceTime,
    count_parameters,
    measure_time,
    read_times,
    sampler_time,
    write_times,
)
from flowinpaint.speed import measure

MakeSession = Callable[..., Session]


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of network, and the methods without one, that are timed; their times are made up."""
    kinds: list[str] = []

    def told(planned: InferenceTime, method: ModelConfig | str, *_: Any) -> InferenceTime:
        kinds.append(method if isinstance(method, str) else method.kind)
        return replace(planned, milliseconds=float(len(kinds)), calls=3)

    monkeypatch.setattr(cost, "measure_time", told)
    return kinds


def own_time(cost: Cost) -> InferenceTime:
    return next(iter(cost.times.values()))


def test_the_papers_baselines_have_the_papers_parameters() -> None:
    assert count_parameters(FlowNetSConfig()) == 8_835_728
    assert count_parameters(WGAINConfig()) == 11_505_882


def test_times_are_measured_once(make_session: MakeSession, timed: list[str], tmp_path: Path, scale: Scale) -> None:
    first = measure_costs(make_session())
    explicit = ["eed", "amle", "laplace-beltrami"]
    assert timed == ["neuroexplicit", "flownets", "wgain", "pd", *explicit, "neuroexplicit", "neuroexplicit"]
    assert all(time.milliseconds > 0 for found in first for time in found.times.values())
    names = ["ours", "flownets", "wgain", "pd", *explicit, "neuroexplicit", "neuroexplicit-paper"]
    assert [found.name for found in first] == names
    assert [bool(found.parameters) for found in first] == [name not in explicit for name in names]
    assert measure_costs(make_session()) == first
    assert len(timed) == len(names)
    path = tmp_path / "out" / "times.json"
    assert [time.name for time in read_times(path)] == names
    measure_costs(make_session(scale=replace(scale, sampling={"sampling_steps": 3, "resampling_steps": 1})))
    assert timed[len(names) :] == ["pd"]  # which samples otherwise


@pytest.mark.usefixtures("timed")
def test_times_of_another_machine_stand_beside(make_session: MakeSession, tmp_path: Path) -> None:
    own = measure_costs(make_session())
    other = tmp_path / "gpu.json"
    write_times(other, [replace(own_time(c), device="cuda", machine="A GPU", milliseconds=1.25) for c in own[:2]])
    session = make_session(times=(other,))
    found = measure_costs(session)
    assert [list(c.times)[1:] for c in found] == [["A GPU"], ["A GPU"], *[[]] * 7]
    table = cost_table(found)
    assert "ms on A GPU" in table
    assert "| 1.25 | *17.57* |" in table
    report = figure_cost(session)
    assert sum(row.get("machine") == "A GPU" for row in report.rows) == 2
    measured = report.paragraphs[-1].splitlines()
    assert len(measured) == 2
    assert measured[1].startswith("- A field of 32×32 with 5 % given, on cuda (A GPU); flowinpaint ")
    assert report.pictures().keys() == {".png", ".svg"}


def test_on_a_cpu_pd_is_not_timed_at_the_papers_scale_unless_asked_for(
    make_session: MakeSession, timed: list[str], scale: Scale
) -> None:
    paper = replace(scale, rehearsal=False)
    session = make_session(scale=paper)
    found = {c.name: c for c in measure_costs(session)}
    assert timed[:3] == ["neuroexplicit", "flownets", "wgain"]
    assert "pd" not in timed
    assert found["pd"].times == {}
    assert found["pd-paper"].parameters == pytest.approx(976_748_807, rel=1e-3)
    text = "\n".join(figure_cost(session).paragraphs)
    assert "PD was not timed here: on a CPU a frame takes hours" in text
    assert make_session(scale=paper, methods=("pd",)).obstacle("pd") == ""


@pytest.mark.usefixtures("timed")
def test_without_networks_nothing_is_said_of_them(make_session: MakeSession) -> None:
    report = figure_cost(make_session(methods=("eed",)))
    text = "\n".join(report.paragraphs)
    assert "| EED | – | – |" in text
    assert "Smaller and faster" not in text
    assert "1,311,635" not in text
    assert report.pictures().keys() == {".png", ".svg"}


def test_where_nothing_can_be_timed_the_reason_is_told_and_nothing_drawn(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    report = figure_cost(make_session(methods=("amle",)))
    assert report.pictures() == {}
    assert "- AMLE was not timed here: it needs numba (pip install numba)." in report.paragraphs
    assert not any("What was measured" in paragraph for paragraph in report.paragraphs)


@pytest.mark.usefixtures("timed")
def test_times_of_another_size_are_left_out_and_that_is_told(make_session: MakeSession, tmp_path: Path) -> None:
    own = measure_costs(make_session(methods=("eed",)))
    other = tmp_path / "gpu.json"
    write_times(other, [replace(own_time(own[0]), machine="A GPU", size=384)])
    told: list[str] = []
    found = measure_costs(make_session(methods=("eed",), times=(other,), note=told.append))
    assert found == own
    assert told == ["--times has no time of these methods at 32×32, and is left out."]


@pytest.mark.parametrize("method", [FlowNetSConfig(width=2), "nearest"])
def test_a_time_is_of_several_calls(method: ModelConfig | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
    timing = measure_time(Cost("it", "It", OURS, method, {}).planned(32, "cpu"), method, {}, 3)
    assert timing.calls == 3
    assert timing.milliseconds > 0
    assert timing.share == 1


def test_a_long_sampling_is_reckoned_from_two_short_ones() -> None:
    calls: list[int] = []

    def iterations(sampling_steps: int = 48, resampling_steps: int = 45) -> int:
        return 2 * ((sampling_steps - 1) * resampling_steps + 1)

    def seconds(**values: int) -> float:
        calls.append(iterations(**values))
        return 3.0 + 0.05 * calls[-1]

    found, share = sampler_time(seconds, iterations, {})
    assert found == pytest.approx(3.0 + 0.05 * 4232)
    assert calls == [92, 452]
    assert share == pytest.approx((92 + 452) / 4232)
    calls.clear()
    whole = sampler_time(seconds, iterations, {}, longest=1000.0)
    assert (*whole, calls[-1]) == (3.0 + 0.05 * 4232, 1.0, 4232)
    calls.clear()
    assert sampler_time(seconds, iterations, {"sampling_steps": 4})[1] == 1.0
    assert calls == [272]  # fewer than the two short calls have


@pytest.mark.usefixtures("timed")
def test_a_time_that_is_reckoned_is_marked(make_session: MakeSession, tmp_path: Path) -> None:
    own = measure_costs(make_session())
    other = tmp_path / "gpu.json"
    pd = next(c for c in own if c.name == "pd")
    write_times(other, [replace(own_time(pd), machine="A GPU", milliseconds=1234.5, share=0.125)])
    session = make_session(times=(other,))
    assert "| ≈ 1,230 |" in cost_table(measure_costs(session))
    assert any(
        "extrapolated from 12 % of the iterations of PD on A GPU" in paragraph
        for paragraph in figure_cost(session).paragraphs
    )


def test_files_of_times_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"--times must be .*no.json does not exist"):
        read_times(tmp_path / "no.json")
    for text in ("", "[]", json.dumps({"times": [{"name": "ours"}]})):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"bad\.json"):
            read_times(tmp_path / "bad.json")
