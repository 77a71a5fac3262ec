import pytest
import torch

from flowinpaint.baselines.wgain.objective import Adversarial
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.loop import build_step
from tiny_runs import CPU, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def config_of(**tables: dict[str, object]) -> TrainingConfig:
    return tiny(baseline={"kind": "wgain", "width": 2}, **tables)


def test_the_critic_is_trained_and_the_generator_does_not_move_it() -> None:
    training = build_step(config_of(), CPU)
    objective = training.objective
    assert isinstance(objective, Adversarial)
    task = training.make_task(training.samples)
    objective.set_rate(1e-3)
    made = training.predict(task)
    before = {name: value.clone() for name, value in objective.critic.state_dict().items()}
    objective.generator_loss(made, task).backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(value, before[name]) for name, value in objective.critic.state_dict().items())
    assert all(parameter.grad is None for parameter in objective.critic.parameters())
    objective.train_critic(made.detach(), task)
    changed = [name for name, value in objective.critic.state_dict().items() if not torch.equal(value, before[name])]
    assert set(changed) >= {name for name in before if not name.endswith("bias")}  # what both share cancels


def test_a_trained_critic_tells_true_from_made_with_a_slope_near_one() -> None:
    training = build_step(config_of(optimiser={"lr": 2e-3, "betas": [0.5, 0.9]}), CPU)
    objective = training.objective
    assert isinstance(objective, Adversarial)
    objective.set_rate(2e-3)
    task = training.make_task(training.samples)
    made = task.batch.flow + 3 * torch.randn(task.batch.flow.shape, generator=torch.Generator().manual_seed(0))
    for _ in range(120):
        objective.train_critic(made, task)
    image, mask = task.batch.image, task.mask
    real, fake = (objective.critic(image, x / 100, mask).mean().item() for x in (task.batch.flow, made))
    distance = (made - task.batch.flow).square().mean().sqrt().item()
    # By the measure in which its slope is held at 1, the mean judgements are about as far apart as the fields are.
    assert 0.3 * distance < real - fake < 1.5 * distance
