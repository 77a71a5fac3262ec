import torch
from hypothesis import given, settings

from flowinpaint.diffusion.stencil import cell_delta, divergence, edge_weights, stable_beta
from flowinpaint.neural.diffusion_block import BLOCK_TIME_STEP, DiffusionBlocks
from helpers import generator, random_process, seeds, sizes


@given(seeds, sizes)
def test_finite_differences_give_the_stencils_operator(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    beta = stable_beta(D, alpha)
    u = torch.randn(1, 2, *size, dtype=torch.float64, generator=generator(seed))
    expected = divergence(edge_weights(D, cell_delta(D, alpha, beta)), u)
    torch.testing.assert_close(DiffusionBlocks(1, 2)(0, D, alpha, beta, u), expected)


def randomised(seed: int, channels: int) -> DiffusionBlocks:
    blocks = DiffusionBlocks(3, channels)
    with torch.no_grad():
        blocks.weight.copy_(5 * torch.randn(blocks.weight.shape, generator=generator(seed)))
    return blocks


@given(seeds, sizes)
@settings(max_examples=50)
def test_constrained_kernels_never_raise_the_norm(seed: int, size: tuple[int, int]) -> None:
    D, alpha = random_process(seed, *size)
    blocks = randomised(seed, 2)
    blocks.constrain_()
    u = torch.randn(1, 2, *size, dtype=torch.float64, generator=generator(seed + 1))
    for step in range(3):
        after = u + BLOCK_TIME_STEP * blocks(step, D, alpha, stable_beta(D, alpha), u)
        assert after.norm() <= u.norm() * (1 + 1e-6)


def test_without_the_constraint_the_norm_explodes() -> None:
    D, alpha = random_process(0, 6, 6)
    u = torch.randn(1, 2, 6, 6, dtype=torch.float64, generator=generator(1))
    after = u + BLOCK_TIME_STEP * randomised(0, 2)(0, D, alpha, stable_beta(D, alpha), u)
    assert after.norm() > 2 * u.norm()


def test_the_constraint_leaves_kernels_that_keep_to_it() -> None:
    blocks = DiffusionBlocks(4, 3)
    before = blocks.weight.detach().clone()
    blocks.constrain_()
    assert torch.equal(blocks.weight, before)
