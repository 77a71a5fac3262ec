"""The number of CPU cores that a process may use."""

import os
from pathlib import Path

import pytest

from flowinpaint import machine
from flowinpaint.training.batches import MOST_PROCESSES, reading_processes


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, (0, 1)),
        ({"cpu.max": "max 100000\n"}, (0, 1)),
        ({"cpu.max": "250000 100000\n"}, (250_000, 100_000)),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, (-1, 100_000)),
    ],
)
def test_the_limits_of_a_container_are_read(tmp_path: Path, files: dict[str, str], quota: tuple[int, int]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert machine._cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("quota", "cores"), [((0, 1), 6), ((-1, 100), 6), ((250, 100), 2), ((10, 100), 1), ((900, 100), 6)]
)
def test_cores_are_those_of_the_affinity_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, quota: tuple[int, int], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setattr(machine, "_cpu_quota", lambda: quota)
    assert machine.usable_cores() == cores


@pytest.mark.parametrize(
    ("cores", "local", "processes"), [(6, "1", 6), (6, "4", 1), (2, "8", 1), (96, "2", MOST_PROCESSES)]
)
def test_the_processes_of_a_machine_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, local: str, processes: int
) -> None:
    monkeypatch.setattr("flowinpaint.training.batches.usable_cores", lambda: cores)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert reading_processes() == processes
