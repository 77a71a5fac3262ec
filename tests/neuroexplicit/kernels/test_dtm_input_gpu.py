"""The Triton kernels that write the network's input, against `dtm.normalised` in plain PyTorch.

Without a CUDA device Triton's interpreter runs them on the CPU (conftest.py sets it).
"""

import pytest
import torch
from torch import Tensor

from flowinpaint.diffusion.pyramid import extend
from flowinpaint.networks.network import IMAGENET_MEAN, IMAGENET_STD
from flowinpaint.neuroexplicit.dtm import normalised
from helpers import generator

pytest.importorskip("triton")
from flowinpaint.neuroexplicit.kernels import dtm_input_gpu
from flowinpaint.neuroexplicit.kernels.dtm_input_gpu import dtm_input, known_sums

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Problem = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs programs one after the other; fewer and smaller ones loop over the image all the same."""
    monkeypatch.setattr(dtm_input_gpu, "_SUMS", 16)
    monkeypatch.setattr(dtm_input_gpu, "_SUM_BLOCK", 128)


def problem(size: tuple[int, int], channels: int = 2, density: float = 0.2, batch: int = 2) -> Problem:
    """Image, guess, known and f, which is NaN where unknown; the channels differ in mean and size."""
    g = generator(size[0] * 100 + size[1] + channels)
    image = torch.rand(batch, 3, *size, generator=g)
    known = torch.rand(batch, 1, *size, generator=g) < density
    known[..., 0, 0] = density > 0
    size_of_channel = torch.randperm(channels, generator=g).view(1, -1, 1, 1) + 1.0
    f, guess = (size_of_channel * torch.randn(batch, channels, *size, generator=g) + 7 for _ in range(2))
    guess *= density > 0  # the guess where nothing is known
    return image.to(DEVICE), guess.to(DEVICE), known.to(DEVICE), torch.where(known, f, torch.nan).to(DEVICE)


def plain(image: Tensor, guess: Tensor | None, known: Tensor, f: Tensor) -> Tensor:
    features = [(image - image.new_tensor(IMAGENET_MEAN).view(3, 1, 1)) / image.new_tensor(IMAGENET_STD).view(3, 1, 1)]
    if guess is not None:
        features += [normalised(guess, torch.where(known, f, 0), known.float()), known.float()]
    x = torch.cat(features, 1)
    x = torch.cat([x, x.new_zeros(len(x), 8 - x.shape[1], *x.shape[-2:])], 1)
    H, W = x.shape[-2:]
    return extend(x, -(-H // 16) * 16, -(-W // 16) * 16).permute(0, 2, 3, 1)


def ours(image: Tensor, guess: Tensor, known: Tensor, f: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return dtm_input(image, IMAGENET_MEAN, IMAGENET_STD, (guess, known, known_sums(f, known)), dtype)


@pytest.mark.parametrize("size", [(1, 1), (1, 19), (23, 1), (16, 32), (17, 21)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_input_is_that_of_plain_pytorch(size: tuple[int, int], channels: int) -> None:
    inputs = problem(size, channels)
    torch.testing.assert_close(ours(*inputs), plain(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("density", [0.0, 0.01, 1.0])
def test_any_density(channels: int, density: float) -> None:
    inputs = problem((18, 15), channels, density)
    torch.testing.assert_close(ours(*inputs), plain(*inputs), rtol=1e-4, atol=1e-5)


def test_the_rounding_of_a_constant_field_is_no_deviation() -> None:
    image, _, known, f = problem((16, 16), 2, 0.5)
    f = torch.where(known, 7.0, f)
    guess = torch.full_like(f, 7.000003)
    x = ours(image, guess, known, f)
    assert 0.01 < float(x[..., 3:5].abs().max()) < 1
    # A mean that is rounded otherwise, as a device may, is half of this deviation off.
    torch.testing.assert_close(x, plain(image, guess, known, f), rtol=1e-4, atol=0.1)


def test_of_more_than_two_channels_those_are_taken_that_deviate_most() -> None:
    image, guess, known, f = problem((16, 16), 4, 0.5, batch=1)
    factors = torch.tensor([1.0, 9.0, 2.0, 5.0], device=DEVICE).view(4, 1, 1)
    guess, f = (x / f[known.expand_as(f)].abs().mean() * factors for x in (guess, f))
    torch.testing.assert_close(ours(image, guess, known, f), plain(image, guess, known, f), rtol=1e-4, atol=1e-5)


def test_without_a_guess_there_is_only_the_image() -> None:
    image, _, f, known = problem((17, 21))
    x = dtm_input(image, IMAGENET_MEAN, IMAGENET_STD, dtype=torch.float32)
    torch.testing.assert_close(x, plain(image, None, known, f), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_same_values(dtype: torch.dtype) -> None:
    inputs = problem((17, 21))
    x = ours(*inputs, dtype)
    assert x.dtype == dtype
    # Triton's interpreter cuts bfloat16 off instead of rounding.
    torch.testing.assert_close(x.float(), ours(*inputs), rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_tensors_in_another_memory_format() -> None:
    inputs = problem((17, 21))
    image, guess, known, f = (x.contiguous(memory_format=torch.channels_last) for x in inputs)
    assert torch.equal(ours(image, guess, known, f), ours(*inputs))


@pytest.mark.gpu
def test_sizes_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for size in [(384, 384), (436, 1024), (1081, 1919)]:
        inputs = problem(size, density=0.05)
        torch.testing.assert_close(ours(*inputs), plain(*inputs), rtol=1e-3, atol=1e-4)
