import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from flowinpaint.api import inpaint
from flowinpaint.cli import app
from flowinpaint.cli import reproduce as command
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.evaluation import runner
from flowinpaint.reproduction import cost, curves, drawing, frames, networks, session, tables, timing
from flowinpaint.reproduction.experiment import NETWORKS, QUICK_SCALE, budget_of
from flowinpaint.result import Result
from flowinpaint.speed import measure
from flowinpaint.speed.cases import Inputs
from frame_folder import make_root
from scene_bank import tiny_bank

REPORTS = [
    "table1",
    "table2",
    "table3",
    "figure-data",
    "figure-density",
    "figure-cost",
    "figure-samples",
]
SMALLER = replace(
    QUICK_SCALE,
    crop=32,
    budget=budget_of(steps=1),
    scenes=1,
    wide_size=(24, 40),
    settings=(*QUICK_SCALE.settings, "data.size=[32, 32]", "optimiser.revive_every=0"),
    sampling={"sampling_steps": 2, "resampling_steps": 1},
    repeats=1,
)
"""`--quick` in a still smaller form."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simple_scenes: None) -> Iterator[Path]:
    """A folder to work in, with everything small."""

    def generator(size: tuple[int, int], layered: LayeredConfig, bank: str) -> LayeredFlow:
        return LayeredFlow(layered, size, tiny_bank())

    monkeypatch.setattr(command, "QUICK_SCALE", SMALLER)
    monkeypatch.setattr(frames, "_generator", generator)
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(timing, "inputs_at", grey_frame)
    monkeypatch.setattr(drawing, "_DOTS_PER_INCH", 20)
    monkeypatch.chdir(tmp_path)
    frames._scene.cache_clear()
    yield tmp_path
    frames._scene.cache_clear()


def grey_frame(height: int, width: int, density: float, seed: int) -> Inputs:
    """A frame to time methods on, without painting the sample scene."""
    mask = np.zeros((height, width), np.bool_)
    mask[::4, ::4] = True
    return Inputs(np.full((height, width, 3), 128, np.uint8), np.ones((height, width, 2), np.float32), mask)


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments), "--device", "cpu"])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever trains or fills fail."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("this was finished")

    monkeypatch.setattr(networks, "train", never)
    monkeypatch.setattr(runner, "inpaint", never)
    monkeypatch.setattr("flowinpaint.reproduction.cost.measure_time", never)


def test_everything_end_to_end_and_then_from_what_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of more samples differ from these by one setting, which tests/reproduction/test_experiment.py reads.
    names = {name: spec for name, spec in NETWORKS.items() if not name.endswith(("-n1964", "-n9820", "-n19640"))}
    monkeypatch.setattr(session, "NETWORKS", names)
    code, stdout, _ = run("all", "--quick")
    assert code == 0
    out = place / "reproduction-quick"
    assert f"{len(names)} networks are in reproduction-quick/networks." in stdout
    assert {path.name for path in (out / "networks").iterdir()} == names.keys()
    written = {path.name for path in out.iterdir()}
    assert {f"{name}{suffix}" for name in REPORTS for suffix in (".csv", ".md", ".png", ".svg")} <= written
    assert not [name for name in written if name.startswith(".flowinpaint-")]
    assert "would have been the same: ours-05-n196, " in " ".join((out / "figure-data.md").read_text().split())
    for name in REPORTS:
        assert "This is a rehearsal" in (out / f"{name}.md").read_text()
        with (out / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert all(row["rehearsal"] == "yes" for row in rows)
    with (out / "table1.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["density"] == "0.05"]
    methods = ["eed", "amle", "laplace-beltrami", "ours", "flownets", "wgain", "pd", "neuroexplicit"]
    assert [row["method"] for row in rows] == [*methods, "neuroexplicit-paper"]
    assert all(float(row["epe"]) > 0 for row in rows)
    texts = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".csv", ".md")}
    forbid(monkeypatch)
    for module in (cost, curves, tables):  # the same picture is the same file: tests/reproduction/test_page.py
        monkeypatch.setattr(module, "render", lambda *_, **__: {".png": b"", ".svg": b""})
    code, _, stderr = run("all", "--quick")
    assert code == 0
    assert "Training" not in stderr
    again = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".csv", ".md")}
    assert again == texts


def test_some_networks_and_then_a_table_of_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, stdout, stderr = run("networks", "--only", "ours-01,ours-05,ours-10", "--quick", "-o", "mine", "--steps", 2)
    assert code == 0
    assert "3 networks are in mine/networks." in stdout
    assert "Training ours-05: 2 steps." in stderr
    monkeypatch.setattr(networks, "train", None)  # nothing is left to train, though --steps is not said again
    arguments = ("table1", "--quick", "-o", "mine", "--methods", "ours,eed")
    code, stdout, _ = run(*arguments)
    assert code == 0
    assert "Wrote mine/table1.csv, mine/table1.md, mine/table1.png, mine/table1.svg." in stdout
    assert "| ours-10 | generated scenes, 32×32, 2 to a step | 10 % | 2 |" in (place / "mine" / "table1.md").read_text()
    about = json.loads((place / "mine" / "networks" / "ours-05" / "network.json").read_text())
    assert about["steps"] == 2


def test_tables_are_drawn_where_nothing_but_records_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "full,minus-mu"
    assert run("networks", "--only", names, "--quick", "-o", "there")[0] == 0
    assert run("table2", "--quick", "-o", "there", "--no-train")[0] == 0
    kept = place / "kept"
    kept.mkdir()
    for name in names.split(","):
        (place / "there" / "networks" / name / "network.json").rename(kept / f"{name}.json")
    (place / "there" / "records.jsonl").rename(kept / "records.jsonl")
    forbid(monkeypatch)
    known = ("--models", kept, "--records", kept / "records.jsonl", "--no-train")
    code, stdout, _ = run("networks", "table2", "--quick", "-o", "here", *known)
    assert code == 0
    assert "networks are in" not in stdout
    here, there = ((place / folder / "table2.csv").read_text() for folder in ("here", "there"))
    assert here == there
    page = (place / "here" / "table2.md").read_text()
    assert "- minus-v is left out: it is not trained." in page
    assert "minus-mu is left out" not in page
    assert "| minus-mu | generated scenes, 32×32" in page
    (kept / "records.jsonl").write_text("".join((kept / "records.jsonl").read_text().splitlines(True)[:3]))
    assert run("table2", "--quick", "-o", "fewer", *known)[0] == 0
    page = (place / "fewer" / "table2.md").read_text()
    assert "- minus-mu is left out: its weights are not here, and no run of it is known." in page


def test_folders_of_frames_have_their_places(place: Path) -> None:
    root = make_root(place / "frames")
    (root / "A").rename(root / "KITTI2015")
    code, _, stderr = run("table3", "--quick", "--root", root, "--methods", "laplace-beltrami", "-o", "out")
    assert code == 0
    assert "B holds no flow" in stderr
    with (place / "out" / "table3.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["dataset"], row["frames"]) for row in rows} == {("KITTI2015", "2")}
    assert [row["paper_epe"] for row in rows] == ["1.07", "0.46", "0.23"]
    assert [row["paper_fl"] for row in rows] == ["0.94", "0.26", "0.11"]


def test_without_matplotlib_text_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (command, drawing):
        monkeypatch.setattr(module, "can_plot", lambda: False)
    code, _, stderr = run("table3", "--quick", "--methods", "laplace-beltrami", "-o", "out")
    assert code == 0
    assert "no pictures will be drawn; drawing needs matplotlib (pip install matplotlib)" in stderr
    assert {path.name for path in (place / "out").iterdir()} == {"records.jsonl", "table3.csv", "table3.md"}


def test_an_interruption_is_a_sentence_and_130(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[str] = []
    stopped_after = 2

    def interrupted(image: Any, flow: Any, mask: Any, method: str, *others: Any, **parameters: Any) -> Result:
        if len(filled) == stopped_after:
            raise KeyboardInterrupt
        filled.append(method)
        return inpaint(image, flow, mask, method, *others, **parameters)

    monkeypatch.setattr(runner, "inpaint", interrupted)
    arguments = ("table3", "--quick", "--methods", "laplace-beltrami,eed", "-o", "out")
    code, _, stderr = run(*arguments)
    assert code == 130
    assert "Stopped: finished results are in out; the same command continues." in stderr
    assert len((place / "out" / "records.jsonl").read_text().splitlines()) == 2
    stopped_after = 99
    assert run(*arguments)[0] == 0
    assert len(filled) == 6


def test_a_picture_that_cannot_be_drawn_leaves_no_table(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no ink")

    monkeypatch.setattr(tables, "render", broken)
    code, _, stderr = run("table3", "--quick", "--methods", "laplace-beltrami", "-o", "out")
    assert code == 1
    assert "Error: no ink" in stderr
    assert {path.name for path in (place / "out").iterdir()} == {"records.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table4"], r"PART must be one of networks, table1, table2, table3, figure-data, .*, got 'table4'"),
        (["table1", "--methods", "eed,nearest"], r"--methods must be one of eed, amle, .*, got 'nearest'"),
        (["table1", "--methods", ","], r"--methods\b.*','"),
        (["networks", "--only", "ours-07"], r"--only must be one of ours-01, .*, got 'ours-07'"),
        (["table1", "--only", "ours-05"], r"--only needs the part 'networks'"),
        (["table1", "--minutes", "0"], r"--minutes must be a number above 0, got 0"),
        (["table1", "--steps", "0"], r"--steps must be at least 1, got 0"),
        (["table1", "--steps", "1", "--minutes", "1"], r"exactly one of --minutes and --steps must be above 0"),
        (["table1", "--models", "no"], r"--models must be a folder .*, got no, which is not a folder"),
        (["table1", "--bank", "no"], r"--bank must be a file, but no does not exist"),
        (["table1", "--sintel", "no"], r"--sintel must contain the folder no/training/final, but no does not exist"),
        (["table3", "--kitti", "no"], r"--kitti\b.*\bno\b"),
        (["table1", "--root", "no"], r"--root\b.*\bno\b"),
        (["table1", "--models", "."], r"--models must be a folder .*, got \., which has none of them"),
        (["table1", "--records", "no"], r"--records must be the records.jsonl .*, but no does not exist"),
        (["figure-cost", "--times", "no"], r"--times must be the times.json .*, but no does not exist"),
        (["table1", "--set", "model.widht=3"], r"model\.widht"),
        (["networks", "--no-train"], r"--no-train must not be combined with the part 'networks' alone"),
        (["table2", "--no-train"], r"PART cannot be measured here; full: it is not trained"),
    ],
)
def test_bad_arguments_are_sentences_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    code, stdout, stderr = run(*arguments, "--quick", "-o", "out")
    assert (code, stdout) == (1, "")
    assert stderr.startswith("Error: ")
    assert re.search(sentence, stderr)
    assert not list(place.glob("out/*.md"))
    assert not (place / "out" / "networks").exists()
