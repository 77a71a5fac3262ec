from pathlib import Path

import numpy as np
import pytest

import flowinpaint as fi


def test_a_scan_comes_back(tmp_path: Path) -> None:
    scan = np.random.default_rng(0).normal(size=(20, 4)).astype("<f4")
    scan.tofile(tmp_path / "scan.bin")
    assert np.array_equal(fi.read_velodyne(tmp_path / "scan.bin"), scan)


def test_points_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    scan = np.ones((6, 4), "<f4")
    scan[1, 0], scan[4, 3] = np.nan, np.inf
    scan.tofile(tmp_path / "scan.bin")
    with pytest.warns(UserWarning, match=r"scan\.bin: 2 of 6 points are not finite and were dropped\."):
        assert fi.read_velodyne(tmp_path / "scan.bin").shape == (4, 4)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(fi.MissingFileError, match=r"scan\.bin: there is no such file"):
        fi.read_velodyne(tmp_path / "scan.bin")
    (tmp_path / "scan.bin").write_bytes(bytes(33))
    with pytest.raises(fi.FileFormatError, match=r"scan\.bin: a scan must have 16 bytes per point, got 33 bytes"):
        fi.read_velodyne(tmp_path / "scan.bin")
    np.full((2, 4), np.nan, "<f4").tofile(tmp_path / "scan.bin")
    with pytest.raises(fi.FileFormatError, match="at least one finite point"):
        fi.read_velodyne(tmp_path / "scan.bin")
