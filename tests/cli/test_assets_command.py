from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.data import procedural_pictures as procedural
from flowinpaint.data.bank import KINDS, read_bank


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with pictures in in/; few are drawn."""
    for kind in KINDS:
        monkeypatch.setitem(procedural.COUNTS, kind, 12)
        monkeypatch.setitem(procedural.SIDES, kind, 64)
    (tmp_path / "in").mkdir()
    picture = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    for name in ("a", "b"):
        assert cv2.imwrite(str(tmp_path / f"in/{name}.jpg"), picture)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["assets", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def picture(path: Path) -> Any:
    pixels = cv2.imread(str(path))
    assert pixels is not None
    return pixels


def test_build_counts_what_it_took_and_names_what_it_skipped(place: Path) -> None:
    (place / "in/bad.png").write_text("hello")
    code, stdout, stderr = run(
        "build", "--textures", "in", "--textures", "in", "--longest", "32", "-o", "b.safetensors"
    )
    assert code == 0
    assert stdout.startswith("Wrote b.safetensors: 12 photos (drawn), 4 textures, 12 cutouts (drawn), 0.")
    assert "; skipped: 2." in stdout
    assert stderr.count("Skipped: in/bad.png: ") == 2
    assert {path.name for path in place.iterdir()} == {"in", "b.safetensors"}
    bank = read_bank("b.safetensors")
    assert len(bank.materials) == 4
    assert bank.materials[0, 0].tolist()[1:] == [20, 32]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "one of --photos, --cutouts and --textures must be set"),
        (["--textures", "nowhere"], "textures must be a folder of pictures, got nowhere, which does not exist"),
        (["--textures", "in", "-o", "b.npz"], "--out must end in .safetensors, got b.npz"),
        (
            ["--textures", "nowhere", "-o", "no/deep/b.safetensors"],
            "textures must be a folder of pictures, got nowhere, which does not exist",
        ),
        (["--cutouts", "in"], "cutouts must contain a usable picture, got none in in"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    code, stdout, stderr = run("build", "-o", "b.safetensors", *arguments)
    assert code == 1
    assert stdout == ""
    assert "Error: " in stderr
    assert sentence in stderr
    assert [path.name for path in place.iterdir()] == ["in"]


def test_ctrl_c_leaves_nothing_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flowinpaint.data.bank.bank_bytes", stop)
    assert run("build", "--textures", "in", "-o", "b.safetensors")[0] == 130
    assert [path.name for path in place.iterdir()] == ["in"]


def test_preview_draws_scenes_that_the_seed_decides(place: Path) -> None:
    assert run("build", "--textures", "in", "-o", "b.safetensors")[0] == 0
    sheets = []
    for seed in (0, 0, 1):
        code, stdout, _ = run("preview", "b.safetensors", "--count", "3", "--size", "48", "--seed", seed, "-o", "s.png")
        assert (code, stdout) == (0, "Wrote s.png.\n")
        sheets.append(picture(place / "s.png"))
    assert (sheets[0] == sheets[1]).all()
    assert (sheets[0] != sheets[2]).any()
    # Three panels in a row, each at least as wide as its title needs, an image above a flow of 48 px each.
    assert sheets[0].shape[0] > 2 * 48
    assert sheets[0].shape[1] > 3 * 240


def test_preview_draws_the_pictures_of_a_bank_and_without_one_those_drawn(place: Path) -> None:
    assert run("preview", "--pictures", "--count", "7", "--size", "64", "-o", "s.png")[0] == 0
    sheet = picture(place / "s.png")
    assert sheet.shape[0] > 2 * 64
    assert (sheet == (0, 230, 255)).all(2).any()  # the borders of segments
    assert (sheet == 128).all(2).sum() > 64  # what is around cut-outs


def test_preview_says_what_is_wrong(place: Path) -> None:
    code, _, stderr = run("preview", "none.safetensors", "-o", "s.png")
    assert code == 1
    assert "Error: none.safetensors: there is no such file" in stderr
    code, _, stderr = run("preview", "-o", "s.txt")
    assert code == 1
    assert "must end in one of" in stderr
    (place / "b.safetensors").write_text("hello")
    code, _, stderr = run("preview", "b.safetensors", "-o", "s.png")
    assert code == 1
    assert "truncated: its header must have" in stderr
    assert not (place / "s.png").exists()
