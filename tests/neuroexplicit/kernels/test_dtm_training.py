"""Gradients of the network in our own kernels against PyTorch's of the module in float64.

Without a CUDA device Triton's interpreter runs the kernels on the CPU (conftest.py sets it).
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from helpers import generator, moderate
from rounded_dtm import rounded_gradients

pytest.importorskip("triton")
from flowinpaint.neuroexplicit.kernels import dtm_gpu, dtm_training, dtm_training_sums
from flowinpaint.neuroexplicit.kernels.dtm_training import TrainableDtm

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GRADIENTS = torch.bfloat16 if torch.cuda.is_available() else torch.float32
"""The interpreter has no bfloat16."""
FACTORS = (1.0, 1.1, 1.23, 1.37, 1.57)
"""The gradient is linear in that of the maps, but one that is larger by such a factor is rounded otherwise."""


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after the other."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(dtm_training_sums, "_PROGRAMS", 9)


def module(
    in_channels: int,
    out_channels: int,
    width: int,
    decoder_kernel: int,
    merge: bool = False,
    fine_width: int = 0,
    depth: int = 4,
) -> DiffusionTensorModule:
    """A module whose activations keep their signs when rounded: a sign that changes changes the gradient much."""
    dtm = moderate(DiffusionTensorModule(in_channels, out_channels, width, decoder_kernel, merge, fine_width, depth), 1)
    with torch.no_grad():
        for name, parameter in dtm.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(0.5)
            else:
                parameter.copy_(torch.where(torch.rand(len(parameter)) < 0.7, 1.0, -1.0))
    return dtm.to(DEVICE)


def problem(dtm: DiffusionTensorModule, size: tuple[int, int], batch: int) -> tuple[Tensor, list[Tensor]]:
    """An input (B, channels, H, W) and gradients of the maps (B, channels, h, w)."""
    g, channels = generator(1), dtm.cnv0.in_channels
    x = torch.randn(batch, channels, *size, generator=g).half().float()
    sizes = [(size[0] // s, size[1] // s) for s in (8, 4, 2, 1)]
    dz = [torch.randn(batch, dtm.out_channels, *s, generator=g).half().float() for s in sizes]
    return x.to(DEVICE), [z.to(DEVICE) for z in dz]


def channels_last(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, h, w, 8)."""
    return F.pad(x.permute(0, 2, 3, 1), (0, 8 - x.shape[1])).to(dtype).contiguous()


def too_far(
    dtm: DiffusionTensorModule, x: Tensor, dz: list[Tensor], dtype: torch.dtype, gradients: torch.dtype
) -> dict[str, tuple[float, float]]:
    """Parameters whose gradient is farther from the exact one than rounding explains, with both distances.

    What rounding explains is the largest of some distances: of one parameter they differ several times over.
    """
    ours = _gradients(TrainableDtm(dtm, dtype, gradients), x, dz)
    exact = torch.autograd.grad(dtm.double()(x.double()), list(dtm.parameters()), [z.double() for z in dz])
    explained = [0.0] * len(exact)
    for factor in FACTORS:
        rounded = rounded_gradients(dtm, x, [factor * z for z in dz], dtype, gradients)
        distances = [float((r / factor - b).norm() / b.norm()) for r, b in zip(rounded, exact, strict=True)]
        explained = [max(pair) for pair in zip(explained, distances, strict=True)]
    own = [float((a - b).norm() / b.norm()) for a, b in zip(ours, exact, strict=True)]
    found = zip((name for name, _ in dtm.named_parameters()), own, explained, strict=True)
    return {name: (far, rounding) for name, far, rounding in found if far > 1.5 * rounding + 5e-4}


def _gradients(trainable: TrainableDtm, x: Tensor, dz: list[Tensor]) -> tuple[Tensor, ...]:
    maps = trainable(channels_last(x, trainable.network.dtype))
    assert {z.dtype for z in maps} == {trainable.gradients}
    given = [channels_last(z, trainable.gradients) for z in dz]
    return torch.autograd.grad(maps, list(trainable.dtm.parameters()), given)


PROBLEMS: list[tuple[tuple[Any, ...], tuple[int, int], int]] = [
    ((6, 5, 8, 2), (16, 32), 1),
    ((6, 6, 8, 2, True, 5), (16, 16), 2),
    ((3, 6, 20, 1), (16, 16), 1),
    ((6, 6, 8, 2, True, 5, 5), (32, 32), 1),
    ((3, 5, 5, 1, False, 0, 5), (32, 32), 1),
]
"""Shape of a module, size and number of images."""


# The interpreter needs minutes, and the type of the gradients has nothing to do with width and depth.
@pytest.mark.parametrize(
    ("shape", "size", "batch", "gradients"),
    [(*problem, torch.float16) for problem in PROBLEMS]
    + [(*problem, GRADIENTS) for problem in (PROBLEMS if torch.cuda.is_available() else PROBLEMS[:2])],
)
def test_gradients_are_the_modules(
    shape: tuple[Any, ...], size: tuple[int, int], batch: int, gradients: torch.dtype
) -> None:
    dtm = module(*shape)
    assert not too_far(dtm, *problem(dtm, size, batch), torch.float16, gradients)


def test_the_parameters_of_the_step_are_used() -> None:
    dtm = module(6, 5, 5, 2)
    trainable = TrainableDtm(dtm, torch.float16, torch.float16)
    x, _ = problem(dtm, (16, 16), 1)
    before = trainable(channels_last(x, torch.float16))
    with torch.no_grad():
        dtm.dt1.bias.add_(1)  # type: ignore[union-attr]
    after = trainable(channels_last(x, torch.float16))
    torch.testing.assert_close(after[3][..., :5], before[3][..., :5] + 1, rtol=0, atol=2e-2)
    assert all(z.requires_grad for z in after)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(48, 2), (44, 1), (48, 2, True, 32), (48, 2, True), (48, 2, True, 32, 6)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_on_the_device(shape: tuple[Any, ...], dtype: torch.dtype) -> None:
    dtm = module(6, 5, *shape)
    assert not too_far(dtm, *problem(dtm, (128, 192), 3), dtype, torch.bfloat16)


@pytest.mark.gpu
def test_gradients_are_the_same_every_time() -> None:
    dtm = module(6, 5, 48, 2, True, 32)
    trainable = TrainableDtm(dtm, torch.float16, torch.bfloat16)
    x, dz = problem(dtm, (128, 208), 3)
    first, second = (_gradients(trainable, x, dz) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.gpu
def test_launching_by_binaries_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dtm = module(6, 5, 48, 2, True, 32)
    trainable = TrainableDtm(dtm, torch.float16, torch.bfloat16)
    x, dz = problem(dtm, (64, 80), 2)
    _gradients(trainable, x.flip(0), dz)  # compiles, so that the next run finds binaries
    ours = _gradients(trainable, x, dz)

    def plain(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: int) -> None:
        kernel[grid](*arguments, **options)

    for user in (dtm_gpu, dtm_training, dtm_training_sums):
        monkeypatch.setattr(user, "launch", plain)
    by_triton = _gradients(trainable, x, dz)
    assert all(torch.equal(a, b) for a, b in zip(ours, by_triton, strict=True))
