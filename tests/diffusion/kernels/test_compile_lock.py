"""Several processes without a compile cache: one compiles, the others wait and say so."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.diffusion.kernels import compile_lock, first_use
from flowinpaint.diffusion.kernels.compile_lock import NAME, CompileLock
from flowinpaint.diffusion.kernels.first_use import Compilations

fcntl = pytest.importorskip("fcntl")
pytest.importorskip("numba")

HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(20)
"""


def triple(a: npt.NDArray[Any], n: int) -> None:
    for i in range(n):
        a[i] *= 3


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compilations:
    """An empty record and an empty cache."""
    from flowinpaint.diffusion.kernels import compiled

    new = Compilations()
    monkeypatch.setattr(first_use, "COMPILATIONS", new)
    monkeypatch.setattr(compiled, "COMPILATIONS", new)
    monkeypatch.setattr(compile_lock, "PATIENCE", 0.05)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    return new


def compile_triple() -> None:
    from numba import float32, int64, void

    from flowinpaint.diffusion.kernels.compiled import compile_loop

    values = np.ones(2, np.float32)
    compile_loop(triple, void(float32[::1], int64), {})(values, 2)
    assert values.tolist() == [3, 3]


def folder_of_cache(record: Compilations) -> Path:
    """The folder that numba makes for this module; its loops are removed again."""
    compile_triple()
    (folder,) = map(Path, record.folders)
    for path in folder.glob("*.nb?"):
        path.unlink()
    record.compiled.clear()
    record.announced = False
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_of_two_processes_one_compiles_and_the_other_loads(record: Compilations) -> None:
    begin, done = os.pipe(), os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                os.read(begin[0], 1)
                compile_triple()
                os.write(done[1], b"c" if record.compiled else b"l")
            finally:
                os._exit(0)
        children.append(child)
    os.write(begin[1], b"..")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert sorted(os.read(done[0], 2)) == sorted(b"cl")


def test_a_process_waits_says_so_and_goes_on_when_the_other_dies(
    record: Compilations, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of_cache(record)
    command = [sys.executable, "-S", "-c", HOLDER, str(folder / NAME)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        waiting = threading.Thread(target=compile_triple)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        other.kill()
        waiting.join(20)
        assert not waiting.is_alive()
    assert len(record.compiled) == 1
    line = "flowinpaint: waiting for another process, which compiles for this CPU, "
    assert capsys.readouterr().err.count(line) == 1


def test_a_process_does_not_wait_forever_nor_for_what_is_cached(
    record: Compilations, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of_cache(record)
    monkeypatch.setattr(compile_lock, "LONGEST_WAIT", 0.1)
    with CompileLock() as other:
        assert other.take(str(folder))
        compile_triple()
        assert len(record.compiled) == 1
        monkeypatch.setattr(compile_lock, "LONGEST_WAIT", 1e9)
        compile_triple()
    assert len(record.loaded) == 1


def test_without_locks_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with CompileLock() as lock:
        assert lock.take(str(tmp_path / "missing"))

    def fail(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr("fcntl.flock", fail)
    with CompileLock() as lock:
        assert lock.take(str(tmp_path))
    monkeypatch.setattr(compile_lock, "fcntl", None)
    with CompileLock() as lock:
        assert lock.take(str(tmp_path))
