from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.counter_rng import Draws
from flowinpaint.data import Batch
from flowinpaint.training.batches import GeneratedSource
from flowinpaint.training.loop import build_step
from flowinpaint.training.objectives import epe_loss
from flowinpaint.training.optimiser import EMA_RISE
from flowinpaint.training.step import TrainingStep
from helpers import neuroexplicit
from tiny_runs import CPU, halves, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def snapshot(training: TrainingStep) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in training.state().items()}


def spoiled(spoil: Callable[[Tensor, Batch], Batch]) -> TrainingStep:
    """A step whose batches are changed before they are used."""
    config = tiny()
    training = build_step(config, CPU)
    scenes = halves(config.data, CPU.device)
    training.source = GeneratedSource(lambda samples: spoil(samples, scenes(samples)))
    return training


def test_a_step_is_adams_on_the_clipped_gradient_and_the_average_follows() -> None:
    config = tiny(optimiser={"clip": 0.01, "ema": 0.9})
    training = build_step(config, CPU)
    first = snapshot(training)
    other = build_step(config, CPU)
    adam = torch.optim.Adam(other.model.parameters(), lr=1e-2, betas=config.optimiser.betas, eps=config.optimiser.eps)
    average = {name: p.detach().clone() for name, p in other.model.named_parameters()}
    for step in range(3):
        training.run(1e-2)
        samples = torch.arange(4 * step, 4 * step + 4)
        batch = other.source.again(samples)
        mask = config.masks.draw(Draws(samples, config.data.seed + 7919), *batch)
        adam.zero_grad()
        epe_loss(other.model(batch.image, batch.flow, mask), batch.flow, batch.valid).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(other.model.parameters(), 0.01)
        assert norm > 0.01
        adam.step()
        kept = min(0.9, (2 + step) / (EMA_RISE + 1 + step))
        for name, p in other.model.named_parameters():
            average[name] = kept * average[name] + (1 - kept) * p.detach()
    for name, p in other.model.named_parameters():
        torch.testing.assert_close(training.parameters[name], p)
        torch.testing.assert_close(training.average.get_parameter(name), average[name])
    assert not torch.equal(training.parameters["dtm.cnv0.weight"], first["weights.dtm.cnv0.weight"])


def test_the_mask_hides_what_it_does_not_give() -> None:
    """Were hidden vectors to leak, doubling them would change what is predicted."""
    training = build_step(tiny(), CPU)
    batch = training.source.again(training.samples)
    task = training.task_of(training.samples, batch)
    assert 0.05 < task.mask.mean() < 0.4
    loud = task._replace(given=torch.where(task.mask > 0, task.given, 100.0))
    assert torch.equal(training.predict(task).field, training.predict(loud).field)


@pytest.mark.parametrize("part", ["image", "flow"])
def test_a_step_that_is_not_finite_changes_nothing_but_counters(part: str) -> None:
    def spoil(samples: Tensor, batch: Batch) -> Batch:
        bad = (samples // 4 == 1).view(-1, 1, 1, 1)
        return batch._replace(**{part: torch.where(bad, torch.nan, getattr(batch, part))})

    training = spoiled(spoil)
    training.run(1e-3)
    before = snapshot(training)
    training.run(1e-3)
    after = snapshot(training)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"counters.skipped", "counters.skipped_in_row", "counters.last_bad_sample"}
    statistics = training.optimiser.read_statistics()
    assert (statistics.skipped, statistics.skipped_in_row, statistics.last_bad_sample) == (1, 1, 4)
    assert statistics.loss is not None
    training.run(1e-3)
    assert not torch.equal(training.state()["weights.dtm.cnv0.weight"], before["weights.dtm.cnv0.weight"])
    statistics = training.optimiser.read_statistics()
    assert (statistics.skipped, statistics.skipped_in_row, statistics.last_bad_sample) == (1, 0, 4)


def test_a_step_without_a_finite_one_has_no_loss_to_tell() -> None:
    training = spoiled(lambda samples, batch: batch._replace(flow=batch.flow * torch.inf))
    training.run(1e-3)
    statistics = training.optimiser.read_statistics()
    assert statistics.loss is None
    assert statistics.grad_norm is None
    assert statistics.skipped == 1


def test_sums_start_afresh_when_read() -> None:
    training = build_step(tiny(), CPU)
    training.run(0.0)
    one = training.optimiser.read_statistics()
    training.run(0.0)
    other = training.optimiser.read_statistics()
    training = build_step(tiny(), CPU)
    training.run(0.0)
    training.run(0.0)
    both = training.optimiser.read_statistics()
    assert one.loss is not None
    assert other.loss is not None
    assert one.loss != other.loss
    assert both.loss == pytest.approx((one.loss + other.loss) / 2)


def test_kernels_of_the_learned_stencil_stay_constrained() -> None:
    training = build_step(tiny(model={"learn_kernels": True}), CPU)
    for _ in range(2):
        training.run(0.5)
    weights = [value for name, value in training.parameters.items() if name.startswith("blocks")]
    assert weights
    assert all((w.abs().sum((-2, -1)) <= 2 + 1e-5).all() for w in weights)


def test_bfloat16_is_for_the_network_alone() -> None:
    seen = []
    for precision in ("float32", "bfloat16"):
        training = build_step(tiny(optimiser={"precision": precision}), CPU)
        neuroexplicit(training.model).dtm.register_forward_hook(lambda module, inputs, maps: seen.append(maps[0].dtype))
        batch = training.source.again(training.samples)
        filled = training.predict(training.task_of(training.samples, batch))
        assert filled.field.dtype == torch.float32
        training.run(1e-3)
        assert training.optimiser.read_statistics().skipped == 0
    assert set(seen[:2]) == {torch.float32}
    assert set(seen[2:]) == {torch.bfloat16}
    assert not build_step(tiny(), CPU).bf16


def test_segments_save_memory_and_change_nothing_but_rounding() -> None:
    def kept(segment: int) -> tuple[int, float | None]:
        tables: dict[str, dict[str, Any]] = {"model": {"steps": [2, 4, 8, 20]}, "run": {"segment": segment}}
        training = build_step(tiny(**tables), CPU)
        largest = 0

        def pack(x: Tensor) -> Tensor:
            nonlocal largest
            largest = max(largest, x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            training.run(1e-3)
        training.run(1e-3)
        return largest, training.optimiser.read_statistics().loss

    (all_kept, loss), (some_kept, same) = kept(0), kept(5)
    assert some_kept < all_kept / 2
    assert loss == pytest.approx(same, rel=1e-5)
