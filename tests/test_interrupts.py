"""Signals that end a command."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import flowinpaint as fi
from flowinpaint import interrupts
from flowinpaint.cli import app
from flowinpaint.evaluation.records import open_store
from flowinpaint.interrupts import (
    Interrupted,
    deferred,
    end_by_default,
    exit_code,
    forget_signal,
    note_signal,
    raise_interrupts,
)
from flowinpaint.io import new_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before, hook = {number: signal.getsignal(number) for number in interrupts.SIGNALS}, sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)
    forget_signal()


def test_a_signal_in_a_callback_of_compiled_code_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    forget_signal()
    raise_interrupts()
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        callback()
        time.sleep(5)
    assert exit_code() == 143
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_is_an_exception_and_its_repetition_nothing(number: int) -> None:
    forget_signal()
    raise_interrupts()
    with pytest.raises(Interrupted):
        signal.raise_signal(number)
    assert exit_code() == 128 + number
    signal.raise_signal(number)  # as `timeout` does
    end_by_default()
    assert signal.getsignal(number) == signal.SIG_DFL


def test_a_later_signal_ends_the_process() -> None:
    code = (
        "import signal; from flowinpaint import interrupts as i; i.REPEAT = 0; i.raise_interrupts()\n"
        "try: signal.raise_signal(signal.SIGTERM)\n"
        "except KeyboardInterrupt: signal.raise_signal(signal.SIGTERM)\n"
        "print('still here')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_interrupts()
    signal.raise_signal(signal.SIGHUP)
    with deferred():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_deferred_signals_come_also_after_an_error() -> None:
    raise_interrupts()
    done = False
    with pytest.raises(Interrupted), deferred():
        signal.raise_signal(signal.SIGTERM)
        done = True
        raise OSError
    assert done


def test_a_deferred_signal_reaches_asyncio_once() -> None:
    calls: list[int] = []

    async def count() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, calls.append, 1)
        with deferred():
            signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)

    asyncio.run(count())
    assert calls == [1]


def test_other_unraisable_errors_go_to_the_hook_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: seen.append(error.exc_type))
    raise_interrupts()
    raise_interrupts()

    def fail() -> None:
        raise ZeroDivisionError

    ctypes.CFUNCTYPE(None)(fail)()
    assert seen == [ZeroDivisionError]


def test_an_error_after_a_signal_is_told(tmp_path: Path) -> None:
    command = ["show", str(tmp_path / "no.flo"), "-o", str(tmp_path / "a.png")]
    done = CliRunner().invoke(app, command, obj=lambda: note_signal(signal.SIGTERM))
    assert done.exit_code == 143
    assert done.stderr.startswith("Error: ")
    assert done.stderr.endswith("no.flo: there is no such file\nStopped: interrupted.\n")


def test_an_evaluation_without_a_record_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), new_folder(out), open_store(out / "records.jsonl"):
        raise KeyboardInterrupt
    assert not out.exists()


def test_a_link_in_place_of_the_records_is_kept(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "records.jsonl").symlink_to(tmp_path / "empty")
    with pytest.raises(KeyboardInterrupt), open_store(tmp_path / "records.jsonl"):
        raise KeyboardInterrupt
    assert (tmp_path / "records.jsonl").is_symlink()


def test_sigterm_of_fill_leaves_nothing_and_ends_with_143(tmp_path: Path) -> None:
    """The command is stopped at the moment when all outputs have been written to temporary files."""
    rng = np.random.default_rng(0)
    fi.write_image(tmp_path / "image.png", rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
    fi.write_flow(tmp_path / "sparse.flo", rng.random((24, 32, 2), np.float32), rng.random((24, 32)) < 0.2)
    before = {path.name for path in tmp_path.iterdir()}
    code = (
        "import os, signal, sys, time\n"
        "from flowinpaint.io.publish import Publication\n"
        "from flowinpaint.cli import main\n"
        "def stop(self): print(len(self), flush=True); time.sleep(60)\n"
        "Publication.publish = stop\n"
        "main()"
    )
    command = ["fill", "image.png", "sparse.flo", "-o", "new/a.flo", "--preview", "new/a.png", "--method", "nearest"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        assert len(list((tmp_path / "new").iterdir())) == 2
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[1] == "Stopped: interrupted.\n"
    assert process.returncode == 143
    assert {path.name for path in tmp_path.iterdir()} == before


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import os, time, multiprocessing as m\n"
        "from flowinpaint.interrupts import end_with_parent\n"
        "read, write = os.pipe()\n"
        "def work():\n"
        "    end_with_parent()\n"
        "    os.write(write, b'x')\n"
        "    time.sleep(60)\n"
        "child = m.get_context('fork').Process(target=work); child.start(); os.read(read, 1)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        parent.stdout.read()  # until the child, which has the other end, is gone
    deadline = time.monotonic() + 5
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(child)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
