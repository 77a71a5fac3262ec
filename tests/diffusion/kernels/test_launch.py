"""Cached kernel launches: the choice of the binary, with a kernel that only records its calls, and on a device."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.pyramid import refine as reference

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.diffusion.kernels import launch
from flowinpaint.diffusion.kernels.pyramid_gpu import refine


class Kernel:
    """Of the parameters (tensor, number, constant), the number being free; `calls` has what was compiled and run."""

    def __init__(self) -> None:
        self.params = [SimpleNamespace(num=i, do_not_specialize=i == 1) for i in range(3)]
        self.calls: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def compile_and_run(*arguments: Any, **options: int) -> Any:
            self.calls.append(("compiled", grid, arguments[1:], options))
            return self.binary()

        return compile_and_run

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **options: int) -> Any:
        self.calls.append(("compiled", grid, arguments[1:], options))
        return self.binary()

    def binary(self) -> Any:
        def run(*arguments: Any) -> None:
            self.calls.append(("run", arguments[:3], arguments[10:]))

        return SimpleNamespace(run=run, function=None, packed_metadata=None)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(launch, "JITFunction", Kernel)
    monkeypatch.setattr(launch, "_binaries", {})
    active = SimpleNamespace(get_current_stream=lambda device: 0)
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.zeros(0).get_device())
    return Kernel()


def test_a_binary_is_taken_again_whatever_the_free_number(kernel: Kernel) -> None:
    x = torch.zeros(4)
    launch.launch(kernel, (5,), x, 1, 8, num_warps=4)
    launch.launch(kernel, (6, 2), x + 1, 16, 8, num_warps=4)
    assert kernel.calls == [("compiled", (5,), (1, 8), {"num_warps": 4}), ("run", (6, 2, 1), (16, 8))]


def test_another_constant_type_alignment_option_or_a_long_number_is_compiled(kernel: Kernel) -> None:
    x = torch.zeros(8)
    for arguments in ((x, 1, 8), (x, 1, 9), (x.half(), 1, 8), (x[1:], 1, 8), (x, 2**31, 8)):
        launch.launch(kernel, (1,), *arguments, num_warps=4)
    launch.launch(kernel, (1,), x, 1, 8, num_warps=8)
    assert [call[0] for call in kernel.calls] == ["compiled"] * 6
    launch.launch(kernel, (1,), x[4:], 1, 8, num_warps=4)  # sixteen bytes on
    assert kernel.calls[-1][0] == "run"


def test_what_a_rehearsal_met_is_there(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    x = torch.zeros(4, device="meta")

    def work() -> None:
        for number in (1, 2):
            launch.launch(kernel, (1,), x, number, 8)
        assert not kernel.calls

    launch.compile_ahead(work)
    assert [call[0] for call in kernel.calls] == ["compiled"]
    launch.launch(kernel, (7,), torch.zeros(4), 3, 8)
    assert kernel.calls[-1] == ("run", (7, 1, 1), (3, 8))

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        launch.compile_ahead(fail)
    launch.launch(kernel, (7,), torch.zeros(4), 4, 8)
    assert kernel.calls[-1][0] == "run"


def level(shift: int, H: int = 9, W: int = 14) -> tuple[Tensor, Tensor, Tensor]:
    """A coarse field, a fine one and its mask, `shift` values behind where memory begins."""

    def shifted(*shape: int) -> Tensor:
        flat = torch.randn(shift + torch.Size(shape).numel(), device="cuda")
        return flat[shift:].view(shape)

    u, f = shifted(1, 2, -(-H // 2), -(-W // 2)), shifted(1, 2, H, W)
    return u, f, torch.rand(1, 1, H, W, device="cuda") < 0.3


@pytest.mark.gpu
@pytest.mark.parametrize("shift", [0, 1, 4])
def test_wherever_memory_begins(shift: int) -> None:
    for size in ((9, 14), (9, 14), (16, 16), (1, 1)):
        u, f, known = level(shift, *size)
        torch.testing.assert_close(refine(u, DataTerm(f, known)), reference(u, DataTerm(f, known)))


@pytest.mark.gpu
def test_a_rehearsal_launches_nothing_and_compiles() -> None:
    launch._binaries.clear()
    u, f, known = level(0)
    f.fill_(3)
    marks: list[Tensor] = []
    launch.compile_ahead(lambda: marks.append(refine(u.to("meta"), DataTerm(f.to("meta"), known.to("meta")))))
    assert marks[0].is_meta
    compiled = dict(launch._binaries)
    assert len(compiled) == 1
    torch.testing.assert_close(refine(u, DataTerm(f, known)), reference(u, DataTerm(f, known)))
    assert launch._binaries == compiled
