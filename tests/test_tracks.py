"""Tracks of CoTracker and TAPIR: layouts, visibility, and files that are something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import flowinpaint as fi
from flowinpaint.io.tracks import holds_tracks

Array = npt.NDArray[Any]
T, N = 6, 30
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save(**arrays: Array) -> Path:
        path = tmp_path / "tracks.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return path

    return save


def motion() -> tuple[Array, npt.NDArray[np.bool_]]:
    """Tracks (T, N, 2) and their visibility (T, N)."""
    rng = np.random.default_rng(0)
    tracks = rng.uniform(0, 200, (N, 2)) + np.cumsum(rng.normal(1, 1, (T, N, 2)), axis=0)
    return tracks.astype(np.float32), rng.random((T, N)) < 0.8


def forms() -> dict[str, dict[str, Array]]:
    tracks, seen = motion()
    by_point, hidden = tracks.swapaxes(0, 1), ~seen.T
    return {
        "CoTracker": {"pred_tracks": tracks[None], "pred_visibility": seen[None]},
        "CoTracker2": {"tracks": tracks[None], "visibility": seen[None, ..., None]},
        "probabilities": {"tracks": tracks, "visibility": np.where(seen, 0.9, 0.2)},
        "TAPIR": {"tracks": by_point, "visibles": seen.T},
        "TAPIR batch": {"tracks": by_point[None], "visibles": seen.T[None], "queries": np.zeros((N, 3))},
        "occluded": {"tracks": by_point, "occluded": hidden},
        "occlusions": {"tracks": by_point, "occlusions": hidden.astype(np.uint8)},
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_gives_the_points_visible_in_both_frames(save: Save, form: str) -> None:
    tracks, seen = motion()
    path = save(**forms()[form])
    found = fi.read_tracks(path, 1, 4)
    both = seen[1] & seen[4]
    corner = 0.0 if form in ("CoTracker", "CoTracker2", "probabilities") else 0.5  # TAPIR counts from the corner
    assert np.allclose(found.points, tracks[1][both] - corner)
    assert np.allclose(found.values, (tracks[4] - tracks[1])[both], atol=1e-4)
    assert found.noise is None
    assert np.allclose(fi.read_tracks(path, 4, 1, centre=0).points, tracks[4][both])
    assert holds_tracks(path)


def test_the_other_layout_is_noticed_and_can_be_named(save: Save) -> None:
    tracks, seen = motion()
    path = save(tracks=tracks.swapaxes(0, 1), visibility=seen.T)
    with pytest.raises(fi.FileFormatError, match='cannot be told apart; pass layout="TN"'):
        fi.read_tracks(path)
    both = seen[0] & seen[1]
    assert np.allclose(fi.read_tracks(path, layout="NT").points, tracks[0][both])


BAD: dict[str, tuple[dict[str, Array], str]] = {
    "no visibility": ({"tracks": np.ones((T, N, 2))}, "must hold the visibility"),
    "two visibilities": (
        {"tracks": np.ones((T, N, 2)), "visibles": np.ones((T, N)), "occluded": np.ones((T, N))},
        "must hold the visibility of the tracks as one of",
    ),
    "no tracks": ({"visibility": np.ones((T, N))}, "must hold one array of tracks"),
    "batch": ({"tracks": np.ones((2, T, N, 2)), "visibility": np.ones((2, T, N))}, "must hold one video, got a batch"),
    "three coordinates": ({"tracks": np.ones((T, N, 3)), "visibility": np.ones((T, N))}, "x and y as its last axis"),
    "transposed": ({"tracks": np.ones((T, N, 2)), "visibility": np.ones((N, T))}, "the axes of the other layout"),
    "logits": ({"tracks": 9 * np.ones((T, N, 2)), "visibility": np.full((T, N), -3.0)}, "apply a sigmoid to logits"),
    "normalised": ({"tracks": np.full((T, N, 2), 0.3), "visibility": np.ones((T, N))}, "must be in px"),
    "hidden": ({"tracks": 9 * np.ones((T, N, 2)), "visibility": np.zeros((T, N))}, "a point must be visible in both"),
    "objects": ({"tracks": np.array([[None]]), "visibility": np.ones((T, N))}, "must hold"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_an_error(save: Save, case: str) -> None:
    arrays, message = BAD[case]
    with pytest.raises(fi.FileFormatError, match=message):
        fi.read_tracks(save(**arrays))


def test_frames_and_layout_are_checked(save: Save) -> None:
    path = save(**forms()["CoTracker"])
    with pytest.raises(fi.InputError, match=f"end must be a frame from 0 to {T - 1}"):
        fi.read_tracks(path, 0, T)
    with pytest.raises(fi.InputError, match="start and end must be different frames"):
        fi.read_tracks(path, 2, 2)
    with pytest.raises(fi.InputError, match='layout must be "TN"'):
        fi.read_tracks(path, layout="BTN")


def test_fields_are_no_tracks(save: Save) -> None:
    assert not holds_tracks(save(flow=np.ones((4, 5, 2)), valid=np.ones((4, 5))))
    assert not holds_tracks(save(anything=np.ones((4, 5, 2))))
    assert holds_tracks(save(tracks=np.ones((4, 5, 2))))
    path = save(a=np.ones(3), b=np.ones(3))
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(fi.FileFormatError, match="damaged"):
        fi.read_tracks(path)


def test_a_small_file_of_many_tracks_is_judged_by_a_part(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def median(x: Array) -> float:
        sizes.append(x.size)
        return 1.0

    monkeypatch.setattr(np, "median", median)
    tracks = np.full((600, 2000, 2), 7, np.float16)
    assert len(fi.read_tracks(save(tracks=tracks, visibility=np.ones((600, 2000), np.bool_))).points) == 2000
    assert 0 < max(sizes) <= 512 * 512
