import json
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch
import typer
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.cli import speed as speed_command
from flowinpaint.cli.speed import parse_megapixels, parse_sizes
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import METHODS
from flowinpaint.networks.weights import save_model
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.result import Solution
from flowinpaint.speed import cases, measure, roofline

BASIC = ["--methods", "nearest", "--sizes", "16x24", "--devices", "cpu", "--repeats", "2", "--sides", "8,16"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, a small scene, and peak rates that take no time to measure."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(cases, "sample_scene", partial(sample_scene, 40, 60))
    monkeypatch.setitem(roofline.COPY_BYTES, "cpu", 2**20)
    monkeypatch.setitem(roofline.MATRIX_SIDE, "cpu", 64)
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["speed", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_tables_json_and_plot_of_methods_and_a_model_file(place: Path) -> None:
    save_model(Neuroexplicit(NeuroexplicitConfig(width=2, steps=(1, 1, 1, 1))), "tiny.safetensors")
    code, stdout, stderr = run(*BASIC, "--methods", "nearest,tiny.safetensors", "--sizes", "16x24,24x48", "-o", "a/b")
    assert code == 0
    assert sorted(p.name for p in (place / "a/b").iterdir()) == ["speed.json", "speed.md", "speed.png"]
    content = json.loads((place / "a/b/speed.json").read_text())
    assert len(content["cells"]) == 2 * 3
    assert all(len(cell["call"]["samples"]) == 2 for cell in content["cells"])
    assert [g["pixels"] for g in content["growth"]] == [[384, 1152]] * 3
    assert stdout.count("nearest") == 2 + 1  # a row at each size, and its growth
    assert "16×24" in stdout
    assert "cpu copies" in stdout
    assert "Wrote a/b/speed.json, a/b/speed.md, a/b/speed.png." in stdout
    assert stderr.count("Done: ") == 6
    picture = cv2.imread("a/b/speed.png")
    assert picture is not None
    assert min(picture.shape[:2]) > 400


def test_a_single_size_has_no_growth(place: Path) -> None:
    code, stdout, _ = run(*BASIC, "--methods", "neuroexplicit-paper", "--precision", "auto")
    assert code == 0
    assert "time grows" not in stdout
    assert sorted(p.name for p in (place / "speed").iterdir()) == ["speed.json", "speed.md"]


def test_many_sizes_in_a_row(place: Path) -> None:
    code, stdout, _ = run(*BASIC, "--many-sizes", 3)
    assert code == 0
    assert "nearest, cpu: 3 sizes in a row, with sides of " in stdout
    many = json.loads((place / "speed/speed.json").read_text())["many_sizes"]
    assert [len(m["sizes"]) for m in many] == [3]


def test_many_sizes_that_fail_are_told_and_the_rest_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "speed").mkdir()
    (place / "speed/speed.png").write_bytes(b"of another run")
    calls: list[None] = []

    def fragile(*_: Any, **__: Any) -> None:
        calls.append(None)
        if len(calls) > 25:  # five of the single case, and six for each of three sizes
            raise InputError("too small")

    monkeypatch.setattr(measure, "fill_function", lambda *_: fragile)
    code, stdout, stderr = run(*BASIC, "--many-sizes", 8)
    assert code == 1
    assert "nearest, cpu, many sizes: too small" in stderr
    assert "nearest, cpu: 3 sizes in a row" in stdout
    content = json.loads((place / "speed/speed.json").read_text())
    assert len(content["cells"]) == 1
    assert len(content["many_sizes"][0]["sizes"]) == 3
    assert content["many_sizes"][0]["error"] == "too small"
    assert content["settings"]["sides"] == [8, 16]
    assert not (place / "speed/speed.png").exists()


def test_a_cell_that_fails_is_told_and_the_exit_code_tells(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(*_: Any, **__: Any) -> Solution:
        raise RuntimeError("not today")

    monkeypatch.setitem(METHODS, "fragile", Method("fragile", "", fragile))
    code, stdout, stderr = run(*BASIC, "--methods", "fragile,nearest")
    assert code == 1
    assert "failed" in stdout
    assert "Failed: 1 of 2 timings.\n   fragile, 16×24, cpu, auto: RuntimeError: not today" in stderr
    assert (place / "speed/speed.json").exists()


def test_without_matplotlib_there_is_a_note(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_command, "can_plot", lambda: False)
    code, _, stderr = run(*BASIC, "--sizes", "16x24,24x32")
    assert code == 0
    assert "no plot was drawn" in stderr
    assert not (place / "speed/speed.png").exists()


def test_stopped_before_the_end_what_was_timed_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Solution:
        raise KeyboardInterrupt

    monkeypatch.setitem(METHODS, "stopped", Method("stopped", "", stopped))
    code, stdout, stderr = run(*BASIC, "--methods", "stopped", "--many-sizes", 2)
    assert code == 130
    assert "Stopped: nothing was timed or written." in stderr
    assert not stdout
    assert not list((place / "speed").iterdir())
    code, stdout, stderr = run(*BASIC, "--methods", "nearest,stopped", "--many-sizes", 2)
    assert code == 130
    assert "Stopped: 1 of 2 timings are finished and written." in stderr
    assert "sizes in a row" not in stdout
    content = json.loads((place / "speed/speed.json").read_text())
    assert [cell["method"] for cell in content["cells"]] == ["nearest"]
    assert content["cells"][0]["floor"] > 0


def test_stopped_among_many_sizes_the_single_ones_are_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(speed_command, "sweep_sizes", stopped)
    code, _, stderr = run(*BASIC, "--many-sizes", 2)
    assert code == 130
    assert "Stopped: 1 of 1 timings are finished and written." in stderr
    assert json.loads((place / "speed/speed.json").read_text())["many_sizes"] == []


def test_a_method_without_a_network_has_no_floor_in_the_table(place: Path) -> None:
    save_model(Neuroexplicit(NeuroexplicitConfig(width=2, steps=(1, 1, 1, 1))), "tiny.safetensors")
    run(*BASIC, "--methods", "nearest,tiny.safetensors", "--precision", "auto")
    rows = [line.split(" | ") for line in (place / "speed/speed.md").read_text().splitlines() if line.startswith("| ")]
    floors = {row[0].strip("| "): row[-2:] for row in rows}
    assert floors["nearest"] == ["–", "– |"]
    assert float(floors["tiny.safetensors"][0]) > 0


def test_sizes_are_height_by_width_and_megapixels_are_wide() -> None:
    assert parse_sizes("384x512,8X9") == [(384, 512), (8, 9)]
    (height, width), (_, broad) = parse_megapixels("8.2944,0.1")
    assert (height, width) == (2160, 3840)
    assert abs(broad - 422) <= 1


def test_the_page_lists_every_option_with_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/performance.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app).commands["speed"]  # type: ignore[attr-defined]
    for option in command.params:
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{option.opts[0]}`" in line)
        if option.default:
            assert str(option.default) in row


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--sizes", "0x5"],
            "--sizes must be HEIGHTxWIDTH,... up to 1000 megapixels, as in 384x384",
        ),
        (["--sizes", "64"], "got '64'"),
        (["--sizes", "6x4x2"], "got '6x4x2'"),
        (
            ["--megapixels", "0"],
            "--megapixels must be positive numbers up to 1000 megapixels",
        ),
        (["--megapixels", "nan"], "got 'nan'"),
        (["--methods", "magic"], "'magic'"),
        (["--methods", "none.safetensors"], "none.safetensors: there is no such file"),
        (["--methods", ""], "--methods"),
        (["--precision", "float64"], "--precision must be auto or float32, got 'float64'"),
        (["--devices", "tpu"], "'tpu'"),
        (["--density", "0"], "--density must be above 0 and at most 1, got 0"),
        (["--sides", "9"], "--sides must be LEAST,LARGEST from 1 up to 1000 megapixels, as in 160,640, got '9'"),
        (["--sides", "16,8"], "got '16,8'"),
        (["--sides", "8,90000"], "got '8,90000'"),
        (["--sides", "8,9", "--many-sizes", "5"], "--sides must allow the 5 sizes of --many-sizes, got '8,9'"),
        (["--many-sizes", "1"], "--many-sizes must be 0 or at least 2, because the first size does not count, got 1"),
        (["-o", "file"], "file: must be a folder, got a file"),
        (["-o", "file/in"], "file: must be a folder, got a file"),
        (["--sizes", "40000x30000"], "got '40000x30000'"),
        (["--megapixels", "1e9"], "got '1e9'"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    (place / "file").write_text("")
    code, stdout, stderr = run(*BASIC, *arguments)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert {p.name for p in place.iterdir()} == {"file"}


def test_without_a_gpu_cuda_is_refused(place: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    code, _, stderr = run(*BASIC, "--devices", "cpu,cuda")
    assert code == 1
    assert "one of PyTorch's 0 CUDA devices, got 'cuda'" in stderr
    assert not list(place.iterdir())
