"""Interrupt `fill` and `evaluate` at random instants, and check what they leave.

    python benchmarks/interruptions.py [--count 200] [--seed 0] [--jobs 2] [--json FILE]

For each of SIGINT and SIGTERM, `count` runs are signalled, half of them `fill` and half `evaluate` (with one and with
two processes). Half of the instants are uniform over the time of an undisturbed run, the others follow the moment when
the command creates its first output file. Half of the signals go to the whole process group. Half of the fills replace
earlier outputs. A run fails the check unless

- its exit code is 0, 130 or 143, or the signal ended it before it was ready,
- its outputs are all there and equal to those of an undisturbed run, or all as before; finished records and pictures of
  `evaluate` stay, each whole,
- there is no temporary file, no empty folder and no process left, and no traceback, except Python's own for a signal
  before the command line is loaded.

The inputs are generated. Linux only, because it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import flowinpaint as fi

SIZE = (96, 128)
FRAMES = 3
AFTER_FIRST_FILE = 0.05
"""Most seconds between the first output file and a signal."""
FILL = ["image.png", "sparse.flo", "-o", "out/new/dense.flo", "--errors", "out/new/errors.pfm"]
FILL += ["--preview", "out/new/preview.png", "--device", "cpu"]
EVALUATE = ["--root", "frames", "--methods", "nearest,eed", "--reference", "harmonic", "--densities", "5,10"]
EVALUATE += ["--preview", "-o", "out", "--device", "cpu"]
COMMANDS = {"fill": ["fill", *FILL], "evaluate": ["evaluate", *EVALUATE]}
COMMANDS["evaluate --jobs 2"] = [*COMMANDS["evaluate"], "--jobs", "2"]
RESULTS = {"results.json", "results.csv", "results.md"}


@dataclass
class Run:
    """An interrupted run; delay: seconds from the signal to the end. after: seconds from the start to the signal."""

    command: str
    signal: str
    group: bool
    writing: bool
    replaces: bool
    after: float = 0.0
    delay: float = 0.0
    code: int = 0
    outputs: str = ""
    faults: list[str] = field(default_factory=list)


def make_inputs(folder: Path) -> None:
    """A frame with a sparse flow for `fill`, and frames with ground truth for `evaluate`."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    for i in range(FRAMES):
        home = folder / "frames" / "set" / str(i)
        home.mkdir(parents=True)
        flow = np.stack([np.sin(rows / 20 + i) * 5, columns / 30.0], 2).astype(np.float32)
        image = (127 + 100 * np.sin(rows / 9 + columns / 7 + i)).astype(np.uint8)
        fi.write_image(home / "image.png", image)
        fi.write_flow(home / "flow.flo", flow)
    fi.write_image(folder / "image.png", image)
    fi.write_flow(folder / "sparse.flo", flow, rng.random(SIZE) < 0.05)


def start(folder: Path, command: str) -> subprocess.Popen[bytes]:
    """A command in a process group of its own; its messages go to files."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(fi.__file__).parents[1])}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "flowinpaint", *COMMANDS[command]],
            cwd=folder,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=environment,
            preexec_fn=_default_signals,
        )


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job would ignore SIGINT
        signal.signal(number, signal.SIG_DFL)


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder by name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def living(group: int) -> list[int]:
    """The processes of a group, without those that have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, owner = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(owner) == group and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def interrupt(base: Path, run: Run, seconds: float, wait: float, whole: dict[str, bytes]) -> Run:
    """Start a command in a copy of the inputs, signal it, and check what it leaves. wait: share of the longest wait."""
    folder = Path(tempfile.mkdtemp(dir=base.parent))
    shutil.copytree(base, folder, dirs_exist_ok=True)
    if run.replaces:
        (folder / "out" / "new").mkdir(parents=True)
        for name in whole:
            (folder / "out" / name).write_bytes(b"old")
    before = contents(folder / "out")
    known = set(before)
    began = time.monotonic()
    process = start(folder, run.command)
    if run.writing:
        while process.poll() is None and not _new_file(folder / "out", known):
            time.sleep(0.0005)
        time.sleep(wait**2 * AFTER_FIRST_FILE)
    else:
        time.sleep(wait * seconds)
    number = signal.Signals[run.signal]
    sent = time.monotonic()
    if process.poll() is None:
        (os.killpg if run.group else os.kill)(process.pid, number)
    try:
        run.code = process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        run.faults.append("did not end within 60 s")
        os.killpg(process.pid, signal.SIGKILL)
        run.code = process.wait()
    run.after, run.delay = sent - began, time.monotonic() - sent
    deadline = time.monotonic() + 3
    while (left := living(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        run.faults.append(f"processes left: {len(left)}")
        os.killpg(process.pid, signal.SIGKILL)
    check(folder, run, before, whole, -number)
    if not run.faults:
        shutil.rmtree(folder)
    return run


def _new_file(folder: Path, known: set[str]) -> bool:
    """Whether a folder has another file than known ones and records."""
    names = {str(Path(place, name).relative_to(folder)) for place, _, files in os.walk(folder) for name in files}
    return bool(names - known - {"records.jsonl"})


def check(folder: Path, run: Run, before: dict[str, bytes], whole: dict[str, bytes], ended: int) -> None:
    """Add what is wrong to the run's faults, and say which outputs it left."""
    codes = (0, 130, 143, ended)
    if run.code not in codes:
        run.faults.append(f"exit code {run.code}")
    said = (folder / "stderr").read_text(errors="replace")
    if "Traceback" in said and not (run.code == ended and "flowinpaint/cli" not in said):  # Python's own, at its start
        run.faults.append("traceback: " + said[-2000:])
    out = folder / "out"
    after = contents(out)
    run.faults += [f"temporary file {name}" for name in after if Path(name).name.startswith(".")]
    if out.exists():
        run.faults += [f"empty folder {p.relative_to(folder)}" for p in (out, *out.rglob("*")) if _is_empty(p)]
    if run.command == "fill":
        run.outputs = "as before" if after == before else "new" if same(out, after, whole) else "partial"
        if run.outputs == "partial" or (run.code == 0 and run.outputs != "new"):
            run.faults.append(f"{run.outputs} outputs: {sorted(after)}")
        return
    present = RESULTS & after.keys()
    run.outputs = {0: "records" if after else "none", len(RESULTS): "all"}.get(len(present), "partial")
    if run.outputs == "partial" or (run.code == 0 and run.outputs != "all"):
        run.faults.append(f"partial outputs: {sorted(after)}")
    lines = after.get("records.jsonl", b"").splitlines(keepends=True)
    try:
        for line in lines:
            json.loads(line)
        if "results.json" in after:
            json.loads(after["results.json"])
    except ValueError as error:
        run.faults.append(f"damaged: {error}")
    pictures = {name: data for name, data in after.items() if name.startswith("previews") and name in whole}
    if not same(out, pictures, {name: whole[name] for name in pictures}):
        run.faults.append("damaged pictures")


def same(folder: Path, after: dict[str, bytes], whole: dict[str, bytes]) -> bool:
    """Whether the files are those of an undisturbed run; pictures show seconds, so they may differ."""
    try:
        return after.keys() == whole.keys() and all(
            fi.read_image(folder / name).ndim == 3 if name.endswith(".png") else after[name] == data
            for name, data in whole.items()
        )
    except ValueError:
        return False


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def main() -> None:
    """Run all, print a table, and exit with 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="runs for each signal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--json", type=Path, help="also write all runs to this file")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "inputs"
        base.mkdir()
        make_inputs(base)
        seconds, whole = {}, {}
        for command in COMMANDS:
            for _ in range(2):  # the first may compile
                folder = Path(tempfile.mkdtemp(dir=place))
                shutil.copytree(base, folder, dirs_exist_ok=True)
                began = time.monotonic()
                if start(folder, command).wait():
                    raise SystemExit((folder / "stderr").read_text())
                seconds[command], whole[command] = time.monotonic() - began, contents(folder / "out")
            print(f"{command}: {seconds[command]:.1f} s undisturbed", flush=True)
        runs = []
        for name in ("SIGINT", "SIGTERM"):
            for i in range(given.count):
                command = "fill" if i % 2 == 0 else ("evaluate", "evaluate --jobs 2")[i // 2 % 2]
                group, writing, replaces = (rng.random() < 0.5 for _ in range(3))
                runs.append(Run(command, name, group, writing, replaces and command == "fill"))
        waits = [rng.random() for _ in runs]
        whole["evaluate --jobs 2"] = whole["evaluate"]
        with ThreadPoolExecutor(given.jobs) as pool:
            done = []
            for run in pool.map(lambda r, w: interrupt(base, r, seconds[r.command], w, whole[r.command]), runs, waits):
                done.append(run)
                print(f"{len(done)} of {len(runs)} runs", end="\r", file=sys.stderr)
    report(done)
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in done], indent=1))
    raise SystemExit(any(run.faults for run in done))


def report(runs: list[Run]) -> None:
    """Print a row for each command and signal, and each fault."""
    print("command, signal, runs, exit codes, outputs, median and longest delay in s, failed")
    for key in dict.fromkeys((run.command, run.signal) for run in runs):
        own = [run for run in runs if (run.command, run.signal) == key]
        codes, outputs = (dict(sorted(Counter(getattr(r, x) for r in own).items())) for x in ("code", "outputs"))
        delays = [run.delay for run in own if run.code]
        delay = f"{statistics.median(delays):.2f} {max(delays):.2f}" if delays else "-"
        print(*key, len(own), codes, outputs, delay, sum(bool(run.faults) for run in own), sep=", ")
    for run in runs:
        for fault in run.faults:
            print(f"FAILED {run.command}, {run.signal}, after {run.after:.3f} s, group {run.group}: {fault}")


if __name__ == "__main__":
    main()
