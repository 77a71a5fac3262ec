import math

import pytest
import torch

from flowinpaint.data import Batch
from flowinpaint.networks.output import Filled
from flowinpaint.training.config import OptimiserConfig
from flowinpaint.training.losses import LOSS_EPSILON, epe_loss, foresight_loss, log_loss, loss_of
from flowinpaint.training.task import Task
from helpers import generator


def test_the_loss_is_the_mean_over_samples_of_means_over_valid_pixels() -> None:
    truth = torch.zeros(2, 2, 4, 4)
    prediction = torch.zeros(2, 2, 4, 4)
    prediction[0, :, 0, 0] = torch.tensor([3.0, 4.0])
    prediction[1, 0] = 2.0
    prediction[1, :, 3] = 1e3
    valid = torch.ones(2, 1, 4, 4)
    valid[0, :, 1:] = 0
    valid[1, :, 3] = 0
    rest = 3 * LOSS_EPSILON**0.5
    assert epe_loss(prediction, truth, valid).item() == pytest.approx(((5 + rest) / 4 + 2) / 2, abs=1e-5)


def test_the_loss_has_a_gradient_where_it_is_zero_and_where_nothing_is_valid() -> None:
    prediction = torch.zeros(1, 2, 3, 3, requires_grad=True)
    for valid in (torch.ones(1, 1, 3, 3), torch.zeros(1, 1, 3, 3)):
        (gradient,) = torch.autograd.grad(epe_loss(prediction, torch.zeros(1, 2, 3, 3), valid), prediction)
        assert (gradient == 0).all()


def test_with_the_logarithm_samples_count_alike_whatever_their_size() -> None:
    torch.manual_seed(0)
    prediction, truth = torch.randn(2, 2, 5, 6, requires_grad=True), torch.randn(2, 2, 5, 6)
    prediction.data[1], truth[1] = 100 * prediction.data[1] + 700, 100 * truth[1] + 700
    valid = torch.ones(2, 1, 5, 6)
    errors = (prediction - truth).norm(dim=1).mean((1, 2)).detach()
    loss = log_loss(prediction, truth, valid)
    assert loss.item() == pytest.approx(errors.log().mean().item(), abs=0.02)
    (gradient,) = torch.autograd.grad(loss, prediction)
    weight = (gradient.flatten(1).norm(dim=1) * errors).tolist()
    assert weight[0] == pytest.approx(weight[1], rel=0.05)
    assert torch.isfinite(log_loss(truth, truth, 0 * valid))


def problem(spread: float = 3.0) -> Task:
    """A task whose vectors deviate by `spread` px or so."""
    g = generator(4)
    flow, mask = spread * torch.randn(2, 2, 40, 50, generator=g), (torch.rand(2, 1, 40, 50, generator=g) < 0.2).float()
    batch = Batch(torch.rand(2, 3, 40, 50, generator=g), flow, torch.ones(2, 1, 40, 50))
    return Task(batch, mask, flow, torch.arange(2))


@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_the_best_foresight_is_the_mean_error_in_deviations(spread: float) -> None:
    task = problem(spread)
    errors = spread * torch.tensor([0.5, 2.0]).view(1, 1, 1, 2).repeat(2, 1, 40, 25)  # of two kinds, side by side
    direction = torch.nn.functional.normalize(torch.randn(2, 2, 40, 50, generator=generator(5)), dim=1)
    field = task.given + errors * direction * torch.empty(2, 1, 40, 50).exponential_(generator=generator(6))
    log_error = torch.zeros(1, 1, 1, 2, requires_grad=True)
    optimiser = torch.optim.Adam([log_error], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        loss = foresight_loss(Filled(field, log_error.repeat(2, 1, 40, 25)), task)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    deviation = spread * math.sqrt(2 / math.pi)
    assert log_error.exp().flatten().tolist() == pytest.approx(
        [0.5 * spread / deviation, 2.0 * spread / deviation], rel=0.1
    )


def test_the_field_does_not_learn_from_foresight_nor_what_is_given_from_either() -> None:
    task = problem()
    field = (task.given + 1).requires_grad_()
    log_error = torch.zeros(2, 1, 40, 50, requires_grad=True)
    foresight_loss(Filled(field, log_error), task).backward()  # type: ignore[no-untyped-call]
    assert field.grad is None
    assert log_error.grad is not None
    assert not log_error.grad[task.mask > 0].any()
    assert log_error.grad[task.mask == 0].all()


def test_foresight_stays_finite_for_one_vector_and_for_none() -> None:
    task = problem()
    for given in (0, 1):
        few = torch.zeros_like(task.mask)
        few[:, :, 5, :given] = 1
        log_error = torch.full((2, 1, 40, 50), -1e4, requires_grad=True)
        loss = foresight_loss(Filled(task.given + 1, log_error), task._replace(mask=few))
        loss.backward()  # type: ignore[no-untyped-call]
        assert torch.isfinite(loss)


def test_the_loss_of_a_configuration() -> None:
    task = problem()
    field, log_error = task.given + 0.3, torch.zeros(2, 1, 40, 50)
    for kind, of_field in (("epe", epe_loss), ("log", log_loss)):
        config = OptimiserConfig(loss=kind, error_weight=0.25)  # type: ignore[arg-type]
        alone = of_field(field, task.batch.flow, task.batch.valid)
        assert torch.equal(loss_of(config)(Filled(field, None), task), alone)
        both = loss_of(config)(Filled(field, log_error), task)
        torch.testing.assert_close(both, alone + 0.25 * foresight_loss(Filled(field, log_error), task))
