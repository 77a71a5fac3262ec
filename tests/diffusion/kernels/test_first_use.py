"""Compilation on first use: the line on stderr, the record of loops, and loops of several types."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.diffusion.kernels import first_use
from flowinpaint.diffusion.kernels.first_use import NO_CACHE, Compilations, compiling_for_gpu

HIDDEN = """
import sys, warnings
sys.modules["numba"] = None
import numpy as np, flowinpaint as fi
image, rng = np.zeros((16, 24, 3), np.uint8), np.random.default_rng(0)
flow = np.where(rng.random((16, 24, 1)) < 0.5, rng.normal(size=(16, 24, 2)), np.nan)
for method in ("nearest", "flownets", "neuroexplicit", "harmonic"):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fi.inpaint(image, flow, method=method, device="cpu")
    print(method, *(warning.message for warning in told))
from flowinpaint.cli import main
sys.argv = ["flowinpaint", "warmup", "--device", "cpu"]
main()
"""


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Compilations:
    """An empty record, and little patience."""
    new = Compilations()
    monkeypatch.setattr(first_use, "COMPILATIONS", new)
    monkeypatch.setattr(first_use, "PATIENCE", 0.05)
    return new


@pytest.fixture
def cached(record: Compilations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module that compiles, with the empty record and an empty cache."""
    pytest.importorskip("numba")
    from flowinpaint.diffusion.kernels import compiled

    monkeypatch.setattr(compiled, "COMPILATIONS", record)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    return compiled


def slow() -> None:
    with compiling_for_gpu():
        time.sleep(0.3)


@pytest.mark.usefixtures("record")
def test_a_slow_compilation_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    slow()
    slow()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("flowinpaint: compiling for this GPU")
    assert "flowinpaint warmup" in printed.err


def test_a_loop_is_announced_when_it_is_compiled_and_not_when_it_is_loaded(
    cached: Any, record: Compilations, capsys: pytest.CaptureFixture[str]
) -> None:
    from numba import float32, int64

    for start in ("flowinpaint: compiling for this CPU", ""):
        record.announced = False
        cached.compile_loop(double, (float32[::1], int64), {})
        assert capsys.readouterr().err.partition(",")[0] == start


@pytest.mark.usefixtures("record")
def test_a_quick_load_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with compiling_for_gpu():
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def double(a: npt.NDArray[Any], n: int) -> None:
    for i in range(n):
        a[i] *= 2


def test_a_loop_is_compiled_for_each_type_once_and_then_loaded(cached: Any, record: Compilations) -> None:
    from numba import float32, float64, int64, void  # noqa: F401

    kinds = {np.dtype(name): {"a": kind[::1], "i": int64} for name, kind in (("f4", float32), ("f8", float64))}
    for compiled, loaded in ((["double_float32", "double_float64"], []), ([], ["double_float32"])):
        record.compiled, record.loaded = [], []
        loop = cached.LoopOfTypes(double, "ai", kinds, {})
        for dtype in ("f4", "f8", "f4")[: 3 if compiled else 1]:
            values = np.ones(3, dtype)
            loop(values, 2)
            assert values.tolist() == [2, 2, 1]
        assert [name.rpartition(".")[2] for name in record.compiled] == compiled
        assert [name.rpartition(".")[2] for name in record.loaded] == loaded
    assert record.folders


def test_without_a_writable_folder_loops_are_compiled_and_the_record_says_so(
    cached: Any, record: Compilations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from numba import float32, int64

    njit = cached.njit

    def fail(*arguments: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*arguments, **options)

    monkeypatch.setattr(cached, "njit", fail)
    values = np.ones(2, np.float32)
    cached.compile_loop(double, (float32[::1], int64), {})(values, 2)
    assert values.tolist() == [2, 2]
    assert record.uncached
    assert len(record.compiled) == 1
    assert capsys.readouterr().err.endswith(f"in every process, because {NO_CACHE}\n")


def test_without_numba_slower_methods_say_so_once_and_the_others_do_not() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["nearest", "flownets"]
    assert lines[2].startswith("neuroexplicit numba is not installed, so neuroexplicit, ")
    assert lines[2].endswith("several times slower. Run: pip install numba.")
    assert lines[3] == "harmonic"
    assert "nothing is compiled for the CPU" in done.stderr
    assert "pip install numba" in done.stderr
