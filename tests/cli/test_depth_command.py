"""`flowinpaint depth` on a made-up scene."""

from pathlib import Path

import cv2
import numpy as np
import pytest

import flowinpaint as fi
from colmap_model import write_text
from flowinpaint.depth.complete import depth_image
from helpers import run_cli
from street_scene import P, street

SCENE = street()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image, a scan with its calibration, and a sparse depth image."""
    monkeypatch.chdir(tmp_path)
    fi.write_image("image.png", SCENE.image)
    SCENE.scan.tofile("scan.bin")
    tr = np.eye(3, 4)
    Path("calib.txt").write_text("\n".join(f"{k}: {' '.join(map(str, m.ravel()))}" for k, m in (("P2", P), ("Tr", tr))))
    uv, depth, _ = fi.project(SCENE.scan, P, SCENE.image.shape)
    fi.write_flow("sparse.png", depth_image(uv, depth, SCENE.image.shape), unit="mm")
    return tmp_path


def test_a_scan_becomes_a_depth_image_with_errors_and_a_picture(folder: Path) -> None:
    code, stdout, stderr = run_cli(
        *("depth", "image.png", "scan.bin", "--calibration", "calib.txt", "-o", "depth.png", "--unit", "m/256"),
        *("--errors", "errors.pfm", "--preview", "preview.png"),
    )
    assert (code, stderr) == (0, "")
    assert "Wrote depth.png: depths" in stdout
    dense, valid = fi.read_flow("depth.png", "m/256")
    assert valid.all()
    assert np.median(np.abs(dense[..., 0] - SCENE.depth) / SCENE.depth) < 0.02
    assert (fi.read_flow("errors.pfm")[0] >= 0).all()
    assert fi.read_image("preview.png").shape[0] > SCENE.image.shape[0]


def test_a_sparse_depth_image_is_read_and_written_in_its_unit(folder: Path) -> None:
    fill = ["depth", "image.png", "sparse.png", "-o", "depth.png", "--method", "harmonic"]
    code, _, stderr = run_cli(*fill)
    assert code == 1
    assert "depth.png: a 16-bit PNG of one channel needs a unit; pass --unit m/256" in stderr
    assert run_cli(*fill, "--unit", "mm", "--keep-hidden")[0] == 0
    sparse, dense = (np.asarray(cv2.imread(name, cv2.IMREAD_UNCHANGED)) for name in ("sparse.png", "depth.png"))
    assert np.array_equal(dense[sparse > 0], sparse[sparse > 0])
    assert run_cli(*fill, "--unit", "mm", "--bounds", 4, 9)[0] == 0
    bounded = np.asarray(cv2.imread("depth.png", cv2.IMREAD_UNCHANGED))
    assert bounded[sparse == 0].max() <= 9000


def test_the_points_of_a_colmap_model_are_filled(folder: Path) -> None:
    write_text(folder)
    fill = ["depth", "image.png", "--colmap", ".", "-o", "new/depth.npy", "--method", "nearest"]
    code, _, stderr = run_cli(*fill)
    assert code == 1
    assert "image_name must be one of the 3 images" in stderr
    assert not (folder / "new").exists()
    assert run_cli(*fill, "--name", "view.png")[0] == 0
    uv, depth = fi.read_colmap(folder, "view.png")
    dense = fi.read_flow("new/depth.npy")[0][..., 0]
    # 9.5 and 59.75 round to the pixels 10 and 60.
    assert dense[20, 10] == depth[0]
    assert dense[60, 50] == depth[1]
    assert len(uv) == 3


ERRORS = {
    "no scan": (["image.png"], "depth needs either SCAN or --colmap, got none"),
    "both": (["image.png", "scan.bin", "--colmap", "."], "got both"),
    "no calibration": (["image.png", "scan.bin"], "scan.bin: a Velodyne scan needs --calibration"),
    "calibration of an image": (
        ["image.png", "sparse.png", "--calibration", "calib.txt"],
        "--calibration needs a Velodyne scan (.bin), got",
    ),
    "another camera": (
        ["image.png", "scan.bin", "--calibration", "calib.txt", "--camera", "3"],
        "must have a line P_rect_03",
    ),
    "another size": (["image.png", "small.npy"], "small.npy: must be 160x96 pixels of one channel"),
    "nothing known": (["image.png", "none.npy"], "none.npy: at least one depth must be known, got none"),
    "behind": (
        ["image.png", "behind.bin", "--calibration", "calib.txt"],
        "at least one point must be inside image.png",
    ),
    "errors of nearest": (
        ["image.png", "sparse.png", "--errors", "e.pfm", "--method", "nearest"],
        "--errors needs --robust, or a method that predicts its errors",
    ),
    "errors as PNG": (["image.png", "sparse.png", "--errors", "e.png"], "--errors must be a file name ending in"),
    "overwriting": (["image.png", "sparse.png", "--preview", "image.png"], "image.png: must not be an input"),
    "unit": (["image.png", "sparse.png", "--unit", "inch"], "--unit must be m/256"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_a_sentence_and_nothing_is_written(folder: Path, case: str) -> None:
    fi.write_flow("small.npy", np.ones((4, 5, 1), np.float32))
    fi.write_flow("none.npy", np.full((96, 160, 1), np.nan, np.float32))
    (-SCENE.scan).tofile("behind.bin")
    before = sorted(path.name for path in folder.iterdir())
    arguments, sentence = ERRORS[case]
    unit = [] if "--unit" in arguments else ["--unit", "mm"]
    code, _, stderr = run_cli("depth", *arguments, "-o", "depth.png", *unit)
    assert code == 1
    assert stderr.startswith("Error: ")
    assert sentence in stderr.replace("\n", " ")
    assert sorted(path.name for path in folder.iterdir()) == before
