import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.config_parsing import build
from flowinpaint.errors import InputError
from flowinpaint.training import batches, loop
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.loop import build_step, train
from flowinpaint.training.objectives import epe_loss
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
    monkeypatch.setattr(batches, "scenes_of", halves)


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


def test_what_only_one_kind_has_is_refused_of_others() -> None:
    with pytest.raises(InputError, match=r"optimiser\.revive_every must be 0 with a model of kind 'wgain', got 10"):
        config_of("wgain", optimiser={"revive_every": 10})
    with pytest.raises(InputError, match=r"optimiser\.loss must be 'epe' with a model of kind 'pd', got 'log'"):
        config_of("pd", optimiser={"loss": "log"})
    with pytest.raises(InputError, match=r"model\.kind must be 'neuroexplicit' or 'flownets' or .*, got 'unet'"):
        tiny(model={"kind": "unet"})
    with pytest.raises(InputError, match=r"data\.size must have sides of at least 7 for a critic, got \[6, 6\]"):
        build_step(config_of("wgain", data={"size": [6, 6], "batch": 1}), CPU)


def test_l2_pulls_kernels_and_nothing_else_to_zero() -> None:
    steps = [build_step(config_of("flownets", optimiser={"lr": 1e-3, "l2": l2, "clip": 0.0}), CPU) for l2 in (0.0, 0.5)]
    for step in steps:
        for parameter in step.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with torch.no_grad():
            step.optimiser.advance(torch.tensor(1.0), torch.tensor(0))  # with a rate of 0
    norms = [step.optimiser.read_statistics().grad_norm for step in steps]
    kernels = [p.detach() for p in steps[1].model.parameters() if p.ndim == 4]
    assert norms[0] == 0
    assert norms[1] == pytest.approx(0.5 * math.sqrt(sum(float(k.square().sum()) for k in kernels)), rel=1e-5)


def test_distinct_samples_come_again_with_new_masks_and_heldout_ones_stay_unseen() -> None:
    training = build_step(config_of("flownets", data={"size": [24, 32], "batch": 4, "distinct": 3}), CPU)
    generated = training.source
    assert isinstance(generated, batches.GeneratedSource)
    first, again = (training.make_task(torch.arange(start, start + 3)) for start in (0, 3))
    assert torch.equal(first.batch.image, again.batch.image)
    assert not torch.equal(first.mask, again.mask)
    unseen = generated.scenes(torch.tensor([3]))
    assert not torch.equal(unseen.image, first.batch.image[:1])
