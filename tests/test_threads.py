"""Readers and fills in concurrent threads leave the settings of the process alone."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint import opencv
from flowinpaint.diffusion.kernels import kernels_for
from flowinpaint.opencv import _LOG_LEVEL, silenced, single_threaded

LOG = getattr(cv2.utils, "logging", cv2)  # OpenCV 5 or 4


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Good files, and damaged ones over which numpy, Python or OpenCV would print."""
    rng = np.random.default_rng(0)
    flow, image = rng.normal(size=(8, 9, 2)).astype(np.float32), rng.integers(0, 256, (8, 9, 3), np.uint8)
    fi.write_flow(tmp_path / "good.npy", flow)
    fi.write_flow(tmp_path / "good.npz", flow)
    fi.write_image(tmp_path / "good.png", image)
    fi.write_image(tmp_path / "good.tif", image)
    header = (tmp_path / "good.npy").read_bytes()
    (tmp_path / "python2.npy").write_bytes(header.replace(b"(8, 9, 2), ", b"(8L, 9, 2),"))
    (tmp_path / "escape.npy").write_bytes(header.replace(b"'<f4'", b"'\\<4'"))
    (tmp_path / "number.npy").write_bytes(header.replace(b"(8, 9, 2)", b"(8or9, 2)"))
    tiff = (tmp_path / "good.tif").read_bytes()
    (tmp_path / "damaged.tif").write_bytes(tiff[:8] + bytes(40) + tiff[48:])
    return sorted(tmp_path.iterdir())


def read(path: Path) -> None:
    with suppress(fi.FileFormatError):
        fi.read_image(path) if path.suffix in (".png", ".tif") else fi.read_flow(path)


def test_concurrent_readers_keep_warnings_and_the_log_level(files: list[Path]) -> None:
    level, threads, rounds = LOG.getLogLevel(), cv2.getNumThreads(), 40
    flow = np.where(np.arange(80).reshape(8, 10, 1) % 3, np.nan, np.ones((8, 10, 2))).astype(np.float32)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = list(warnings.filters)

        def work(number: int) -> None:
            for i in range(rounds):
                read(files[(number + i) % len(files)])
                if number == 0:
                    warnings.warn(f"round {i}", stacklevel=1)
                if number == 1 and i % 10 == 0:
                    fi.inpaint(np.zeros((8, 10), np.uint8), flow, method="nearest", device="cpu")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert warnings.filters == before
    # Nothing but what the first thread has said: damaged files are silent without a filter.
    assert sorted(str(w.message) for w in told) == sorted(f"round {i}" for i in range(rounds))
    assert LOG.getLogLevel() == level
    assert cv2.getNumThreads() == threads


def test_settings_return_when_the_last_user_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    level, threads = LOG.getLogLevel(), cv2.getNumThreads()
    first, second = silenced(), silenced()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert LOG.getLogLevel() == 0
    second.__exit__(None, None, None)
    assert LOG.getLogLevel() == level
    with single_threaded(), single_threaded():
        assert cv2.getNumThreads() == 1
    assert cv2.getNumThreads() == threads


def test_a_level_set_meanwhile_is_kept() -> None:
    level = LOG.getLogLevel()
    try:
        with silenced():
            LOG.setLogLevel(2)
        assert LOG.getLogLevel() == 2
    finally:
        LOG.setLogLevel(level)


def test_a_forked_process_forgets_the_threads_of_its_parent() -> None:
    level = LOG.getLogLevel()
    with silenced():
        _LOG_LEVEL._forget_other_threads()  # what the child of a fork calls
        assert LOG.getLogLevel() == level
    with silenced():
        assert LOG.getLogLevel() == 0
    assert LOG.getLogLevel() == level


def test_opencv_never_has_zero_threads_while_others_may_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(cv2, "getNumThreads", lambda: counts[-1] if counts else 4)
    monkeypatch.setattr(cv2, "setNumThreads", counts.append)
    with single_threaded():
        pass
    assert counts == [1, 4]
    counts.clear()
    monkeypatch.setattr(opencv, "_PROCESS", -1)  # as in a forked process
    with single_threaded():
        pass
    assert counts == [0]


def test_kernels_that_another_thread_imports_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_loops_cpu.py").write_text("import time\ntime.sleep(0.3)\nloop = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def load(wait: float) -> bool:
        time.sleep(wait)
        return hasattr(kernels_for("slow_loops", torch.device("cpu")), "loop")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(load, [0, 0.1])) == [True, True]
