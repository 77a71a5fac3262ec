import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import flowinpaint as fi
from flowinpaint.cli import app
from flowinpaint.cli import train as command
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.training import batches
from flowinpaint.training.config import ScheduleConfig
from flowinpaint.training.loop import Progress
from flowinpaint.training.validation import Scores
from tiny_runs import TINY, halves


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the configuration tiny.toml."""
    text = "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in TINY.items()
    )
    (tmp_path / "tiny.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batches, "scenes_of", halves)
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["train", *map(str, arguments), "--device", "cpu"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def test_a_configuration_is_trained_into_a_folder_of_its_name(place: Path) -> None:
    code, stdout, _ = run("tiny.toml", "--set", "validation.heldout=2", "--set", "validation.densities=[0.1, 0.2]")
    assert code == 0
    assert "harmonic" in stdout
    assert "this model" in stdout
    assert "10 %" in stdout
    assert "Trained 8 steps" in stdout
    run_folder = place / "runs" / "tiny"
    names = {
        "checkpoints",
        "model.safetensors",
        "log.jsonl",
        "references.json",
        "validation.png",
        "tensorboard",
        ".lock",
    }
    assert {path.name for path in run_folder.iterdir()} == names


def test_the_weights_serve_fill_and_evaluate(place: Path) -> None:
    run("tiny.toml", "-o", "run")
    folder = place / "frames" / "A" / "one"
    folder.mkdir(parents=True)
    scene = sample_scene(24, 32)
    fi.write_image(folder / "image.png", scene.image)
    fi.write_flow(folder / "flow.flo", scene.flow)
    arguments = ["evaluate", "--root", "frames", "--methods", "run/model.safetensors", "--densities", "10"]
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "run/model.safetensors" in result.stdout.replace("\n", "")


def test_a_signal_ends_it_with_130_and_tells_how_to_go_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    display = command._state

    def state(at: Progress, schedule: ScheduleConfig) -> str:
        if at.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return display(at, schedule)

    monkeypatch.setattr(command, "_state", state)
    code, stdout, stderr = run("tiny.toml", "-o", "run")
    assert code == 130
    assert stdout == ""
    assert "Stopped: step 4 is saved; resume with: flowinpaint train --resume -o run" in stderr
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setattr(batches, "scenes_of", halves)
    code, stdout, _ = run("--resume", "-o", "run")
    assert code == 0
    assert "Trained 8 steps" in stdout
    code, stdout, _ = run("--resume", "-o", "run", "--set", "schedule.steps=10")
    assert code == 0
    assert "Trained 10 steps" in stdout


def test_minutes_take_the_place_of_steps(place: Path) -> None:
    code, stdout, _ = run("tiny.toml", "-o", "run", "--minutes", "0.005", "--set", "schedule.steps=1000000")
    assert code == 0
    assert "Trained " in stdout
    assert json.loads((place / "run" / "log.jsonl").read_text().splitlines()[-1])["seconds"] >= 0.3


def test_steps_that_are_not_finite_are_told_with_their_cause(place: Path) -> None:
    code, stdout, stderr = run("tiny.toml", "-o", "run", "--set", "optimiser.lr=1e30", "--set", "run.nan_limit=2")
    assert code == 1
    assert stdout == ""
    assert "Stopped: The last 2 steps were not finite. Step " in stderr
    assert "The checkpoints before it are in run." in stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "CONFIG must be"),
        (["--resume"], "CONFIG must be"),
        (["--resume", "-o", "run"], "must be the folder of a run with a checkpoint to resume from, got run"),
        (["no.toml"], "no.toml: there is no such file"),
        (["tiny.toml", "--set", "optimiser.lrr=1"], "optimiser.lrr: there is no such key; did you mean optimiser.lr"),
        (["tiny.toml", "--set", "data.bank=no.safetensors"], "no.safetensors"),
        (["tiny.toml", "--set", "validation.root=no"], "but no does not exist"),
        (["tiny.toml", "--set", "data.source=sintel"], "data.root must be the folder"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_left(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    if "data.bank" in " ".join(arguments):
        monkeypatch.undo()
        monkeypatch.chdir(place)
    code, stdout, stderr = run(*arguments)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert sentence in stderr
    assert not (place / "runs" / "tiny").exists()
    assert not (place / "run").exists()


def test_the_display_tells_loss_speed_time_left_and_the_last_validation() -> None:
    at = Progress(10, 100.0, 0.5, pace=0.0302, loss=0.51, skipped=2, scores=Scores({}, {"5": 0.912}, {}))
    shown = command._state(at, ScheduleConfig(steps=130_010))
    assert shown == "loss 0.510  30.2 ms/step  1:05:26 left  2 skipped  R 0.912 at 5 %"
    assert "  0:03:20 left" in command._state(at, ScheduleConfig(minutes=5))
    assert command._state(Progress(0, 0.0, 0.0), ScheduleConfig()) == ""
