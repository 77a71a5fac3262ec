import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import flowinpaint as fi
from flowinpaint.data import Batch
from flowinpaint.errors import InputError
from flowinpaint.io.temporaries import new_temporary
from flowinpaint.networks.registry import build_network
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training import batches, loop
from flowinpaint.training.checkpoint import list_checkpoints, read_newest
from flowinpaint.training.config import DataConfig, TrainingConfig
from flowinpaint.training.loop import Listener, NotFiniteError, Outcome, Progress, train
from flowinpaint.training.objectives import epe_loss
from flowinpaint.training.validation import Scores, Validator
from frame_folder import make_sample
from helpers import neuroexplicit
from tiny_runs import CPU, halves, lines, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def run(config: TrainingConfig, out: Path, **options: Any) -> Outcome:
    return train(config, out, CPU, **options)


def final(out: Path) -> dict[str, Tensor]:
    return dict(read_newest(out / "checkpoints")[0].tensors)


def stop_after(step: int, number: int = signal.SIGINT) -> Listener:
    """Send this process a signal when a step is done."""

    def progress(at: Progress) -> None:
        if at.step == step:
            os.kill(os.getpid(), number)

    return Listener(progress=progress)


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_begins_with_weights_and_resumes_without_them(tmp_path: Path) -> None:
    torch.manual_seed(5)
    other = tiny(model={"steps": [1, 2, 3, 4]}).model
    begun = build_network(other)
    fi.save_model(begun, tmp_path / "begun.safetensors")
    weights = str(tmp_path / "begun.safetensors")
    still = tiny(optimiser={"weights": weights, "lr": 1e-12}, schedule={"steps": 2})
    run(still, tmp_path / "run")
    after = fi.load_model(tmp_path / "run" / "model.safetensors", "cpu")
    assert after.config == still.model != other
    for name, value in begun.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], value)
    (tmp_path / "begun.safetensors").unlink()
    longer = dataclasses.replace(still, schedule=dataclasses.replace(still.schedule, steps=3))
    assert run(longer, tmp_path / "run", resume=True).step == 3


def test_a_run_begins_with_the_weights_of_the_package() -> None:
    shipped = fi.load_model("neuroexplicit", "cpu")
    config = dataclasses.replace(tiny(optimiser={"weights": "neuroexplicit"}), model=shipped.config)
    model = loop.build_step(config, CPU).model
    assert all(torch.equal(value, shipped.state_dict()[name]) for name, value in model.state_dict().items())


def test_weights_of_other_layers_are_refused(tmp_path: Path) -> None:
    fi.save_model(build_network(tiny(model={"width": 3}).model), tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"optimiser\.weights must have the layers of \[model\], .*cnv0"):
        run(tiny(optimiser={"weights": str(tmp_path / "other.safetensors")}), tmp_path / "run")


def test_a_run_leaves_a_model_that_loads_and_fills(tmp_path: Path) -> None:
    outcome = run(tiny(), tmp_path / "run")
    assert (outcome.step, outcome.interrupted) == (8, False)
    model = fi.load_model(tmp_path / "run" / "model.safetensors", "cpu")
    saved = final(tmp_path / "run")
    assert all(torch.equal(value, saved[f"average.{name}"]) for name, value in model.state_dict().items())
    rng = np.random.default_rng(0)
    image, flow = rng.random((20, 20, 3)), rng.random((20, 20, 2)).astype(np.float32)
    mask = rng.random((20, 20)) < 0.2
    filled = fi.inpaint(image, flow, mask, tmp_path / "run" / "model.safetensors", "cpu")
    assert np.isfinite(filled.flow).all()


def test_the_model_learns(tmp_path: Path) -> None:
    config = tiny(schedule={"steps": 60}, optimiser={"lr": 1e-2}, model={"steps": [2, 4, 8, 12]})
    run(config, tmp_path / "run")
    saved = read_newest(tmp_path / "run" / "checkpoints")[0]
    samples = torch.arange(10**6, 10**6 + 16)
    errors = []
    for training in (loop.build_step(config, CPU), loop.build_step(config, CPU, saved)):
        batch = training.source.again(samples)
        with torch.no_grad():
            filled = training.objective.apply(training.average, training.task_of(samples, batch)).field
        errors.append(epe_loss(filled, batch.flow, batch.valid).item())
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, number: int) -> None:
    config = tiny(run={"log_every": 2})
    run(config, tmp_path / "whole")
    outcome = run(config, tmp_path / "parts", listener=stop_after(3, number))
    assert (outcome.step, outcome.interrupted) == (4, True)
    assert read_newest(tmp_path / "parts" / "checkpoints")[0].step == 4
    assert run(config, tmp_path / "parts", resume=True, listener=stop_after(5)).interrupted
    assert run(config, tmp_path / "parts", resume=True) == run(config, tmp_path / "whole", resume=True)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")


def test_a_run_that_revives_channels_goes_on_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    config = tiny(optimiser={"revive_every": 2})
    notes: list[str] = []
    run(config, tmp_path / "whole", listener=Listener(note=notes.append))
    steps = {int(note.split()[1].rstrip(":")) for note in notes if "dead channels" in note}
    assert steps and steps <= {0, 2}  # of eight: in the first half
    assert run(config, tmp_path / "parts", listener=stop_after(1)).interrupted
    run(config, tmp_path / "parts", resume=True)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_the_handlers_of_signals_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(tiny(), tmp_path / "run", listener=stop_after(1))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_lines_after_the_checkpoint_are_written_anew(tmp_path: Path) -> None:
    config = tiny(run={"checkpoint_every": 3})
    run(config, tmp_path / "whole")
    run(config, tmp_path / "parts", listener=stop_after(6))
    for path in list_checkpoints(tmp_path / "parts" / "checkpoints")[:1]:
        path.unlink()  # as if the run had been killed at step 7, after its checkpoint of step 6
    with (tmp_path / "parts" / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 8, "lo')
    run(config, tmp_path / "parts", resume=True)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_a_longer_run_may_go_on_from_a_shorter_one(tmp_path: Path) -> None:
    constant = {"curve": "halving", "halve_after": 10**6, "warmup": 0}
    run(tiny(schedule=constant), tmp_path / "whole")
    run(tiny(schedule=constant | {"steps": 3}), tmp_path / "parts")
    run(tiny(schedule=constant), tmp_path / "parts", resume=True)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"must be a folder without a run, got .*; add --resume"):
        run(tiny(), tmp_path / "run")
    with pytest.raises(InputError, match=r"data\.seed must be 0 as in the run to resume, got 1"):
        run(tiny(data={"seed": 1}), tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_nothing_to_resume_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="with a checkpoint to resume from, got"):
        run(tiny(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"must be a folder, got the file "):
        run(tiny(), tmp_path / "file")


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    def second(at: Progress) -> None:
        if at.step == 4:
            with pytest.raises(InputError, match="must not be in use by another run"):
                run(tiny(), tmp_path / "run", resume=True)

    assert run(tiny(), tmp_path / "run", listener=Listener(progress=second)).step == 8


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "run", listener=stop_after(3))
    left = [new_temporary(tmp_path / "run" / name, ".safetensors") for name in (".", "checkpoints")]
    rests = [temporary.path for temporary in left]
    for temporary in left:
        temporary.release()
    run(tiny(), tmp_path / "run", resume=True)
    assert not any(rest.exists() for rest in rests)


def test_a_torn_checkpoint_is_told_and_passed_over(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "whole")
    run(tiny(), tmp_path / "parts", listener=stop_after(6))
    newest = list_checkpoints(tmp_path / "parts" / "checkpoints")[0]
    newest.write_bytes(newest.read_bytes()[:1000])
    notes: list[str] = []
    run(tiny(), tmp_path / "parts", resume=True, listener=Listener(note=notes.append))
    assert any(": truncated" in note and ". Resuming from an older checkpoint." in note for note in notes)
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def spoil_from(sample: int, part: str, value: float) -> Callable[[DataConfig, torch.device], Callable[[Tensor], Batch]]:
    def scenes_of(data: DataConfig, device: torch.device) -> Callable[[Tensor], Batch]:
        def scenes(samples: Tensor) -> Batch:
            batch = halves(data, device)(samples)
            bad = (samples >= sample).view(-1, 1, 1, 1)
            return batch._replace(**{part: torch.where(bad, value, getattr(batch, part))})

        return scenes

    return scenes_of


@pytest.mark.parametrize(
    ("part", "value", "cause"),
    [
        ("image", torch.nan, "the input image is not finite in sample 18, 19"),
        ("flow", torch.inf, "the input flow is not finite in sample 18, 19"),
        ("flow", 1e38, "the prediction is not finite in sample 18, 19"),
    ],
)
def test_steps_that_stay_not_finite_stop_the_run_with_a_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, value: float, cause: str
) -> None:
    monkeypatch.setattr(batches, "scenes_of", spoil_from(18, part, value))
    config = tiny(run={"nan_limit": 1, "checkpoint_every": 1})
    with pytest.raises(NotFiniteError, match=r"The last 1 steps were not finite. Step 4, samples 16 to 19: ") as caught:
        run(config, tmp_path / "run")
    assert cause in str(caught.value)
    assert read_newest(tmp_path / "run" / "checkpoints")[0].step == 4
    assert lines(tmp_path / "run")[-1]["skipped"] == 1


def test_gradients_that_are_not_finite_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = loop.build_step

    def build_step(*arguments: Any) -> Any:
        training = built(*arguments)
        kernel = neuroexplicit(training.model).dtm.cnv2.weight
        kernel.register_hook(lambda grad: grad * torch.nan)  # type: ignore[no-untyped-call]
        return training

    monkeypatch.setattr(loop, "build_step", build_step)
    with pytest.raises(NotFiniteError, match=r"the gradients of dtm.cnv2.weight are not finite, while the loss is"):
        run(tiny(run={"nan_limit": 3}), tmp_path / "run")
    assert [line["skipped"] for line in lines(tmp_path / "run")] == [1, 2, 3]


def test_a_few_bad_steps_are_counted_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scenes_of(data: DataConfig, device: torch.device) -> Callable[[Tensor], Batch]:
        def scenes(samples: Tensor) -> Batch:
            batch = halves(data, device)(samples)
            bad = ((samples == 5) | (samples == 9) | (samples == 21)).view(-1, 1, 1, 1)
            return batch._replace(image=torch.where(bad, torch.nan, batch.image))

        return scenes

    monkeypatch.setattr(batches, "scenes_of", scenes_of)
    assert run(tiny(run={"nan_limit": 3}), tmp_path / "run").step == 8
    assert [line["skipped"] for line in lines(tmp_path / "run")] == [0, 1, 2, 2, 2, 3, 3, 3]
    assert [line["loss"] is None for line in lines(tmp_path / "run")] == [
        False,
        True,
        True,
        *[False] * 2,
        True,
        *[False] * 2,
    ]


def test_by_minutes_the_run_ends_when_the_time_is_over(tmp_path: Path) -> None:
    config = tiny(schedule={"minutes": 0.01, "steps": 10**9})
    outcome = run(config, tmp_path / "run")
    assert 0 < outcome.step < 1000
    saved = read_newest(tmp_path / "run" / "checkpoints")[0]
    assert saved.seconds >= 0.6
    assert run(config, tmp_path / "run", resume=True).step == outcome.step
    more = tiny(schedule={"minutes": 0.02, "steps": 10**9})
    assert run(more, tmp_path / "run", resume=True).step > outcome.step


def test_validation_does_not_count_as_training_nor_change_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, clock, slept = Validator.measure, time.perf_counter, 0.0

    def slow(self: Validator, model: Neuroexplicit) -> Scores:
        nonlocal slept
        slept += 1000
        return measure(self, model)

    monkeypatch.setattr(Validator, "measure", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + slept)
    checked = {"every": 3, "heldout": 1, "densities": [0.1]}
    run(tiny(), tmp_path / "plain")
    outcome = run(tiny(validation=checked), tmp_path / "checked")
    assert equal(final(tmp_path / "plain"), final(tmp_path / "checked"))
    assert read_newest(tmp_path / "checked" / "checkpoints")[0].seconds < 900, "there were three validations of 1000 s"
    found = lines(tmp_path / "checked")
    assert [line["step"] for line in found if line["kind"] == "validation"] == [3, 6, 8]
    assert outcome.scores is not None
    assert found[-1]["heldout"] == outcome.scores.heldout
    assert (tmp_path / "checked" / "validation.png").exists()
    assert not (tmp_path / "plain" / "validation.png").exists()
    again = run(tiny(validation=checked), tmp_path / "checked", resume=True)
    assert again == outcome
    assert lines(tmp_path / "checked") == found


@pytest.mark.parametrize("stop", [3, 4, 6])
def test_a_resumed_run_has_the_validations_of_one_that_was_not_stopped(tmp_path: Path, stop: int) -> None:
    checked = tiny(validation={"every": 2, "heldout": 1, "densities": [0.1]}, run={"checkpoint_every": 2})
    run(checked, tmp_path / "whole")
    run(checked, tmp_path / "parts", listener=stop_after(stop))
    run(checked, tmp_path / "parts", resume=True)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")


def test_a_model_that_a_kill_left_unwritten_is_written_on_resuming(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "run")
    model = tmp_path / "run" / "model.safetensors"
    expected = model.read_bytes()
    model.unlink()
    run(tiny(), tmp_path / "run", resume=True)
    assert model.read_bytes() == expected


def test_a_run_with_nothing_to_validate_on_says_so(tmp_path: Path) -> None:
    notes: list[str] = []
    run(tiny(), tmp_path / "run", listener=Listener(note=notes.append))
    assert any("validation.root" in note for note in notes)


def test_frames_of_the_validation_are_drawn(tmp_path: Path) -> None:
    for i, name in enumerate("AAB"):
        make_sample(tmp_path / "frames" / name / f"{i}", seed=i)
    validation = {"root": str(tmp_path / "frames"), "densities": [0.2], "heldout": 0}
    run(tiny(validation=validation), tmp_path / "run")
    picture = fi.read_image(tmp_path / "run" / "validation.png")
    with_scene = {**validation, "heldout": 1}
    run(tiny(validation=with_scene), tmp_path / "more")
    assert fi.read_image(tmp_path / "more" / "validation.png").shape[0] > picture.shape[0]  # a row for each


def test_settings_that_mean_nothing_are_told(tmp_path: Path) -> None:
    notes: list[str] = []
    run(tiny(data={"root": "somewhere"}), tmp_path / "run", listener=Listener(note=notes.append))
    assert "data.root is not used: data.source is 'layered'." in notes
    run(tiny(data={"root": "somewhere"}), tmp_path / "run", resume=True, listener=Listener(note=notes.append))
    assert notes[-1].startswith("Nothing left to do: the run has finished 8 steps")
