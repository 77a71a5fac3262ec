import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.depth.camera import projection_matrix

RNG = np.random.default_rng(0)
P = np.array([[700.0, 0, 320, 45], [0, 710, 240, -3], [0, 0, 1, 0.003]])
TURN = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])
"""From Velodyne (x forward, z up) to camera (z forward, y down)."""
RECTIFY = np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]])
SHIFT = np.array([0.1, -0.2, 0.3])


def text(**entries: Any) -> str:
    return "calib_time: 09-Jan-2012 13:57:47\n" + "".join(
        f"{name}: {' '.join(map(str, np.ravel(values)))}\n" for name, values in entries.items()
    )


def expected(rectify: Any) -> Any:
    to_camera = np.vstack([np.column_stack([TURN, SHIFT]), [0, 0, 0, 1]])
    rotation = np.eye(4)
    rotation[:3, :3] = rectify
    return P @ rotation @ to_camera


def test_the_three_layouts_of_kitti(tmp_path: Path) -> None:
    tr = np.column_stack([TURN, SHIFT])
    first, second, other, last = (tmp_path / name for name in ("cam.txt", "velo.txt", "object.txt", "odometry.txt"))
    first.write_text(text(R_rect_00=RECTIFY, P_rect_02=P, R_02=np.eye(3), T_02=np.zeros(3)))
    second.write_text(text(R=TURN, T=SHIFT))
    other.write_text(text(P2=P, R0_rect=RECTIFY, Tr_velo_to_cam=tr))
    last.write_text(text(P2=P, Tr=tr))
    np.testing.assert_allclose(fi.read_calibration([first, second]), expected(RECTIFY))
    np.testing.assert_allclose(fi.read_calibration(other, camera=2), expected(RECTIFY))
    np.testing.assert_allclose(fi.read_calibration(str(last)), expected(np.eye(3)))


def test_calibration_files_that_lack_something_are_named(tmp_path: Path) -> None:
    first = tmp_path / "cam.txt"
    first.write_text(text(R_rect_00=RECTIFY, P_rect_02=P))
    with pytest.raises(
        fi.FileFormatError, match=r"cam\.txt: must have a line R with numbers; calibration needs P_rect_02 with"
    ):
        fi.read_calibration(first)
    with pytest.raises(fi.FileFormatError, match=r"must have a line P_rect_03 or P3 with numbers"):
        fi.read_calibration(first, camera=3)
    first.write_text(text(P2=P[:2], Tr=np.eye(3)))
    with pytest.raises(fi.FileFormatError, match=r"P2 must have 12 numbers, got 8"):
        fi.read_calibration(first)
    first.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(fi.FileFormatError, match="not a text file"):
        fi.read_calibration(first)
    with pytest.raises(fi.InputError, match="camera must be 0, 1, 2 or 3, got 4"):
        fi.read_calibration(first, camera=4)
    with pytest.raises(fi.InputError, match="at least one calibration file"):
        fi.read_calibration([])


def test_projection_inverts_back_projection() -> None:
    """Points that are built from pixels and depths come back at those pixels, with those depths."""
    uv, depth = RNG.uniform((-0.5, -0.5), (639.49, 479.49), (50, 2)), RNG.uniform(0.5, 80, 50)
    homogeneous = np.column_stack([uv, np.ones(50)]) * depth[:, None]
    points = np.linalg.solve(P[:, :3], (homogeneous - P[:, 3]).T).T
    found, z, index = fi.project(np.column_stack([points, np.ones(50)]), P, (480, 640))
    np.testing.assert_allclose(found, uv, atol=1e-9)
    np.testing.assert_allclose(z, depth, rtol=1e-6)
    assert index.tolist() == list(range(50))
    for scale in (2.0, -3.0):
        again, z2, _ = fi.project(points, scale * P, (480, 640, 3))
        np.testing.assert_allclose(again, uv, atol=1e-9)
        np.testing.assert_allclose(z2, depth, rtol=1e-6)


def test_points_behind_outside_and_not_finite_are_left_out() -> None:
    K, points = P[:, :3], np.array([[0, 0, 5.0], [0, 0, -5], [9, 0, 5], [np.nan, 0, 5], [0, 0, 0], [0.5, 0.5, 5]])
    uv, depth, index = fi.project(points, (K, np.eye(3), [0, 0, 0]), (480, 640))
    assert index.tolist() == [0, 5]
    np.testing.assert_allclose(uv[0], (320, 240))
    assert depth.dtype == np.float32


@settings(max_examples=60)
@given(st.integers(0, 400), st.binary(max_size=12))
def test_damaged_calibration_gives_a_matrix_or_an_error(place: int, damage: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = text(P2=P, R0_rect=RECTIFY, Tr_velo_to_cam=np.column_stack([TURN, SHIFT])).encode()
        Path(folder, "calib.txt").write_bytes(data[:place] + damage + data[place + len(damage) :])
        try:
            matrix = fi.read_calibration(Path(folder, "calib.txt"))
        except fi.FileFormatError as error:
            assert "calib.txt: " in str(error)
            return
        try:
            uv, depth, _ = fi.project(1e38 * RNG.normal(size=(9, 3)), matrix, (480, 640))
        except fi.InputError as error:  # two equal rows, for example
            assert "calibration must" in str(error)
            return
        assert np.isfinite(uv).all()
        assert np.isfinite(depth).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(fi.InputError, match=r"points must be numbers of shape \(N, 3 or more\), got float64 \(4, 2\)"):
        fi.project(np.zeros((4, 2)), P, (9, 9))
    with pytest.raises(fi.InputError, match=r"size must be \(height, width\) of the image, got 9"):
        fi.project(np.zeros((4, 3)), P, 9)  # type: ignore[arg-type]
    for bad in (np.eye(3), "P2", P * np.nan):
        with pytest.raises(fi.InputError, match=r"calibration must be a finite \(3, 4\) matrix"):
            projection_matrix(bad)
    with pytest.raises(fi.InputError, match="rank 3"):
        projection_matrix(np.zeros((3, 4)))
