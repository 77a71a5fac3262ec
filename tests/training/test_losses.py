import pytest
import torch

from flowinpaint.training.objectives import LOSS_EPSILON, epe_loss, log_loss


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
