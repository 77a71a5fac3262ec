import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flowinpaint as fi
from flowinpaint.errors import InputError, MissingFileError
from flowinpaint.machine import device_name
from flowinpaint.reproduction import networks
from flowinpaint.reproduction.experiment import NETWORKS, Scale, budget_of
from flowinpaint.reproduction.networks import Callbacks, NetworkOptions, Networks, TrainingStopped
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import Listener, Outcome, Progress, train
from scene_bank import save_bank, tiny_bank

pytestmark = pytest.mark.usefixtures("tiny_scenes")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the networks that are trained, or gone on with, in a test."""
    names: list[str] = []

    def told(config: TrainingConfig, out: Path, *others: Any, **options: Any) -> Outcome:
        names.append(out.name)
        return train(config, out, *others, **options)

    monkeypatch.setattr(networks, "train", told)
    return names


def interrupting(step: int) -> Callbacks:
    """Callbacks that press Ctrl-C after a step."""

    @contextmanager
    def display(config: TrainingConfig, world: World) -> Iterator[Listener]:
        def progress(at: Progress) -> None:
            if at.step == step:
                os.kill(os.getpid(), signal.SIGINT)

        yield Listener(progress=progress)

    return Callbacks(training=display)


def networks_in(
    folder: Path, scale: Scale, options: NetworkOptions | None = None, callbacks: Callbacks | None = None
) -> Networks:
    return Networks(folder, scale, options or NetworkOptions(), "cpu", callbacks or Callbacks())


def test_a_network_is_trained_once(tmp_path: Path, scale: Scale, trained: list[str]) -> None:
    assert networks_in(tmp_path, scale).find("ours-05") is None
    first = networks_in(tmp_path, scale).get("ours-05")
    assert trained == ["ours-05"]
    assert first.training is not None
    assert (first.training.steps, first.training.device) == (1, device_name("cpu"))
    assert first.training.config["masks"]["density"] == [0.05, 0.05]
    assert fi.load_model(first.weights, "cpu").config.kind == "neuroexplicit"
    assert not (tmp_path / "ours-05" / "checkpoints").exists()
    again = networks_in(tmp_path, scale).get("ours-05")
    assert trained == ["ours-05"]
    assert again.hash == first.hash
    assert again.training is not None


def test_what_was_not_asked_for_may_differ_and_what_was_may_not(
    tmp_path: Path, scale: Scale, trained: list[str]
) -> None:
    told: list[str] = []
    first = networks_in(tmp_path, scale, NetworkOptions(budget_of(steps=2))).get("ours-05")
    assert networks_in(tmp_path, scale).get("ours-05").hash == first.hash  # whatever its budget was
    assert trained == ["ours-05"]
    other = networks_in(tmp_path, scale, NetworkOptions(budget_of(steps=1)), Callbacks(note=told.append)).get("ours-05")
    assert trained == ["ours-05"] * 2
    assert other.hash != first.hash
    assert (tmp_path / "ours-05.old" / "model.safetensors").is_file()
    assert any("is now in ours-05.old: schedule:" in sentence for sentence in told)
    wider = replace(scale, family_settings={"ours": ("model.width=12", "model.steps=[1, 1, 1, 1]")})
    assert networks_in(tmp_path, wider).find("ours-05") is None
    assert networks_in(tmp_path, scale, NetworkOptions(settings=("optimiser.lr=0.5",))).find("ours-05") is None


def test_another_bank_is_another_network(tmp_path: Path, scale: Scale, trained: list[str]) -> None:
    banks = []
    for name in ("one", "two"):
        bank = tiny_bank()
        if name == "two":
            bank = replace(bank, pixels=bank.pixels.flip(0))
        banks.append(tmp_path / f"{name}.safetensors")
        save_bank(bank, banks[-1])
    first = networks_in(tmp_path / "n", scale, NetworkOptions(bank=str(banks[0]))).get("ours-05")
    moved = tmp_path / "moved.safetensors"
    shutil.copy(banks[0], moved)
    for options in (NetworkOptions(bank=str(moved)), NetworkOptions()):
        found = networks_in(tmp_path / "n", scale, options).find("ours-05")
        assert found is not None
        assert found.hash == first.hash
    assert networks_in(tmp_path / "n", scale, NetworkOptions(bank=str(banks[1]))).find("ours-05") is None


def test_an_interrupted_training_goes_on(tmp_path: Path, scale: Scale, trained: list[str]) -> None:
    options = NetworkOptions(budget_of(steps=6))
    with pytest.raises(TrainingStopped, match=r"step 3 of ours-05 is saved"):
        networks_in(tmp_path, scale, options, interrupting(2)).get("ours-05")
    assert (tmp_path / "ours-05" / "model.safetensors").is_file()
    assert networks_in(tmp_path, scale).find("ours-05") is None  # it is not finished
    whole = networks_in(tmp_path / "other", scale, options).get("ours-05")
    found = networks_in(tmp_path, scale).get("ours-05")  # with the budget that it was begun with
    assert found.training is not None
    assert found.training.steps == 6
    assert found.hash == whole.hash
    assert trained == ["ours-05"] * 3
    assert not (tmp_path / "ours-05.old").exists()


def test_a_training_that_was_begun_otherwise_begins_anew(tmp_path: Path, scale: Scale) -> None:
    with pytest.raises(TrainingStopped):
        networks_in(tmp_path, scale, NetworkOptions(budget_of(steps=5)), interrupting(1)).get("ours-05")
    found = networks_in(tmp_path, scale, NetworkOptions(budget_of(steps=1))).get("ours-05")
    assert found.training is not None
    assert found.training.steps == 1
    assert (tmp_path / "ours-05.old" / "checkpoints").is_dir()


def test_models_made_elsewhere_are_taken(tmp_path: Path, scale: Scale, trained: list[str]) -> None:
    made = networks_in(tmp_path / "made", scale).get("ours-05")
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(made.weights, models / "ours-05.safetensors")
    found = networks_in(tmp_path / "n", scale, NetworkOptions(models=models)).get("ours-05")
    assert (found.hash, found.weights) == (made.hash, models / "ours-05.safetensors")
    assert found.training is None
    whole = networks_in(tmp_path / "n", scale, NetworkOptions(models=tmp_path / "made")).get("ours-05")
    assert whole.training == made.training
    assert trained == ["ours-05"]
    assert networks_in(tmp_path / "n", scale, NetworkOptions(models=models)).find("ours-10") is None


def test_a_file_put_in_place_is_taken_for_what_it_is(tmp_path: Path, scale: Scale) -> None:
    first = networks_in(tmp_path, scale).get("ours-05")
    second = networks_in(tmp_path, scale).get("ours-10")
    shutil.copy(second.weights, first.weights)
    found = networks_in(tmp_path, scale).find("ours-05")
    assert found is not None
    assert (found.hash, found.training) == (second.hash, None)


def test_what_is_left_of_a_file_about_a_network_is_no_network(tmp_path: Path, scale: Scale) -> None:
    found = networks_in(tmp_path, scale).get("ours-05")
    about = found.weights.with_name("network.json")
    for text in ("", "{", json.dumps({"config": {}}), json.dumps([1])):
        about.write_text(text)
        assert networks_in(tmp_path, scale).find("ours-05") is None


def test_every_family_can_be_trained_at_the_smallest_scale(tmp_path: Path, scale: Scale) -> None:
    for name in ("flownets-05", "wgain-05", "pd"):
        assert networks_in(tmp_path, scale).get(name).spec is NETWORKS[name]


def test_bad_options_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--models must be .*no, which is not a folder"):
        NetworkOptions(models=tmp_path / "no")
    with pytest.raises(MissingFileError, match=r"^--bank must be a file, but .*no does not exist"):
        NetworkOptions(bank=str(tmp_path / "no"))


def test_networks_of_a_rehearsal_are_refused_in_earnest(tmp_path: Path, scale: Scale) -> None:
    networks_in(tmp_path / "quick", scale).get("ours-05")
    options = NetworkOptions(models=tmp_path / "quick")
    assert networks_in(tmp_path / "again", scale, options).find("ours-05") is not None
    earnest = networks_in(tmp_path / "earnest", replace(scale, rehearsal=False), options)
    with pytest.raises(InputError, match=r"--models must .*, got the rehearsal .*model.safetensors"):
        earnest.find("ours-05")


def test_training_in_earnest_on_a_cpu_is_warned_of_once(tmp_path: Path, scale: Scale) -> None:
    told: list[str] = []
    earnest = networks_in(tmp_path, replace(scale, rehearsal=False), callbacks=Callbacks(note=told.append))
    for name in ("ours-05", "ours-10"):
        earnest.get(name)
    assert sum("train on a GPU" in sentence for sentence in told) == 1
    told.clear()
    networks_in(tmp_path / "quick", scale, callbacks=Callbacks(note=told.append)).get("ours-05")
    assert not any("train on a GPU" in sentence for sentence in told)
