import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import flowinpaint as fi
from flowinpaint.cli import app
from flowinpaint.methods.method import Method
from flowinpaint.methods.nearest import nearest
from flowinpaint.methods.registry import METHODS
from flowinpaint.result import Solution
from frame_folder import make_pair, make_root

BASIC = ["--methods", "nearest", "--reference", "harmonic", "--densities", "10"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the frames in frames/."""
    make_root(tmp_path / "frames")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["evaluate", "--root", "frames", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


def test_tables_and_files_and_the_reference_is_run_too(place: Path) -> None:
    code, stdout, stderr = run(*BASIC, "--densities", "10,30")
    assert code == 0
    folder = place / "evaluation"
    assert {p.name for p in folder.iterdir()} == {"records.jsonl", "results.json", "results.csv", "results.md"}
    content = json.loads((folder / "results.json").read_text())
    assert content["settings"]["methods"] == ["nearest", "harmonic"]
    for score in content["scores"]:
        if score["dataset"] is None:
            assert f"{score['ratio']:.3f}" in stdout
            assert f"{score['epe']:.3f}" in stdout
    assert "10 % given, 2 data sets" in stdout
    assert "30 % given, 2 data sets" in stdout
    assert stderr.count("\n") == 4  # a line per data set and method
    code, _, stderr = run(*BASIC)
    assert code == 0
    assert "Note: 8 of 8 runs were already finished." in stderr


def test_patterns_have_tables_of_their_own_and_densities_are_asked_for(place: Path) -> None:
    code, stdout, stderr = run(*BASIC[:4], "--patterns", "single,holes", "-o", "patterns")
    assert code == 0
    assert "holes, " in stdout
    assert "single, 0.17 % given, 2 data sets, masks drawn" in stdout
    assert "1 % given, 2" not in stdout
    assert {(row["mask"], row["density"]) for row in rows(place / "patterns")} == {("holes", ""), ("single", "")}
    settings = json.loads((place / "patterns/results.json").read_text())["settings"]
    assert (settings["densities"], settings["patterns"]) == ([], ["holes", "single"])
    code, stdout, stderr = run(*BASIC, "--patterns", "holes", "-o", "patterns")
    assert code == 0
    assert "Note: 8 of 16 runs were already finished." in stderr
    assert "10 % given, 2 data sets, masks from files" in stdout
    (place / "p.json").write_text('{"method": "harmonic", "by_density": {"0.1": {"tolerance": 1e-2}, "1e-6": {}}}')
    assert run(*BASIC[:4], "--patterns", "single,holes", "--params", "p.json", "-o", "tuned")[0] == 0
    used = {(row["method"], row["mask"]): row["parameters"] for row in rows(place / "tuned")}
    assert {case: text for case, text in used.items() if text} == {("harmonic", "holes"): "tolerance=0.01"}


def test_inputs_have_tables_of_their_own_and_densities_are_asked_for(place: Path) -> None:
    make_pair(place / "frames/P/one")
    code, stdout, stderr = run(*BASIC[:4], "--inputs", "given,noise,lk")
    assert code == 0
    assert "noise, 5 % given, 0 % of them wrong, 3 data sets; R is" in " ".join(stdout.split())
    assert " ".join(stdout.split()).count("of them wrong, P;") == 1
    assert "1 % given, 3" not in stdout
    assert "Note: lk: left out, because they lack image2.png or a truth of two channels: A/one, A/two, B" in stderr
    assert "Note: given: left out, because they lack given.flo, .png, .pfm or .npy: A/one, A/two, B/one, " in stderr
    assert "Done: P, nearest (11 of 12 runs)." in stderr
    settings = json.loads((place / "evaluation/results.json").read_text())["settings"]
    assert (settings["densities"], settings["patterns"], settings["inputs"]) == ([], [], ["lk", "noise", "given"])
    assert run(*BASIC, "--inputs", "noise", "-o", "both")[0] == 0
    assert {(row["mask"], row["density"]) for row in rows(place / "both")} >= {("noise", ""), ("fixed", "0.1")}


def test_parameters_are_of_a_method_or_of_its_variant(place: Path) -> None:
    make_pair(place / "frames/A/pair")
    names = ["--methods", "harmonic+second", "--reference", "harmonic", "--densities", "10", "--datasets", "A"]
    (place / "p.json").write_text('{"method": "harmonic", "max_iterations": 7}')
    common = ["--set", "harmonic.tolerance=1e-3", "--params", "p.json"]
    _, _, stderr = run(*names, *common, "--set", "harmonic+second.tolerance=1e-2")
    assert "Note: harmonic+second: left out, because they lack image2.png: A/one, A/two." in stderr
    used = {row["method"]: row["parameters"] for row in rows(place / "evaluation")}
    tolerances = {"harmonic": "0.001", "harmonic+second": "0.01"}
    assert used == {name: f"max_iterations=7 tolerance={value}" for name, value in tolerances.items()}


def test_samples_that_are_left_out_are_told(place: Path) -> None:
    code, stdout, stderr = run(*BASIC, "--densities", "10,90", "--datasets", "A")
    assert code == 0
    assert "90 % given" not in stdout
    fi.write_flow(place / "frames/A/one/flow.flo", np.ones((20, 30, 2), np.float32))
    code, stdout, stderr = run(*BASIC, "--densities", "10,90", "--datasets", "A")
    assert code == 0
    assert "90 % given, A, masks drawn" in stdout
    assert "Note: 90 %: left out, because fewer of their pixels are valid: A/two." in stderr


def test_pictures_data_sets_and_another_folder(place: Path) -> None:
    assert run(*BASIC, "--datasets", "B", "--preview", "-o", "deep/er")[0] == 0
    assert sorted(p.name for p in (place / "deep/er/previews/B").iterdir()) == ["one_10.png", "three_10.png"]
    assert not (place / "deep/er/previews/A").exists()


def test_parameters_come_from_the_file_and_from_set_which_wins(place: Path) -> None:
    (place / "p.json").write_text('{"method": "harmonic", "tolerance": 1e-2, "max_iterations": 7}')
    code, _, _ = run(*BASIC, "--datasets", "A", "--params", "p.json", "--set", "harmonic.tolerance=1e-3")
    assert code == 0
    used = {row["method"]: row["parameters"] for row in rows(place / "evaluation")}
    assert used == {"nearest": "", "harmonic": "tolerance=0.001 max_iterations=7"}


def test_failures_are_counted_and_shown_and_the_exit_code_tells(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(image: torch.Tensor, f: torch.Tensor, c: torch.Tensor, **_: Any) -> Solution:
        if f.shape[1] == 1:
            raise RuntimeError("no disparities today")
        return nearest(image, f, c)

    monkeypatch.setitem(METHODS, "fragile", Method("fragile", "", fragile))
    arguments = ["--methods", "fragile", "--reference", "nearest", "--densities", "10"]
    code, stdout, stderr = run(*arguments)
    assert code == 1
    assert "failed" in stdout
    assert "Failed: 2 of 8 runs" in stderr
    assert "B/one, 10 %, fragile: RuntimeError: no disparities today" in stderr
    assert len(rows(place / "evaluation")) == 8
    monkeypatch.setitem(METHODS, "fragile", Method("fragile", "", nearest))
    code, _, stderr = run(*arguments)
    assert code == 0
    assert "6 of 8 runs were already finished" in stderr


def test_notes_are_counted_and_one_of_each_kind_is_shown(place: Path) -> None:
    code, _, stderr = run(*BASIC, "--set", "harmonic.max_iterations=1")
    assert code == 0
    assert stderr.count("stopped") == 1
    assert "4 of 8 runs left notes" in stderr
    assert "   A/one, 10 %, harmonic: harmonic stopped after" in stderr
    assert "harmonic stopped after" in (place / "evaluation/results.md").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes_and_keeps_what_is_finished(place: Path, number: signal.Signals) -> None:
    if sys.platform == "win32":
        pytest.skip("Ctrl-C is sent otherwise there")
    # Long enough to be caught in the middle: many densities, and a residual that is never reached.
    slow = ["--set", "harmonic.tolerance=1e-300", "--densities", ",".join(map(str, range(1, 100)))]
    command = [sys.executable, "-m", "flowinpaint", "evaluate", "--root", "frames", *BASIC, *slow, "--jobs", "2"]
    # What a shell runs in the background ignores the signal, and what that starts would inherit it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    while process.poll() is None and not Path("evaluation/records.jsonl").exists():
        time.sleep(0.05)
    time.sleep(0.5)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.terminate()
    _, stderr = process.communicate(timeout=20)  # until no process of the group can write any more
    assert process.returncode == 128 + number
    assert "Stopped: finished runs are in evaluation" in stderr
    assert "Traceback" not in stderr
    assert not Path("evaluation/results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", "magic"], "'magic'"),
        (["--methods", "nearest,,eed"], "--methods must be names separated by commas, got 'nearest,,eed'"),
        (["--reference", "magic"], "--reference"),
        (["--densities", "0"], "--densities must be percentages above 0 and up to 100, such as 1,5,10, got '0'"),
        (["--densities", "1;5"], "such as 1,5,10, got '1;5'"),
        (["--densities", "120"], "such as 1,5,10, got '120'"),
        (["--patterns", "holes,rain"], "'rain'"),
        (
            ["--inputs", "sift,rain"],
            "among sift, orb, lk, dis, noise, outliers, gross, given, got 'rain'",
        ),
        (["--methods", "nearest+robust"], "methods must have +robust only after neuroexplicit, "),
        (["--reference", "nearest+robust"], "--reference must have +robust only after neuroexplicit, "),
        (["--set", "harmonic+robust.lam=3"], "one of the methods nearest, harmonic, got 'harmonic+robust.lam=3'"),
        (["--datasets", "C"], "'C'"),
        (["--root", "nowhere"], "but nowhere does not exist"),
        (["--set", "lam=3"], "--set must be METHOD.KEY=VALUE, such as eed.lam=1e-4, got 'lam=3'"),
        (["--set", "harmonic.tolerance=x"], "'x'"),
        (["--set", "eed.lam=3"], "--set must name one of the methods nearest, harmonic, got 'eed.lam=3'"),
        (["--set", "harmonic.lam=3"], "'harmonic'"),
        (["--set", "harmonic.a=3", "--set", "harmonic.a=4"], "must have each parameter once, got harmonic.a twice"),
        (["--params", "eed.json"], "eed.json: must hold parameters of one of --methods, got those of eed"),
        (["--params", "no.json"], "no.json: there is no such file"),
        (["-o", "eed.json"], "eed.json: must be a folder, got a file"),
        (["-o", "frames/out"], "frames/out: must lie outside of the root frames"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    (place / "eed.json").write_text('{"method": "eed", "lam": 1e-3}')
    code, stdout, stderr = run(*BASIC, *arguments)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert {p.name for p in place.iterdir()} == {"frames", "eed.json"}
