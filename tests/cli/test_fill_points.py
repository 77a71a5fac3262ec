"""`flowinpaint fill` from lists of matches and from tracks."""

from pathlib import Path

import numpy as np
import pytest

import flowinpaint as fi
from helpers import run_cli
from imperfect_fields import smooth_scene

H, W = 48, 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image, _ = smooth_scene(H, W)
    fi.write_image(tmp_path / "image.png", image)
    rng = np.random.default_rng(0)
    start = rng.uniform(0, (W - 1, H - 1), (80, 2))
    end = start + 0.02 * start + [2, -1] + rng.normal(0, 0.1, (80, 2))
    end[:8] += rng.choice([-25, 25], (8, 2))
    np.savetxt(tmp_path / "matches.txt", np.hstack([start, end, np.ones((80, 1))]))
    np.savetxt(tmp_path / "few.csv", np.hstack([start, end - start])[:30], delimiter=",", header="x,y,u,v")
    tracks = np.stack([start, start, end])[None].astype(np.float32)
    np.savez(tmp_path / "tracks.npz", pred_tracks=tracks, pred_visibility=np.ones((1, 3, 80), np.bool_))
    return tmp_path


def fill(folder: Path, given: str, *arguments: object) -> tuple[int, str, str]:
    return run_cli("fill", folder / "image.png", folder / given, "-o", folder / "o.flo", *arguments)


def test_matches_are_judged_by_default(folder: Path) -> None:
    code, stdout, stderr = fill(
        folder, "matches.txt", "--method", "harmonic", "--preview", folder / "p.png", "--inliers", folder / "i.npy"
    )
    assert (code, stderr) == (0, "")
    assert "80 of 80 points were used; harmonic on" in stdout
    assert "of 80 used points (" in stdout
    assert "probably wrong" in stdout
    start = np.loadtxt(folder / "matches.txt")[:, :2]
    found, _ = fi.read_flow(folder / "o.flo")
    x, y = np.floor(start + 0.5).astype(int).T
    assert np.abs(found[y, x] - (0.02 * np.stack([x, y], -1) + [2, -1]))[8:].max() < 0.5
    assert np.isfinite(np.load(folder / "i.npy")).sum() <= 80
    assert fi.read_image(folder / "p.png").ndim == 3


def test_exact_points_and_skipped_ones(folder: Path) -> None:
    with (folder / "few.csv").open("a") as file:
        file.write("-9,3,1,1\nnan,1,1,1\n")
    code, stdout, stderr = fill(folder, "few.csv", "--no-robust", "--method", "nearest")
    assert code == 0
    assert "30 of 32 points were used, 2 were skipped; nearest on" in stdout
    assert "probably wrong" not in stdout
    assert "skipped 2 points: 1 outside the image and 1 that is not finite" in stderr


def test_tracks_between_two_frames(folder: Path) -> None:
    code, stdout, _ = fill(folder, "tracks.npz", "--frames", "0,2", "--method", "harmonic")
    assert code == 0
    assert "80 of 80 points were used" in stdout
    assert np.median(fi.read_flow(folder / "o.flo")[0][..., 0]) > 2
    code, _, stderr = fill(folder, "tracks.npz", "--frames", "0,3", "--method", "harmonic")
    assert code == 1
    assert "end must be a frame from 0 to 2" in stderr


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        ("few.csv", ("--method", "nearest"), "add --no-robust"),
        ("few.csv", ("--mask", "image.png"), "--mask needs a field"),
        ("few.csv", ("--columns", "x,y"), "columns must have a value next to x and y"),
        ("few.csv", ("--frames", "0,1"), "--frames needs tracks"),
        ("tracks.npz", ("--columns", "x,y,u,v"), "--columns needs a list of matches"),
        ("tracks.npz", ("--frames", "0-1"), "two frame numbers such as 0,5"),
        ("few.csv", ("--noise", "image.npy"), "there is no such file"),
        ("image.jpeg", (), "there is no such file"),
        ("image.txt", (), "there is no such file"),
    ],
)
def test_errors_of_points_are_sentences(folder: Path, given: str, arguments: tuple[str, ...], message: str) -> None:
    code, stdout, stderr = fill(folder, given, *(folder / a if a.startswith("image") else a for a in arguments))
    assert code == 1
    assert stdout == ""
    assert message in stderr
    assert not (folder / "o.flo").exists()


def test_a_column_and_an_option_for_the_same_are_refused(folder: Path) -> None:
    (folder / "n.csv").write_text("x,y,u,v,noise\n3,4,1,1,0.1\n9,9,1,2,0.1\n")
    code, _, stderr = fill(folder, "n.csv", "--noise", "0.2")
    assert code == 1
    assert "--noise must be left out" in stderr
    assert fill(folder, "n.csv", "--method", "harmonic")[0] == 0


def test_inliers_of_points_may_be_a_list(folder: Path) -> None:
    code, *_ = fill(folder, "matches.txt", "--method", "harmonic", "--inliers", folder / "i.txt")
    assert code == 0
    given = fi.read_matches(folder / "matches.txt")
    judged = fi.inpaint_points(fi.read_image(folder / "image.png"), given.points, given.values, "harmonic").points
    assert judged is not None
    np.testing.assert_allclose(np.loadtxt(folder / "i.txt"), judged.inliers, atol=1e-5)
    fi.write_flow(folder / "flow.flo", np.zeros((H, W, 2), np.float32))
    code, _, stderr = fill(folder, "flow.flo", "--robust", "--inliers", folder / "i.txt")
    assert (code, stderr.startswith("Error: --inliers must be a file name ending in .pfm")) == (1, True)
