import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch._dynamo.testing import CompileCounter

from flowinpaint.diffusion.stencil import cell_delta, divergence, edge_weights, stable_beta
from flowinpaint.neuroexplicit.diffusion_block import BLOCK_TIME_STEP, DiffusionBlocks, apply_kernels, metric_of
from helpers import generator, random_process, seeds, sizes


@given(seeds, sizes)
def test_finite_differences_give_the_stencils_operator(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    beta = stable_beta(D, alpha)
    u = torch.randn(1, 2, *size, dtype=torch.float64, generator=generator(seed))
    expected = divergence(edge_weights(D, cell_delta(D, alpha, beta)), u)
    torch.testing.assert_close(DiffusionBlocks(1, 2)(0, metric_of(D, alpha, beta), u), expected)


def randomised(seed: int, channels: int) -> DiffusionBlocks:
    blocks = DiffusionBlocks(3, channels)
    with torch.no_grad():
        blocks.weight.copy_(5 * torch.randn(blocks.weight.shape, generator=generator(seed)))
    return blocks


@given(seeds, sizes)
@settings(max_examples=20)
def test_any_kernels_are_convolutions_and_their_transposes(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    beta = torch.rand(alpha.shape, dtype=torch.float64, generator=generator(seed + 1)) * 2 - 1
    u, v = torch.randn(2, 1, 2, *size, dtype=torch.float64, generator=generator(seed + 2))
    kernels = randomised(seed, 2).weight[0].double()
    metric = metric_of(D, alpha, beta)
    Wu, Wv = ([F.conv2d(x, k[:, None], groups=2) for k in kernels] for x in (u, v))
    near, far, y_near, y_far, same, other = metric
    H = [[near, far, same, other], [far, near, other, same], [same, other, y_near, y_far], [other, same, y_far, y_near]]
    energy = sum((H[i][j] * Wu[j] * Wv[i]).sum() for i in range(4) for j in range(4))
    torch.testing.assert_close(-(apply_kernels(kernels, metric, u) * v).sum(), energy)


@given(seeds, sizes)
@settings(max_examples=50)
def test_constrained_kernels_never_raise_the_norm(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    blocks = randomised(seed, 2)
    blocks.constrain_()
    u = torch.randn(1, 2, *size, dtype=torch.float64, generator=generator(seed + 1))
    for step in range(3):
        after = u + BLOCK_TIME_STEP * blocks(step, metric_of(D, alpha, stable_beta(D, alpha)), u)
        assert after.norm() <= u.norm() * (1 + 1e-6)


def test_without_the_constraint_the_norm_explodes() -> None:
    D, alpha = random_process(0, 6, 6)
    u = torch.randn(1, 2, 6, 6, dtype=torch.float64, generator=generator(1))
    after = u + BLOCK_TIME_STEP * randomised(0, 2)(0, metric_of(D, alpha, stable_beta(D, alpha)), u)
    assert after.norm() > 2 * u.norm()


def test_the_constraint_leaves_kernels_that_keep_to_it() -> None:
    blocks = DiffusionBlocks(4, 3)
    before = blocks.weight.detach().clone()
    blocks.constrain_()
    assert torch.equal(blocks.weight, before)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # which Dynamo looks at
def test_every_level_is_compiled_with_gradient_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CompileCounter()
    compiling = torch.compile
    monkeypatch.setattr(torch, "compile", lambda work, **options: compiling(work, backend=counter, **options))
    blocks = DiffusionBlocks(1, 2)
    blocks.compile_parts()
    sides = range(4, 10)
    for size in sides:
        D, alpha = random_process(0, size, size)
        metric = metric_of(D, alpha, stable_beta(D, alpha))
        for gradient in (True, False):
            with torch.set_grad_enabled(gradient):
                blocks(0, metric, torch.zeros(1, 2, size, size, dtype=torch.float64))
    assert counter.frame_count == 2 * len(sides)
