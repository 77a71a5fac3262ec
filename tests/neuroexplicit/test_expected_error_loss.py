import math

import pytest
import torch

from flowinpaint.data import Batch
from flowinpaint.networks.output import Filled
from flowinpaint.neuroexplicit.objective import Supervised, expected_error_loss
from flowinpaint.training.batches import Task
from flowinpaint.training.objectives import epe_loss, log_loss
from helpers import generator
from tiny_runs import CPU, tiny


def problem(spread: float = 3.0) -> Task:
    """A task whose vectors deviate by `spread` px or so."""
    g = generator(4)
    flow, mask = spread * torch.randn(2, 2, 40, 50, generator=g), (torch.rand(2, 1, 40, 50, generator=g) < 0.2).float()
    batch = Batch(torch.rand(2, 3, 40, 50, generator=g), flow, torch.ones(2, 1, 40, 50))
    return Task(batch, flow, mask, torch.arange(2))


@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_the_best_expected_error_is_the_mean_error_in_deviations(spread: float) -> None:
    task = problem(spread)
    errors = spread * torch.tensor([0.5, 2.0]).view(1, 1, 1, 2).repeat(2, 1, 40, 25)  # of two kinds, side by side
    direction = torch.nn.functional.normalize(torch.randn(2, 2, 40, 50, generator=generator(5)), dim=1)
    field = task.given + errors * direction * torch.empty(2, 1, 40, 50).exponential_(generator=generator(6))
    log_error = torch.zeros(1, 1, 1, 2, requires_grad=True)
    optimiser = torch.optim.Adam([log_error], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        loss = expected_error_loss(Filled(field, log_error.repeat(2, 1, 40, 25)), task)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    deviation = spread * math.sqrt(2 / math.pi)
    assert log_error.exp().flatten().tolist() == pytest.approx(
        [0.5 * spread / deviation, 2.0 * spread / deviation], rel=0.1
    )


def test_neither_the_field_nor_known_pixels_get_gradients() -> None:
    task = problem()
    field = (task.given + 1).requires_grad_()
    log_error = torch.zeros(2, 1, 40, 50, requires_grad=True)
    expected_error_loss(Filled(field, log_error), task).backward()  # type: ignore[no-untyped-call]
    assert field.grad is None
    assert log_error.grad is not None
    assert not log_error.grad[task.mask > 0].any()
    assert log_error.grad[task.mask == 0].all()


def test_the_loss_stays_finite_for_one_vector_and_for_none() -> None:
    task = problem()
    for given in (0, 1):
        few = torch.zeros_like(task.mask)
        few[:, :, 5, :given] = 1
        log_error = torch.full((2, 1, 40, 50), -1e4, requires_grad=True)
        loss = expected_error_loss(Filled(task.given + 1, log_error), task._replace(mask=few))
        loss.backward()  # type: ignore[no-untyped-call]
        assert torch.isfinite(loss)


def test_the_loss_of_a_configuration() -> None:
    task = problem()
    field, log_error = task.given + 0.3, torch.zeros(2, 1, 40, 50)
    for kind, of_field in (("epe", epe_loss), ("log", log_loss)):
        loss = Supervised(tiny(optimiser={"loss": kind, "error_weight": 0.25}), CPU).loss
        alone = of_field(field, task.batch.flow, task.batch.valid)
        assert torch.equal(loss(Filled(field, None), task), alone)
        both = loss(Filled(field, log_error), task)
        torch.testing.assert_close(both, alone + 0.25 * expected_error_loss(Filled(field, log_error), task))
