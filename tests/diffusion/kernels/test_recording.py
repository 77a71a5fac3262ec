"""CUDA graphs on a device: they replay the recorded work, share memory, and do not empty PyTorch's memory cache."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.kernels.recording import new_memory, record

pytestmark = pytest.mark.gpu
MEGABYTES = 1 << 20


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    torch.cuda.empty_cache()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def square(x: Tensor, out: Tensor) -> Callable[[], None]:
    """Work that takes as much memory as x on its way, several times over."""

    def work() -> None:
        out.copy_((x + 1 - 1) * x)

    return work


def filled(megabytes: int) -> tuple[Tensor, Tensor]:
    x = torch.full((megabytes * MEGABYTES // 4,), 3.0, device="cuda")
    return x, torch.zeros_like(x)


def test_a_graph_does_again_what_was_recorded() -> None:
    x, out = filled(1)
    graph = record(square(x, out))
    assert not out.any()
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert (out == value * value).all()


def test_graphs_of_one_memory_share_it_and_the_cache_is_kept() -> None:
    fields = [filled(64) for _ in range(3)]
    del fields[2]  # what the cache holds
    memory = new_memory()
    before = torch.cuda.memory_reserved()
    first = record(square(*fields[0]), memory)
    taken = torch.cuda.memory_reserved()
    assert taken > before
    second = record(square(*fields[1]), memory)
    assert torch.cuda.memory_reserved() == taken
    for graph, (_, out) in zip((first, second), fields, strict=True):
        graph.replay()
        assert (out == 9).all()


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # of the attempt that found no memory
def test_a_full_cache_is_emptied_when_memory_runs_out() -> None:
    x, out = filled(64)
    torch.empty(512 * MEGABYTES, dtype=torch.uint8, device="cuda")  # free again, but in the cache
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 32 * MEGABYTES) / total)
    graph = record(square(x, out))
    graph.replay()
    assert (out == 9).all()


def test_a_failure_is_passed_on_and_the_next_record_works() -> None:
    x, out = filled(1)

    def fail() -> None:
        square(x, out)()
        raise ValueError

    with pytest.raises(ValueError):
        record(fail)
    record(square(x, out)).replay()
    assert (out == 9).all()
