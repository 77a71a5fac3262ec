"""Soak test: fill frames of random sizes with random methods for an hour, and record what the process keeps.

    make soak MINUTES=60
    python benchmarks/soak.py --minutes 60 --output soak

Each job is one of: a fill by every method, with imperfect vectors, with a second image, from points, three fills in
threads at once, files of every format written and read again, damaged files, a model loaded anew. The results are
checked: known vectors unchanged, everything finite. Memory, threads, file handles and temporary files are recorded
between jobs, in OUTPUT.csv; OUTPUT.png is their plot. The jobs of the first minutes include the largest of every kind,
so that what is cached by size is there before memory is compared with its value after five minutes.

By default glibc keeps freed blocks of up to 32 MiB for reuse, in one arena per thread; with frames of random sizes the
memory of the process then follows the order of the jobs. So this program starts itself again with MALLOC_SETTINGS: they
make glibc return large blocks to the system, so that resident memory is what the program holds.

--only NAME repeats one kind of job, to see which one grows. The exit status is 1 if memory grew by more than LIMIT.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import flowinpaint as fi
from flowinpaint.viz.plots import plot_file

LARGEST = 512
WARM_UP = 300.0
"""Seconds after which memory must stay."""
LIMIT = 30.0
"""MiB by which memory may then grow."""
WITH_WEIGHTS = ("neuroexplicit", "neuroexplicit-paper", "eed", "laplace-beltrami", "harmonic")
MALLOC_SETTINGS = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
COLUMNS = ("seconds", "jobs", "resident_mib", "allocated_mib", "threads", "handles", "temporaries", "last_job")

Array = npt.NDArray[Any]


class Frame(NamedTuple):
    """A random image (H, W, 3) uint8, and a smooth field (H, W, C) with NaN where it is unknown."""

    image: Array
    sparse: Array
    known: npt.NDArray[np.bool_]


def random_frame(rng: np.random.Generator, size: tuple[int, int], channels: int = 2) -> Frame:
    """A frame of this size; at least eight vectors are known if it has as many pixels."""
    H, W = size
    y, x = np.mgrid[:H, :W].astype(np.float32) / max(H, W)
    waves = [np.sin(rng.uniform(1, 20) * x + rng.uniform(1, 20) * y + rng.uniform(0, 6)) for _ in range(3)]
    image = (127 * (1 + np.stack(waves, -1)) * rng.uniform(0.5, 1)).astype(np.uint8)
    slopes = rng.normal(0, 20, (channels, 3))
    sparse = np.stack([a * x + b * y + c for a, b, c in slopes], -1).astype(np.float32)
    known = rng.random((H, W)) < 10 ** rng.uniform(-2.5, -0.3)
    known.flat[rng.choice(H * W, min(8, H * W), replace=False)] = True
    sparse[~known] = np.nan
    return Frame(image, sparse, known)


def random_size(rng: np.random.Generator, smallest: int = 1) -> tuple[int, int]:
    """Height and width, of any magnitude up to LARGEST."""
    H, W = np.exp(rng.uniform(np.log(smallest), np.log(LARGEST + 1), 2)).astype(int)
    return int(H), int(W)


def fill(method: str, rng: np.random.Generator, size: tuple[int, int], **arguments: Any) -> None:
    """One fill, checked."""
    channels = 2 if method.startswith("opencv") or "second" in arguments else int(rng.integers(1, 4))
    frame = random_frame(rng, size, channels)
    if "second" in arguments:
        arguments["second"] = np.roll(frame.image, (2, 3), (0, 1))
    try:
        result = fi.inpaint(frame.image, frame.sparse, method=method, **arguments)
    except fi.InputError:
        if method == "opencv-ric":  # some vectors are too few or too crowded for it
            return
        raise
    if not np.isfinite(result.flow).all():
        raise AssertionError(f"{method} {size}: the result must be finite")
    if not (arguments or np.array_equal(result.flow[frame.known], frame.sparse[frame.known])):
        raise AssertionError(f"{method} {size}: known vectors must be unchanged")


def _points(rng: np.random.Generator, size: tuple[int, int]) -> None:
    H, W = size
    points = rng.uniform((-0.5, -0.5), (W - 0.6, H - 0.6), (200, 2))
    frame = random_frame(rng, size)
    fi.inpaint_points(frame.image, points, rng.normal(0, 1, (200, 2)), method=str(rng.choice(WITH_WEIGHTS)))


def _threads(rng: np.random.Generator, size: tuple[int, int]) -> None:
    half = max(1, size[0] // 2), max(1, size[1] // 2)
    methods = rng.choice(_methods(), 3)
    with ThreadPoolExecutor(3) as pool:
        seeds = rng.integers(0, 2**32, 3)
        jobs = [
            pool.submit(fill, str(m), np.random.default_rng(s), _grown(str(m), half))
            for m, s in zip(methods, seeds, strict=True)
        ]
        for job in jobs:
            job.result()


def _files(rng: np.random.Generator, size: tuple[int, int]) -> None:
    frame = random_frame(rng, size)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for suffix in (".flo", ".png", ".pfm", ".npy", ".npz"):
            fi.write_flow(folder / f"field{suffix}", frame.sparse)
            read, known = fi.read_flow(folder / f"field{suffix}")
            if not np.array_equal(known, frame.known) or np.nanmax(np.abs(read - frame.sparse)) > 1 / 64:
                raise AssertionError(f"{suffix} {size}: a field must be read as it was written")
        for suffix in (".png", ".jpg", ".bmp", ".tif", ".webp", ".ppm"):
            fi.write_image(folder / f"image{suffix}", frame.image)
            if fi.read_image(folder / f"image{suffix}").shape != frame.image.shape:
                raise AssertionError(f"{suffix} {size}: an image must keep its size")
        fi.write_mask(folder / "mask.png", frame.known)
        fi.read_mask(folder / "mask.png")


def _damaged_files(rng: np.random.Generator, size: tuple[int, int]) -> None:
    frame = random_frame(rng, size)
    with tempfile.TemporaryDirectory() as place:
        for suffix in (".png", ".npz", ".flo", ".jpg"):
            path = Path(place) / f"damaged{suffix}"
            write = fi.write_image if suffix == ".jpg" else fi.write_flow
            write(path, frame.image if suffix == ".jpg" else frame.sparse)
            data = path.read_bytes()
            path.write_bytes(data[: int(rng.integers(1, len(data)))])
            try:
                fi.read_image(path) if suffix == ".jpg" else fi.read_flow(path)
            except fi.FileFormatError:
                continue
            raise AssertionError(f"{suffix} {size}: a truncated file must be refused")


def _new_model(rng: np.random.Generator, size: tuple[int, int]) -> None:
    import torch

    frame = random_frame(rng, size)
    image = torch.from_numpy(frame.image).permute(2, 0, 1)[None].float() / 255
    flow = torch.from_numpy(np.nan_to_num(frame.sparse)).permute(2, 0, 1)[None]
    model = fi.load_model("neuroexplicit")
    with torch.inference_mode():
        model(image, flow, torch.from_numpy(frame.known)[None, None].float())


def _methods() -> list[str]:
    return [name for name in fi.methods() if name != "pd"]  # which has no weights until it is trained


def _grown(method: str, size: tuple[int, int]) -> tuple[int, int]:
    """A size that the method accepts."""
    least = 8 if method.startswith("opencv") else 1
    return max(least, size[0]), max(least, size[1])


Job = Callable[[np.random.Generator, tuple[int, int]], object]


def jobs() -> dict[str, Job]:
    """The kinds of jobs by name."""

    def plain(method: str) -> Job:
        return lambda rng, size: fill(method, rng, _grown(method, size))

    def judged(method: str) -> Job:
        return lambda rng, size: fill(method, rng, size, robust=True)

    found: dict[str, Job] = {name: plain(name) for name in _methods()}
    found |= {f"{name}, robust": judged(name) for name in WITH_WEIGHTS}
    found |= {
        "second image": lambda rng, size: fill("neuroexplicit", rng, _grown("opencv", size), second=None),
        "points": _points,
        "three threads": _threads,
        "files": _files,
        "damaged files": _damaged_files,
        "new model": _new_model,
    }
    return found


def random_jobs(rng: np.random.Generator, only: str | None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names of jobs and sizes, for ever; first each job with the largest size, upright, across and again."""
    names = [name for name in jobs() if only is None or name == only]
    if not names:
        raise SystemExit(f"--only must be one of {', '.join(jobs())}, got {only}")
    large = [(LARGEST, LARGEST), (LARGEST, LARGEST // 2 + 1), (LARGEST // 2 + 1, LARGEST)]
    yield from ((name, size) for size in large for name in names)
    for _ in chain.from_iterable(iter(lambda: [0], None)):
        yield str(rng.choice(names)), random_size(rng)


class _Mallinfo(ctypes.Structure):
    """The first fields of glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"]
    ]
    _fields_ += [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


def resident_mib() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def allocated_mib() -> float:
    """Memory that the program has allocated and not freed; unlike the memory of the process, not what glibc keeps."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):  # not glibc, or one before 2.33
        return float("nan")
    mallinfo.restype = _Mallinfo
    about = mallinfo()
    return float(about.uordblks + about.hblkhd) / 2**20


def soak(minutes: float, seed: int, interval: float, only: str | None, output: Path) -> list[dict[str, Any]]:
    """Run jobs, and return what was recorded between them."""
    rng, rows, done = np.random.default_rng(seed), [], Counter[str]()
    known = jobs()
    with tempfile.TemporaryDirectory(prefix="flowinpaint-soak-") as place, output.with_suffix(".csv").open("w") as file:
        tempfile.tempdir = place
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        start = time.monotonic()
        following = start + interval
        for name, size in random_jobs(rng, only):
            known[name](rng, size)
            done[name] += 1
            now = time.monotonic()
            if now >= following:
                gc.collect()
                row = {
                    "seconds": round(now - start, 1),
                    "jobs": done.total(),
                    "resident_mib": round(resident_mib(), 2),
                    "allocated_mib": round(allocated_mib(), 2),
                    "threads": len(list(Path("/proc/self/task").iterdir())),
                    "handles": len(list(Path("/proc/self/fd").iterdir())),
                    "temporaries": sum(1 for _ in Path(place).rglob("*")),
                    "last_job": f"{name} {size[0]}x{size[1]}",
                }
                rows.append(row)
                table.writerow(row)
                file.flush()
                following = now + interval
            if now - start > 60 * minutes:
                break
        tempfile.tempdir = None
    for name, count in sorted(done.items()):
        print(f"{count:6} {name}")
    return rows


def main() -> None:
    """Run, write the table and the plot, and print the growth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval", type=float, default=5, help="seconds between two rows of the table")
    parser.add_argument("--only", help="one kind of job")
    parser.add_argument("--output", type=Path, default=Path("soak"))
    options = parser.parse_args()
    if MALLOC_SETTINGS.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], dict(os.environ) | MALLOC_SETTINGS)
    warnings.simplefilter("ignore")  # methods that stop before their tolerance
    rows = soak(options.minutes, options.seed, options.interval, options.only, options.output)
    sys.exit(report(rows, options.output))


def report(rows: list[dict[str, Any]], output: Path) -> int:
    """Print the growth after the warm-up, draw the plot, and return 1 if memory grew too much."""
    warm = [row for row in rows if row["seconds"] >= WARM_UP] or rows[len(rows) // 2 :]
    growth = 0.0
    for name in COLUMNS[2:-1]:
        values = [float(row[name]) for row in warm]
        print(f"{name}: {values[0]:g} when warm, then {min(values):g} to {max(values):g}, {values[-1]:g} at the end")
        if name == "resident_mib":
            growth = max(values) - values[0]
    print(f"{rows[-1]['jobs']} jobs in {rows[-1]['seconds'] / 60:.0f} minutes; memory grew by {growth:.1f} MiB")
    _draw(rows, output.with_suffix(".png"))
    return int(growth > LIMIT)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    minutes = [row["seconds"] / 60 for row in rows]
    with plot_file(path, (8, 6)) as figure:
        memory, counts = figure.subplots(2, 1, sharex=True)
        for name, label in (("resident_mib", "of the process"), ("allocated_mib", "allocated")):
            memory.plot(minutes, [row[name] for row in rows], label=label, linewidth=1)
        memory.axvline(WARM_UP / 60, color="grey", linestyle=":", label="warm")
        memory.set_ylabel("memory between jobs (MiB)")
        memory.set_ylim(bottom=0)
        memory.legend()
        for name in ("threads", "handles", "temporaries"):
            counts.plot(minutes, [row[name] for row in rows], label=name, linewidth=1)
        counts.set_xlabel("minutes")
        counts.set_ylim(bottom=0)
        counts.legend()


if __name__ == "__main__":
    main()
