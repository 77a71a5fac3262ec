import pytest
import torch
from torch import Tensor, nn

from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training import loop, step
from flowinpaint.training.batches import Task
from flowinpaint.training.dead_channels import activities, batches_to_look_at, revive, rows_of
from flowinpaint.training.step import TrainingStep
from helpers import neuroexplicit
from tiny_runs import CPU, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")

NETWORKS = [
    {},
    {"decoder_kernel": 2, "flow_aware": True, "start": "pull"},
    {"decoder_kernel": 2, "merge": True, "fine_width": 5, "depth": 6, "confidence": True},
    {"depth": 5},
]
EACH = pytest.mark.parametrize("options", NETWORKS)


def step_of(**options: object) -> TrainingStep:
    return loop.build_step(tiny(model={"width": 6, **options}, data={"size": [64, 64]}), CPU)


def task_of(training: TrainingStep) -> Task:
    samples = torch.arange(100, 104)
    return training.task_of(samples, training.source.again(samples))


def maps(model: Neuroexplicit) -> list[Tensor]:
    inputs = model.dtm.cnv0.in_channels
    with torch.no_grad():
        found: list[Tensor] = model.dtm(torch.randn(2, inputs, 64, 64, generator=torch.Generator().manual_seed(3)))
    return found


def kill(model: Neuroexplicit, name: str, channels: slice) -> None:
    layer = model.dtm.get_submodule(name)
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and layer.bias is not None
    with torch.no_grad():
        rows_of(layer, layer.weight)[channels] = 0
        layer.bias[channels] = -1


def kernel(model: Neuroexplicit, name: str) -> Tensor:
    layer = model.dtm.get_submodule(name)
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    return rows_of(layer, layer.weight)


@EACH
def test_all_that_a_layer_reads_is_somebodys(options: dict[str, object]) -> None:
    model = neuroexplicit(step_of(**options).model)
    names, readers = [name for name, _ in model.dtm.named_children()], model.dtm.readers()
    assert readers.keys() == {name for name in names if not name.startswith("dt")}
    read: dict[str, list[int]] = {name: [] for name in names if name != "cnv0"}
    for source, found in readers.items():
        for reader, start in found:
            read[reader] += range(start, start + len(kernel(model, source)))
    for name, channels in read.items():
        assert sorted(channels) == list(range(kernel(model, name).shape[1])), name


@EACH
def test_dead_channels_live_and_the_maps_stay(options: dict[str, object]) -> None:
    training = step_of(**options)
    model, task = neuroexplicit(training.model), task_of(training)
    for name in model.dtm.readers():
        kill(model, name, slice(0, 2))
    before, seen = maps(model), activities(model, task)
    assert all((mean[:2] == 0).all() for mean in seen.values())
    for mean in seen.values():
        mean[2:] = 1  # what happens to be dead beside them stays
    assert revive([model], seen, seed=1) == 2 * len(seen)
    for new, old in zip(maps(model), before, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-5 * float(old.abs().max()))
    living = [bool(value > 0) for mean in activities(model, task).values() for value in mean[:2]]
    assert sum(living) > 0.8 * len(living)


@EACH
def test_a_whole_dead_layer_is_read_again(options: dict[str, object]) -> None:
    training = step_of(**options)
    model, task = neuroexplicit(training.model), task_of(training)
    deepest = f"cnv{model.config.depth}"
    kill(model, deepest, slice(None))
    reader, start = model.dtm.readers()[f"d{deepest}"][-1]  # not dt4: all pixels of the coarsest level are known
    columns = slice(start, start + len(kernel(model, f"d{deepest}")))

    def gradient() -> float:
        """Of what is read of the layer behind the dead one."""
        model.zero_grad()
        training.objective.loss(training.predict(task), task).backward()  # type: ignore[no-untyped-call]
        layer = model.dtm.get_submodule(reader)
        assert isinstance(layer.weight, Tensor) and layer.weight.grad is not None
        return float(rows_of(layer, layer.weight.grad)[:, columns].norm())

    assert gradient() == 0
    revive([model], activities(model, task), seed=1)
    assert gradient() > 0


def test_all_models_get_the_same_kernels_and_living_ones_keep_theirs() -> None:
    training = step_of()
    one = neuroexplicit(training.model)
    other = Neuroexplicit(one.config)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    seen = {name: torch.ones_like(mean) for name, mean in activities(one, task_of(training)).items()}
    assert revive([one, other], seen, seed=1) == 0
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    seen["cnv3_1"][2] = 0
    assert revive([one, other], seen, seed=1) == 1
    assert torch.equal(kernel(one, "cnv3_1")[2], kernel(other, "cnv3_1")[2])
    changed = {name for name, value in other.state_dict().items() if not torch.equal(value, before[name])}
    touched = ("cnv3_1.weight", "cnv4.weight", "dt4.weight", "dcnv3.weight")
    assert changed == {f"dtm.{name}" for name in touched}
    kept = [i for i in range(len(kernel(other, "cnv3_1"))) if i != 2]
    assert torch.equal(kernel(other, "cnv3_1")[kept], before["dtm.cnv3_1.weight"][kept])


@pytest.mark.parametrize(("batch", "side", "expected"), [(16, 384, 1), (4, 384, 4), (2, 64, 32)])
def test_small_batches_are_not_judged_by_one(batch: int, side: int, expected: int) -> None:
    assert batches_to_look_at(tiny(data={"batch": batch, "size": [side, side]}).data) == expected


def test_a_channel_that_a_later_batch_needs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    training = step_of()
    calls: list[int] = []

    def seen(model: Neuroexplicit, task: Task) -> dict[str, Tensor]:
        calls.append(len(calls))
        found = {name: torch.ones_like(mean) for name, mean in activities(model, task).items()}
        found["cnv1"][0] = float(len(calls) > 2)
        found["cnv1"][1] = 0
        return found

    monkeypatch.setattr(step, "activities", seen)
    assert training.revive(0) == 1
    assert len(calls) == batches_to_look_at(training.config.data)
