from pathlib import Path

import cv2
import numpy as np
import pytest

import flowinpaint as fi
from helpers import run_cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fields with a hole in several formats, and an image."""
    monkeypatch.chdir(tmp_path)
    flow = np.random.default_rng(0).normal(0, 4, (30, 40, 2)).astype(np.float32)
    flow[:10, :12] = np.nan
    for name in ("flow.flo", "flow.png", "flow.npy", "flow.npz", "flow.pfm"):
        fi.write_flow(name, flow)
    fi.write_flow("depth.pfm", np.abs(flow[..., :1]) + 1)
    fi.write_flow("disparity.png", np.abs(flow[..., :1]) + 1, unit="m/256")
    fi.write_flow("depth.tif", np.abs(flow[..., :1]) + 1)
    fi.write_flow("many.npy", np.repeat(flow, 3, axis=2))
    fi.write_image("image.png", np.full((30, 40, 3), 128, np.uint8))
    fi.write_image("small.png", np.full((3, 4, 3), 128, np.uint8))
    return tmp_path


@pytest.mark.parametrize(
    "name", ["flow.flo", "flow.png", "flow.npy", "flow.npz", "flow.pfm", "depth.pfm", "depth.tif", "many.npy"]
)
def test_any_field_is_drawn_next_to_its_file(folder: Path, name: str) -> None:
    before = Path(name).read_bytes()
    code, stdout, stderr = run_cli("show", name)
    assert (code, stderr) == (0, "")
    assert f"Wrote {name}.show.png: " in stdout
    assert "10 % of the pixels are unknown" in stdout
    drawn = cv2.imread(f"{name}.show.png")
    assert drawn is not None
    assert min(drawn.shape[:2]) > 400
    assert Path(name).read_bytes() == before
    assert run_cli("show", name)[0] == 0  # an earlier picture may be replaced


def test_arrows_and_images_change_the_picture_whose_folder_is_made(folder: Path) -> None:
    ways = [[], ["--arrows"], ["--over", "image.png"], ["--arrows", "--over", "image.png"], ["--max", "20"]]
    pictures = set()
    for i, way in enumerate(ways):
        out = Path("new") / "deep" / f"{i}.png"
        assert run_cli("show", "flow.flo", "-o", out, *way)[0] == 0
        pictures.add(out.read_bytes())
    assert len(pictures) == len(ways)


def test_a_png_of_one_channel_needs_its_unit(folder: Path) -> None:
    code, stdout, _ = run_cli("show", "disparity.png", "--unit", "m/256")
    assert code == 0
    metres = stdout.partition("values")[2]
    assert metres == run_cli("show", "depth.pfm", "--unit", "m/256")[1].partition("values")[2]
    assert metres != run_cli("show", "disparity.png", "--unit", "mm")[1].partition("values")[2]


def test_the_range_of_values_is_said(folder: Path) -> None:
    fi.write_flow("ramp.npy", np.linspace(2, 8, 12, dtype=np.float32).reshape(3, 4, 1))
    assert "values 2 to 8, mean 5, no pixel is unknown" in run_cli("show", "ramp.npy")[1]
    fi.write_flow("none.npy", np.full((3, 4, 2), np.nan, np.float32))
    assert "no known pixel, 100 % of the pixels are unknown" in run_cli("show", "none.npy")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.flo"], "none.flo: there is no such file"),
        (["image.png"], "must have 16 bits"),
        (["flow.flo", "-o", "o.flo"], "must end in one of"),
        (["flow.png", "-o", "flow.png"], "must not be an input"),
        (["flow.flo", "--over", "image.png", "-o", "image.png"], "must not be an input"),
        (["flow.flo", "-o", "disparity.png"], "must not be a field, which the picture would replace"),
        (["flow.flo", "-o", "flow.png"], "must not be a field, which the picture would replace"),
        (["flow.flo", "-o", "depth.tif"], "must not be a field, which the picture would replace"),
        (["disparity.png"], "--unit"),
        (["disparity.png", "--unit", "yards"], "--unit must be"),
        (["depth.pfm", "--arrows"], "--arrows needs a field of 2 channels, got 1"),
        (["flow.flo", "--over", "small.png"], "small.png: must be 40x30 pixels"),
        (["flow.flo", "--over", "none.png", "-o", "new/o.png"], "none.png: there is no such file"),
        (["flow.flo", "--max", "0"], "--max must be a finite number above 0, got 0"),
        (["flow.flo", "--max", "nan"], "--max must be"),
        (["flow.flo", "-o", "flow.npy/o.png"], "must be a folder, got a file"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(folder: Path, arguments: list[str], sentence: str) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    code, stdout, stderr = run_cli("show", *arguments)
    assert (code, stdout) == (1, "")
    assert stderr.startswith("Error: ")
    assert sentence in stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_lengths_of_a_half_precision_field_do_not_overflow(folder: Path) -> None:
    np.save("half.npy", np.full((8, 9, 2), 300, np.float16))
    code, stdout, stderr = run_cli("show", "half.npy", "--arrows")
    assert (code, stderr) == (0, "")
    assert "lengths 424 to 424" in stdout
