"""How much memory a fill takes on the CPU: the peak of a process that does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from flowinpaint.evaluation.speed_cells import Cell, filler, given_at

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
WARM_SIDE = 64
DENSITY = 0.05


def cpu_memory(cell: Cell, weights: Path | None) -> int | None:
    """The most bytes of resident memory beyond those of a process that has filled only a small field,
    so with the input and without the model.

    None where the system does not tell: that is Linux's business.
    """
    if not RESET.exists():
        return None
    task = json.dumps({"cell": asdict(cell), "weights": None if weights is None else str(weights)})
    done = subprocess.run([sys.executable, "-m", __name__, task], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildProcessError(f"the process that measures memory ended with {done.returncode}: {done.stderr[-500:]}")
    return int(done.stdout)


def _measure(cell: Cell, weights: Path | None) -> int:
    device = torch.device(cell.device)
    fill = filler(cell.method, weights, device, cell.precision)
    # What is compiled and loaded once is not the fill's.
    fill(*given_at(WARM_SIDE, WARM_SIDE, DENSITY, 0).on(device))
    before = _resident("VmRSS")
    given = given_at(cell.height, cell.width, DENSITY, 0).on(device)
    RESET.write_text("5")  # the peak is that from here on
    fill(*given)
    return max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    print(_measure(Cell(**task["cell"]), None if task["weights"] is None else Path(task["weights"])))
