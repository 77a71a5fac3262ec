"""The network packed for the CPU against the module."""

import pytest
import torch

from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.kernels import dtm_cpu
from flowinpaint.neuroexplicit.kernels.dtm_cpu import PackedDtm
from helpers import generator, moderate


def network(decoder_kernel: int, merge: bool = False, depth: int = 4) -> DiffusionTensorModule:
    return moderate(DiffusionTensorModule(6, 5, 8, decoder_kernel, merge, 6 if merge else 0, depth), 2)


@pytest.mark.parametrize(("decoder_kernel", "merge"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("size", [(16, 16), (80, 48), (32, 112)])
@pytest.mark.parametrize("strip", [1, 48 * 32, 1 << 17])
@torch.no_grad()
def test_agrees_with_the_module(
    monkeypatch: pytest.MonkeyPatch, decoder_kernel: int, merge: bool, size: tuple[int, int], strip: int
) -> None:
    monkeypatch.setattr(dtm_cpu, "_FIRST_STRIP", strip)
    monkeypatch.setattr(dtm_cpu, "_LAST_STRIP", strip)
    dtm, x = network(decoder_kernel, merge), torch.randn(2, 6, *size, generator=generator(1))
    for ours, expected in zip(PackedDtm(dtm, torch.float32)(x), dtm(x), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("merge", "depth"), [(False, 5), (True, 6)])
@torch.no_grad()
def test_a_deeper_network_agrees_with_the_module(merge: bool, depth: int) -> None:
    dtm, x = network(2, merge, depth), torch.randn(2, 6, 128, 64, generator=generator(1))
    for ours, expected in zip(PackedDtm(dtm, torch.float32)(x), dtm(x), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("merge", [False, True])
@torch.no_grad()
def test_bfloat16_is_close_and_ends_in_float32(merge: bool) -> None:
    dtm, x = network(2, merge), torch.randn(1, 6, 64, 96, generator=generator(2))
    for ours, expected in zip(PackedDtm(dtm, torch.bfloat16)(x), dtm(x), strict=True):
        assert ours.dtype == torch.float32
        assert 0 < (ours - expected).norm() < 0.02 * expected.norm()


@torch.no_grad()
def test_small_differences_of_large_inputs_survive_bfloat16() -> None:
    # What the first layer sees of a picture: a difference of one grey level in 255 at a bright place.
    dtm, x = network(2), torch.full((1, 6, 32, 32), 2.6)
    step = x.clone()
    step[..., 16:] += 1 / (255 * 0.225)
    packed = PackedDtm(dtm, torch.bfloat16)
    edge = [ours - flat for ours, flat in zip(packed(step), packed(x), strict=True)]
    expected = [a - b for a, b in zip(dtm(step), dtm(x), strict=True)]
    assert (edge[-1] - expected[-1]).norm() < 0.5 * expected[-1].norm()


@torch.no_grad()
def test_repacking_follows_the_weights() -> None:
    dtm, x = network(2), torch.randn(1, 6, 16, 16, generator=generator(3))
    packed = PackedDtm(dtm, torch.float32)
    for parameter in dtm.parameters():
        parameter.mul_(1.5)
    packed.repack()
    torch.testing.assert_close(packed(x)[-1], dtm(x)[-1], rtol=1e-4, atol=1e-5)


def test_half_precision_is_for_cpus_that_have_instructions_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, dtype in (
        ({"avx2": True, "avx512_bf16": False}, torch.float32),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        assert dtm_cpu.fastest_dtype() == dtype
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert dtm_cpu.fastest_dtype() == torch.float32
