import warnings
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.evaluation import zoom_figure
from flowinpaint.methods.method import Method
from flowinpaint.methods.nearest import nearest
from flowinpaint.methods.registry import METHODS
from flowinpaint.result import Solution
from frame_folder import make_root
from scene_bank import tiny_bank


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with frames, and small scenes."""
    make_root(tmp_path / "frames")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoom_figure, "OWN_SIZE", (32, 48))
    monkeypatch.setattr(zoom_figure, "LayeredFlow", partial(LayeredFlow, bank=tiny_bank()))
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["zoom", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def size(name: str) -> tuple[int, int]:
    picture = cv2.imread(name)
    assert picture is not None
    return picture.shape[0], picture.shape[1]


def test_own_scenes_are_drawn_without_a_root(place: Path) -> None:
    code, stdout, _ = run("--methods", "nearest,harmonic", "--given", "lidar", "--device", "cpu")
    assert code == 0
    assert stdout == "Wrote zoom.jpg.\n"
    height, width = size("zoom.jpg")
    assert 5 * 240 < width < 6 * 340
    assert height > 4 * 160


def test_what_a_method_warns_of_is_said_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loud(image: torch.Tensor, f: torch.Tensor, c: torch.Tensor, **_: Any) -> Solution:
        warnings.warn("it is late", stacklevel=1)
        return nearest(image, f, c)

    monkeypatch.setitem(METHODS, "loud", Method("loud", "", loud))
    code, _, stderr = run("--root", "frames", "--methods", "loud", "--given", "10")
    assert code == 0
    assert stderr == "Warning: it is late\n"


def test_samples_of_a_root_are_named_or_the_first_of_each_data_set(place: Path) -> None:
    basic = ("--root", "frames", "--methods", "nearest", "--given", "10", "--device", "cpu")
    assert run(*basic, "-o", "all.png")[0] == 0
    assert run(*basic, "--samples", "B/three", "-o", "one.png")[0] == 0
    assert run(*basic, "--samples", "A/one,B/one", "-o", "two.png")[0] == 0
    assert size("all.png") == size("two.png")
    assert size("one.png")[0] < 0.6 * size("two.png")[0]
    assert Path("all.png").read_bytes() == Path("two.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--samples", "A/one"], "--samples needs --root, the folder of the frames, got 'A/one' alone"),
        (
            ["--root", "frames", "--samples", "A/two,A/three"],
            "A/two, B/one, B/three in frames, got 'A/three'",
        ),
        (["--root", "nowhere"], "but nowhere does not exist"),
        (["--methods", "magic"], "'magic'"),
        (["--given", "0"], "--given must be one percentage or one of lidar, holes, grid, single, got '0'"),
        (["--given", "1,5"], "got '1,5'"),
        (["--given", "rain"], "got 'rain'"),
        (["-o", "zoom.txt"], "zoom.txt: must end in"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    code, stdout, stderr = run(*arguments)
    assert (code, stdout) == (1, "")
    assert stderr.startswith("Error: ")
    assert sentence in stderr
    assert {p.name for p in place.iterdir()} == {"frames"}
