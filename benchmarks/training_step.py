"""Time and memory of a training step on CUDA, including data: medians over replays of its graph.

    python benchmarks/training_step.py paper [--set data.source=layered] [--steps 50] [--profile]

Also times the step on an existing batch, so that the difference is the extra time for data, and the generation of the
data alone. Without a bank the scenes are painted with procedural pictures; a bank adds its own size to the memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from flowinpaint.training.config import read_config
from flowinpaint.training.distributed import join
from flowinpaint.training.loop import build_step
from flowinpaint.training.step import TrainingStep


def main() -> None:
    """Print how long it takes to start, the step, its parts, and how many kernels each of them has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a name or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--profile", action="store_true", help="list the kernels of one step that take longest")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("Error: this needs a CUDA device, and PyTorch sees none.")
    config = read_config(options.config, options.set)
    with join("cuda") as world:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {config.data.batch} × {config.data.size}")
        started = time.perf_counter()
        training = build_step(config, world)
        print(f"built in {time.perf_counter() - started:.1f} s", flush=True)
        print(f"parameters {sum(p.numel() for p in training.parameters.values())}")
        while not training.ready:
            training.run(1e-4)
        torch.cuda.synchronize()
        print(f"compiled and recorded in {time.perf_counter() - started:.1f} s", flush=True)

        step = _report("step", lambda: training.run(1e-4), options.steps)
        print(f"peak memory {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")
        task = training.make_task(training.samples)
        fixed = _report("  on a batch that is there", _graph_of(lambda: training.train_on(task)), options.steps)
        print(f"  data on top {step - fixed:.2f} ms")
        _report("data alone", _graph_of(lambda: _data(training)), options.steps)
        if options.profile:
            _list_kernels(training)


def _data(training: TrainingStep) -> None:
    training.make_task(training.samples)


def _graph_of(work: Callable[[], None]) -> Callable[[], None]:
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _report(name: str, work: Callable[[], None], repeats: int) -> float:
    """Print and return the median of some runs in milliseconds, after one that counts the kernels."""
    kernels = sum(event.count for event in _profiled(work).key_averages() if event.device_type.name == "CUDA")
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    median: float = statistics.median(times)
    print(f"{name:26s} {median:7.2f} ms, {min(times):.2f} to {max(times):.2f}, {kernels} kernels", flush=True)
    return median


def _profiled(work: Callable[[], None]) -> profile:
    profiler: profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    return profiler


def _list_kernels(training: TrainingStep) -> None:
    profiler = _profiled(lambda: training.run(1e-4))
    print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=60, max_name_column_width=100))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"Error: {error}")
