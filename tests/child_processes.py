"""A program whose child processes fill fields after it has used PyTorch's threads itself; for `test_forks.py`.

It prints one line for each way to start them, "NAME: ok" or what went wrong. No child runs longer than LIMIT seconds.
"""

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable

import numpy as np
import torch

import flowinpaint as fi
from flowinpaint.diffusion.kernels.cpu_strips import together
from flowinpaint.extras import is_installed

LIMIT = 30
SIZE = 160, 240
METHODS = ["nearest", "harmonic", "flownets", "neuroexplicit"]
METHODS += ["opencv-ric", "opencv-edgeaware"] if is_installed("peers") else []


def fill(method: str = "nearest", robust: bool = False) -> str:
    """A hash of the result."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*SIZE, 3), np.uint8)
    flow = np.where(rng.random((*SIZE, 1)) < 0.2, rng.normal(size=(*SIZE, 2)), np.nan)
    with warnings.catch_warnings(action="ignore"):
        result = fi.inpaint(image, flow, method=method, device="cpu", robust=robust)
    return hashlib.sha256(result.flow.tobytes()).hexdigest()


class Fields(torch.utils.data.Dataset[str]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> str:
        return fill()


def ends_well(work: Callable[[], object]) -> bool:
    """Whether a forked child does its work in time."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def all_methods() -> None:
    for method in METHODS:
        assert fill(method) == EXPECTED[method], method
    fill("harmonic", robust=True)


def own_threads() -> None:
    done: list[int] = []
    together(done.append, [1, 2])
    assert sorted(done) == [1, 2]


def too_many_threads() -> None:
    torch.set_num_threads(2)
    try:
        fill()
    except fi.InputError as error:
        assert "PyTorch must use one thread" in str(error)
        assert "forked" in str(error)
    else:
        raise AssertionError("the fill must be refused")
    thread = threading.Thread(target=fill)  # has threads of its own
    thread.start()
    thread.join()
    torch.set_num_threads(1)
    fill()


def gradients() -> None:
    image, flow, mask = torch.rand(1, 3, *SIZE), torch.rand(1, 2, *SIZE), torch.rand(1, 1, *SIZE) < 0.2
    NETWORK(image, flow, mask.float()).mean().backward()


def in_thread() -> None:
    found: list[bool] = []

    def fill_and_fork() -> None:
        fill()
        found.append(ends_well(fill))

    thread = threading.Thread(target=fill_and_fork)
    thread.start()
    thread.join()
    assert found == [True]


def in_pool(kind: str) -> None:
    with multiprocessing.get_context(kind).Pool(1) as pool:
        assert pool.apply_async(fill).get(LIMIT) == EXPECTED["nearest"]


def in_data_loader() -> None:
    loader = torch.utils.data.DataLoader(Fields(), num_workers=2, batch_size=None, timeout=LIMIT)
    assert list(loader) == [EXPECTED["nearest"]] * 4


def report(name: str, work: Callable[[], object]) -> None:
    try:
        outcome = "failed" if work() is False else "ok"
    except Exception as error:
        outcome = f"{type(error).__name__} {error}"
    print(f"{name}: {outcome}", flush=True)


if __name__ == "__main__":
    signal.alarm(3 * LIMIT)
    torch.set_num_threads(2)
    torch.nn.functional.conv2d(torch.rand(1, 8, 256, 256), torch.rand(8, 8, 3, 3))
    report("PyTorch alone", lambda: ends_well(fill))
    EXPECTED = {method: fill(method) for method in METHODS}
    NETWORK = fi.load_model("neuroexplicit", "cpu")
    gradients()
    own_threads()
    forked = (all_methods, own_threads, too_many_threads, gradients)
    for work in forked:
        report(work.__name__, lambda work=work: ends_well(work))  # type: ignore[misc]
    report("nested", lambda: ends_well(lambda: ends_well(fill) or sys.exit(1)))
    report("in_thread", in_thread)
    torch.set_num_threads(1)  # then only flowinpaint's own threads are in use
    own_threads()
    report("own_threads of one", lambda: ends_well(own_threads))
    torch.set_num_threads(2)
    for kind in multiprocessing.get_all_start_methods():
        report(kind, lambda kind=kind: in_pool(kind))  # type: ignore[misc]
    report("data loader", in_data_loader)
    print("threads of the parent:", torch.get_num_threads())
