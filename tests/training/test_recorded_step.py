"""The training step as a CUDA graph; these tests need a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flowinpaint.data import Batch
from flowinpaint.training.batches import GeneratedSource
from flowinpaint.training.checkpoint import read_newest
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import build_step, train
from flowinpaint.training.optimiser import Statistics
from flowinpaint.training.step import AHEAD, WARM_UP, TrainingStep
from frame_folder import make_sample
from tiny_runs import halves, tiny

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("simple_scenes")]

STEPS = WARM_UP + 6


def steps(training: TrainingStep, count: int = STEPS) -> Statistics:
    for _ in range(count):
        training.run(1e-3)
    return training.optimiser.read_statistics()


def built(graph: bool, **tables: dict[str, Any]) -> TrainingStep:
    options: dict[str, dict[str, Any]] = {"optimiser": {"precision": "float32"}, **tables}
    options["run"] = {"graph": graph, "compile": False}
    return build_step(tiny(**options), World(torch.device("cuda")))


@pytest.mark.parametrize("kernels", ["adam", "muon"])
def test_a_replayed_step_is_the_eager_one(kernels: str) -> None:
    options = {"precision": "float32", "kernels": kernels}
    eager, recorded = built(False, optimiser=options), built(True, optimiser=options)
    one, other = steps(eager), steps(recorded)
    assert recorded.ready
    assert one.loss == pytest.approx(other.loss, rel=1e-3)
    assert torch.equal(eager.samples, recorded.samples)
    for name, value in eager.state().items():
        torch.testing.assert_close(recorded.state()[name], value, rtol=0.05, atol=2e-3, msg=name)


def test_a_replay_takes_the_learning_rate_of_its_moment() -> None:
    training = built(True)
    steps(training)
    before = training.parameters["dtm.cnv0.weight"].detach().clone()
    training.run(0.0)
    assert torch.equal(training.parameters["dtm.cnv0.weight"], before)
    training.run(1e-2)
    assert not torch.equal(training.parameters["dtm.cnv0.weight"], before)


def test_a_replay_skips_what_is_not_finite() -> None:
    training = built(True)
    bad_step = WARM_UP + 3
    scenes = halves(training.config.data, torch.device("cuda"))

    def spoiled(samples: Tensor) -> Batch:
        batch = scenes(samples)
        bad = (samples // 4 == bad_step).view(-1, 1, 1, 1)
        return batch._replace(image=torch.where(bad, torch.nan, batch.image))

    training.source = GeneratedSource(spoiled)
    statistics = steps(training)
    assert (statistics.skipped, statistics.skipped_in_row, statistics.last_bad_sample) == (1, 0, 4 * bad_step)
    assert all(torch.isfinite(value).all() for value in training.state().values())


def test_batches_from_disk_reach_a_replay(tmp_path: Path) -> None:
    for i in range(3):
        make_sample(tmp_path / "frames" / "A" / f"{i}", seed=i)
    disk = {"source": "folder", "root": str(tmp_path / "frames"), "size": [16, 16], "batch": 2, "workers": 1}
    one, other = steps(built(False, data=disk)), steps(built(True, data=disk))
    assert one.loss == pytest.approx(other.loss, rel=1e-3)


@pytest.mark.filterwarnings("default")  # the compiler has its own
@pytest.mark.parametrize(("compile_parts", "kernels"), [(False, "adam"), (True, "adam"), (True, "muon")])
def test_a_whole_run_goes_on_after_a_stop(tmp_path: Path, compile_parts: bool, kernels: str) -> None:
    world = World(torch.device("cuda"))
    constant = {"curve": "halving", "warmup": 0}
    run = {"compile": compile_parts, "log_every": 1}
    for out, lengths in (("whole", [2 * STEPS]), ("parts", [STEPS, 2 * STEPS])):
        for length in lengths:
            config = tiny(schedule=constant | {"steps": length}, run=run, optimiser={"kernels": kernels})
            train(config, tmp_path / out, world, resume=length != lengths[0])
    whole, parts = (read_newest(tmp_path / out / "checkpoints")[0] for out in ("whole", "parts"))
    assert whole.step == parts.step == 2 * STEPS
    for name, value in whole.tensors.items():
        torch.testing.assert_close(parts.tensors[name], value, rtol=0.1, atol=1e-2, msg=name)


def test_the_host_does_not_run_far_ahead() -> None:
    training = built(True)
    steps(training)
    assert len(training._queue) <= AHEAD
