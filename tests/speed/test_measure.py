import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from flowinpaint import api
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import METHODS
from flowinpaint.networks.weights import save_model
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.result import Solution
from flowinpaint.speed import cases, measure, roofline
from flowinpaint.speed.cases import Precision, SpeedCase, all_cases, check_weights, fill_function, inputs_at
from flowinpaint.speed.measure import (
    RESET,
    SizeSweep,
    SpeedResult,
    Timing,
    cpu_memory,
    measure_cases,
    peak_memory,
    random_sizes,
    repeat,
    sweep_sizes,
)
from flowinpaint.speed.report import as_json, as_markdown, growths, sentences, speed_tables, write_plot
from flowinpaint.speed.roofline import PeakRates, StageCount, measure_rates

CPU = torch.device("cpu")
CELL = SpeedCase("nearest", 100, 200, "cpu", "auto")
INPUTS = partial(inputs_at, density=0.1, seed=0)
RATES = PeakRates("cpu", "float32", copy=10.0, matrix=100.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No repeated calls, a small scene, and peak rates that take no time to measure."""
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(cases, "sample_scene", partial(sample_scene, 40, 60))
    monkeypatch.setitem(roofline.COPY_BYTES, "cpu", 2**20)
    monkeypatch.setitem(roofline.MATRIX_SIDE, "cpu", 64)


def measured(case: SpeedCase, seconds: float) -> SpeedResult:
    timing = Timing(9.0, [seconds * k for k in (1, 2, 3, 4, 5)])
    return SpeedResult(case, timing, None, 5_000_000, [StageCount("all", 7 * 10**9, 8 * 10**6, 0)], floor=seconds / 2)


def test_the_floor_is_the_slower_of_computing_and_moving() -> None:
    assert RATES.floor([StageCount("a", 600, 20, 0), StageCount("b", 400, 30, 0)]) == 10
    assert RATES.floor([StageCount("a", 1000, 5000, 0)]) == 500
    assert RATES.better(replace(RATES, copy=20.0, matrix=50.0)) == replace(RATES, copy=20.0)


def test_rates_are_bytes_both_ways_and_operations_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "timed", lambda work, device: 0.5)
    assert measure_rates("cpu", torch.float32) == PeakRates("cpu", "float32", 2 * 2**20 / 0.5, 2 * 64**3 / 0.5)


def test_calls_are_warmed_up_and_repeated() -> None:
    calls: list[int] = []
    timing = repeat(lambda: calls.append(len(calls)), CPU, 4)
    assert len(timing.samples) == 4
    assert len(calls) == 4 + measure.WARM_UP


def test_calls_go_on_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.05)
    assert len(repeat(lambda: None, CPU, 2).samples) > 2


def test_cells_are_all_combinations_and_precision_is_for_networks() -> None:
    all_of = all_cases(["neuroexplicit", "nearest"], [(8, 9), (10, 11)], ["cpu", "cuda"], ["auto", "float32"])
    assert len(all_of) == 2 * 2 * 3
    assert {c.precision for c in all_of if c.method == "nearest"} == {"auto"}
    assert all_cases(["nearest"], [(8, 9)], ["cpu"], ["float32"]) == [SpeedCase("nearest", 8, 9, "cpu", "auto")]


@pytest.mark.parametrize("size", [(3, 5), (40, 30), (500, 700)])
def test_what_is_given_has_the_size_and_the_density(size: tuple[int, int]) -> None:
    given = inputs_at(*size, density=0.2, seed=3)
    assert given.image.shape == (*size, 3)
    assert given.flow.shape == (*size, 2)
    assert given.mask.sum() == max(1, round(0.2 * size[0] * size[1]))
    image, flow, mask = given.on(CPU)
    assert 0 <= image.min() <= image.max() <= 1
    assert image.std() > 0.05
    assert torch.equal(mask[0, 0] > 0, torch.from_numpy(given.mask))
    assert not flow[:, :, ~torch.from_numpy(given.mask)].any()


def test_files_are_looked_at_before_anything_is_timed(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.safetensors: truncated: its header must have"):
        check_weights([str(tmp_path / "bad.safetensors")])
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        check_weights([str(tmp_path / "none.safetensors")])
    with pytest.raises(InputError, match=r"methods must be one of .*got 'magic'"):
        check_weights(["magic"])


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_model(Neuroexplicit(NeuroexplicitConfig(width=2, steps=(1, 1, 1, 1))), path)
    return path


def test_what_is_timed_is_what_inpaint_computes(model_file: Path) -> None:
    given = inputs_at(24, 32, 0.2, 0)
    for method in ("nearest", str(model_file)):
        result = api.inpaint(*given, method, "cpu").flow
        timed = fill_function(method, CPU, "auto")(*given.on(CPU))
        u = timed.u if method == "nearest" else timed
        np.testing.assert_allclose(u[0].permute(1, 2, 0).numpy(), result, atol=1e-5)


@pytest.mark.parametrize(("precision", "backend"), [("float32", "torch"), ("auto", "auto")])
def test_float32_is_plain_pytorch(monkeypatch: pytest.MonkeyPatch, precision: Precision, backend: str) -> None:
    model = Neuroexplicit(NeuroexplicitConfig(width=2))
    monkeypatch.setattr(cases, "load_model", lambda method, device: model)
    fill_function("neuroexplicit", CPU, precision)
    assert model.backend == backend


def test_a_measurement_has_everything(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = iter((4.0, 4.0, 8.0, 8.0))  # of two types, before and after
    monkeypatch.setattr(
        measure, "measure_rates", lambda device, dtype: PeakRates("cpu", str(dtype), next(copies), 1e30)
    )
    monkeypatch.setattr(cases, "fastest_dtype", lambda: torch.bfloat16)
    all_of = all_cases(["nearest", str(model_file)], [(24, 32)], ["cpu"], ["auto", "float32"])
    seen: list[SpeedResult] = []
    results, rates = measure_cases(all_of, INPUTS, repeats=3, memory=False, progress=seen.append)
    assert [m.case for m in seen] == [m.case for m in results] == all_of
    assert [m.end_to_end is None for m in results] == [False, False, True]
    for m in results:
        assert m.error is None
        assert m.call is not None
        assert len(m.call.samples) == 3
        assert m.memory is None
        assert m.floor == sum(c.bytes for c in m.counts) / 8
    assert [(rate.dtype, rate.copy) for rate in rates] == [("torch.float32", 8), ("torch.bfloat16", 8)]
    half, whole = (sum(c.bytes for c in m.counts) for m in results[1:])
    assert half < whole


@pytest.mark.gpu
def test_on_a_gpu_memory_is_measured_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roofline.COPY_BYTES, "cuda", 2**20)
    monkeypatch.setitem(roofline.MATRIX_SIDE, "cuda", 64)
    all_of = all_cases(["nearest"], [(100, 200)], ["cuda"], ["auto"])
    (m,), rates = measure_cases(all_of, INPUTS, repeats=3, memory=False, progress=lambda m: None)
    assert m.error is None
    assert m.memory is not None
    assert 6 * 4 * 100 * 200 < m.memory < 10**9
    assert rates[0].device == "cuda"


def test_a_cell_that_fails_is_told_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(*_: Any, **__: Any) -> Solution:
        raise RuntimeError("not today")

    monkeypatch.setitem(METHODS, "fragile", Method("fragile", "", fragile))
    all_of = all_cases(["fragile", "nearest"], [(16, 16)], ["cpu"], ["auto"])
    results, _ = measure_cases(all_of, INPUTS, repeats=1, memory=False, progress=lambda m: None)
    assert [m.error for m in results] == ["RuntimeError: not today", None]
    assert speed_tables(results)[0].rows[0][:2] == ["fragile", "failed"]


def test_memory_is_that_of_the_call() -> None:
    if not RESET.exists():
        pytest.skip("this system does not tell")
    case = SpeedCase("nearest", 1000, 1000, "cpu", "auto")
    peak = cpu_memory(case, inputs_at(1000, 1000, 0.05, 0))
    assert peak is not None
    assert 24e6 < peak < 400e6  # the input alone is six float32 numbers a pixel


def test_memory_says_why_it_failed() -> None:
    with pytest.raises(InputError, match="magic"):
        peak_memory(SpeedCase("magic", 16, 16, "cpu", "auto"), inputs_at(16, 16, 0.05, 0))


def test_many_sizes_leave_the_first_out() -> None:
    many = SizeSweep("nearest", "cpu", [(1, 1), (2, 1), (2, 2)], first=[100.0, 3.0, 5.0], steady=[50.0, 1.0, 3.0])
    assert many.ratio == 2
    assert (
        "3 sizes in a row, with sides of 1 to 2 px, took 8 s after the first (100 s), 2.00 times their steady 4 s"
        in sentences([], [], [many])[0]
    )


def test_many_sizes_are_different() -> None:
    assert sorted(random_sizes(9, (4, 6), 0)) == [(y, x) for y in (4, 5, 6) for x in (4, 5, 6)]
    calls: list[None] = []
    progress = partial(calls.append, None)
    many = sweep_sizes("nearest", "cpu", random_sizes(4, (8, 12), 1), INPUTS, progress)
    assert len(calls) == len(many.first) == len(many.steady) == len(set(many.sizes)) == 4
    assert min(many.first + many.steady) > 0


def test_table_and_markdown_show_the_figures() -> None:
    tables = speed_tables([measured(CELL, 0.01), measured(replace(CELL, precision="float32"), 0.02)])
    assert len(tables) == 1
    assert tables[0].title.startswith("100×200 (0.02 Mpx) on cpu")
    name, *cells = tables[0].rows[0]
    assert name == "nearest"
    assert cells == ["30", "20–40", "–", "9", "5", "7", "8", "5", "6"]
    assert tables[0].rows[1][0] == "nearest float32"
    text = as_markdown(tables, ["That is all."])
    assert "| nearest | 30 | 20–40 | – | 9 | 5 | 7 | 8 | 5 | 6 |" in text
    assert text.endswith("- That is all.\n")


def test_growth_is_the_exponent() -> None:
    all_of = [replace(CELL, height=10 * k, width=10 * k) for k in (1, 2, 4)]
    linear = [measured(c, 1e-3 * c.height**2) for c in all_of]
    root = [measured(replace(c, method="harmonic"), 1e-3 * c.height) for c in all_of]
    grown = growths([*linear, *root, measured(replace(CELL, method="eed"), 1.0)])
    assert [g.method for g in grown] == ["nearest", "harmonic"]
    assert [g.exponent for g in grown] == pytest.approx([1.0, 0.5])
    assert sentences([], grown, [])[1] == "harmonic, cpu: time grows as N^0.50 from 0.0001 to 0.0016 Mpx."


def test_json_holds_every_sample() -> None:
    failed = SpeedResult(CELL, error="no")
    text = as_json({"seed": 3}, [measured(CELL, 0.5), failed], [RATES], [], [])
    content = json.loads(text)
    assert content["settings"] == {"seed": 3}
    assert content["machine"]["threads"] == torch.get_num_threads()
    cell, other = content["cells"]
    assert cell["call"] == {
        "median": 1.5, "quartiles": [1.0, 2.0], "min": 0.5, "max": 2.5, "first": 9.0, "samples": [0.5, 1, 1.5, 2, 2.5],
    }  # fmt: skip
    assert cell["over_floor"] == 6
    assert other["error"] == "no"
    assert other["call"] is None
    assert content["rates"][0]["copy"] == 10


def test_the_plot_is_a_picture_with_lines(tmp_path: Path) -> None:
    all_of = [replace(CELL, height=10 * k, width=10 * k) for k in (1, 8)]
    write_plot(tmp_path / "plot.png", growths([measured(c, 1e-3 * c.height**2) for c in all_of]))
    picture = cv2.imread(str(tmp_path / "plot.png"))
    assert picture is not None
    assert 400 < picture.shape[0] < picture.shape[1] < 2000
    blue = (picture == (180, 119, 31)).all(-1)  # matplotlib's first colour
    assert np.ptp(np.argwhere(blue), axis=0).min() > 200
    assert [p.name for p in tmp_path.iterdir()] == ["plot.png"]
