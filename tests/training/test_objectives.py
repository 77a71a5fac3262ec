import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.config_parsing import build
from flowinpaint.errors import InputError
from flowinpaint.training import loop, source
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.loop import build_step, train
from flowinpaint.training.losses import SCALE_WEIGHTS, epe_loss, multiscale_loss
from flowinpaint.training.objectives import Adversarial
from flowinpaint.training.step import TrainingStep
from tiny_runs import CPU, TINY, halves, lines, tiny

UNETS = {"widths": [16, 16], "blocks": 1, "attention": [0, 0]}
MODELS: dict[str, dict[str, Any]] = {
    "flownets": {"kind": "flownets", "width": 4},
    "wgain": {"kind": "wgain", "width": 2},
    "pd": {"kind": "pd", "base": UNETS, "fine": UNETS, "reduction": 2},
}
KINDS = pytest.mark.parametrize("kind", MODELS)


@pytest.fixture(autouse=True)
def scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "scenes_of", halves)


def config_of(kind: str, **tables: dict[str, Any]) -> TrainingConfig:
    """A tiny run of a kind of network."""
    return build(TrainingConfig, TINY | tables | {"model": MODELS[kind]})


@KINDS
def test_every_kind_learns_by_the_same_loop(kind: str) -> None:
    training = build_step(config_of(kind, optimiser={"lr": 2e-3, "ema": 0.0}), CPU)
    task = training.make_task(training.samples)
    losses = [_error(training, task)]
    for _ in range(30):
        training.optimiser.rate.fill_(2e-3)
        training.objective.set_rate(2e-3)
        training.train_on(task)
    losses.append(_error(training, task))
    assert losses[1] < 0.8 * losses[0], losses


def _error(training: TrainingStep, task: Any) -> float:
    with torch.no_grad():
        output = training.predict(task)
    if isinstance(output, Tensor) and output.ndim == 0:
        return output.item()
    field = output if isinstance(output, Tensor) else output[0]
    return epe_loss(field[..., :24, :32], task.batch.flow, task.batch.valid).item()


@KINDS
def test_a_stopped_run_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    config = config_of(kind)
    train(config, tmp_path / "whole", CPU)

    class StoppedError(Exception):
        pass

    def stop(at: loop.Progress) -> None:
        if at.step == 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(config, tmp_path / "parts", CPU, listener=loop.Listener(progress=stop))
    train(config, tmp_path / "parts", CPU, resume=True)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


@KINDS
def test_a_new_process_draws_the_same_noise(kind: str) -> None:
    first, second = (build_step(config_of(kind), CPU) for _ in range(2))
    samples = torch.arange(4)
    torch.rand(7)  # nothing depends on the global state
    outputs = [step.predict(step.task_of(samples, step.source.again(samples))) for step in (first, second)]
    for a, b in zip(*(o if isinstance(o, list | tuple) else [o] for o in outputs), strict=True):
        assert torch.equal(a, b)


def test_the_critic_is_trained_and_the_generator_does_not_move_it() -> None:
    training = build_step(config_of("wgain"), CPU)
    objective = training.objective
    assert isinstance(objective, Adversarial)
    adversary = objective.adversary
    task = training.make_task(training.samples)
    objective.set_rate(1e-3)
    made = training.predict(task)
    before = {name: value.clone() for name, value in adversary.critic.state_dict().items()}
    adversary.loss(made, task).backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(value, before[name]) for name, value in adversary.critic.state_dict().items())
    assert all(parameter.grad is None for parameter in adversary.critic.parameters())
    adversary.step(made.detach(), task)
    changed = [name for name, value in adversary.critic.state_dict().items() if not torch.equal(value, before[name])]
    assert set(changed) >= {name for name in before if not name.endswith("bias")}  # what both share cancels


def test_a_trained_critic_tells_true_from_made_with_a_slope_near_one() -> None:
    training = build_step(config_of("wgain", optimiser={"lr": 2e-3, "betas": [0.5, 0.9]}), CPU)
    objective = training.objective
    assert isinstance(objective, Adversarial)
    adversary = objective.adversary
    objective.set_rate(2e-3)
    task = training.make_task(training.samples)
    made = task.batch.flow + 3 * torch.randn(task.batch.flow.shape, generator=torch.Generator().manual_seed(0))
    for _ in range(120):
        adversary.step(made, task)
    image, mask = task.batch.image, task.mask
    real, fake = (adversary.critic(image, x / 100, mask).mean().item() for x in (task.batch.flow, made))
    distance = (made - task.batch.flow).square().mean().sqrt().item()
    # By the measure in which its slope is held at 1, the mean judgements are about as far apart as the fields are.
    assert 0.3 * distance < real - fake < 1.5 * distance


def test_the_multiscale_loss_of_the_truth_is_nothing_and_weights_are_the_papers() -> None:
    training = build_step(config_of("flownets", data={"size": [64, 64], "batch": 2}), CPU)
    task = training.make_task(training.samples)
    truth = task.batch.flow
    scales = [torch.nn.functional.avg_pool2d(truth, 2**k) for k in range(len(SCALE_WEIGHTS))]
    assert multiscale_loss(scales, task).item() < 1e-2
    for k, weight in enumerate(SCALE_WEIGHTS):
        off = [scale + (torch.tensor([3.0, 4.0]).view(1, 2, 1, 1) if j == k else 0) for j, scale in enumerate(scales)]
        assert math.isclose(multiscale_loss(off, task).item(), 5 * weight, rel_tol=1e-2, abs_tol=2e-3)


def test_pixels_that_are_not_valid_do_not_count() -> None:
    training = build_step(config_of("flownets", data={"size": [64, 64], "batch": 2}), CPU)
    task = training.make_task(training.samples)
    valid = torch.ones_like(task.batch.valid)
    valid[..., :32] = 0
    task = task._replace(batch=task.batch._replace(valid=valid))
    predictions = training.model.predictions(task.batch.image, task.given, task.mask)  # type: ignore[operator]
    wrong = task._replace(batch=task.batch._replace(flow=torch.where(valid > 0, task.batch.flow, 1e6)))
    torch.testing.assert_close(multiscale_loss(predictions, task), multiscale_loss(predictions, wrong))


def test_what_only_one_kind_has_is_refused_of_others() -> None:
    with pytest.raises(InputError, match=r"optimiser\.revive_every: 10 was given.*'wgain'"):
        config_of("wgain", optimiser={"revive_every": 10})
    with pytest.raises(InputError, match=r"model\.kind: 'unet' was given; 'neuroexplicit' or 'flownets'"):
        tiny(model={"kind": "unet"})
    with pytest.raises(InputError, match=r"data\.size: \[6, 6\]"):
        build_step(config_of("wgain", data={"size": [6, 6], "batch": 1}), CPU)


def test_l2_pulls_kernels_and_nothing_else_to_zero() -> None:
    steps = [build_step(config_of("flownets", optimiser={"lr": 1e-3, "l2": l2, "clip": 0.0}), CPU) for l2 in (0.0, 0.5)]
    for step in steps:
        for parameter in step.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    norms = [step.optimiser.gather_gradients().item() for step in steps]
    kernels = [p.detach() for p in steps[1].model.parameters() if p.ndim == 4]
    assert norms[0] == 0
    assert math.isclose(norms[1], 0.5 * math.sqrt(sum(float(k.square().sum()) for k in kernels)), rel_tol=1e-5)


def test_distinct_samples_come_again_with_new_masks_and_heldout_ones_stay_unseen() -> None:
    training = build_step(config_of("flownets", data={"size": [24, 32], "batch": 4, "distinct": 3}), CPU)
    generated = training.source
    assert isinstance(generated, source.GeneratedSource)
    first, again = (training.make_task(torch.arange(start, start + 3)) for start in (0, 3))
    assert torch.equal(first.batch.image, again.batch.image)
    assert not torch.equal(first.mask, again.mask)
    unseen = generated.scenes(torch.tensor([3]))
    assert not torch.equal(unseen.image, first.batch.image[:1])
