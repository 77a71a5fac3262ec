"""COLMAP models that the tests write, in both forms."""

import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from colmap_model import depth_of, write_binary, write_text
from flowinpaint.depth.colmap import read_view


@pytest.mark.parametrize("write", [write_binary, write_text])
def test_the_points_of_a_view(tmp_path: Path, write: Any) -> None:
    view = read_view(write(tmp_path), "view.png")
    np.testing.assert_allclose(view.uv, [(9.5, 19.5), (50, 59.75), (4.5, 5.5)])
    np.testing.assert_allclose(view.depth, [depth_of(7), depth_of(900), depth_of(12)], rtol=1e-6)
    np.testing.assert_allclose(view.error, [0.5, 0.75, 1.25])
    uv, depth = fi.read_colmap(tmp_path, "a b.png")
    np.testing.assert_allclose(uv, [(1, 2)])
    np.testing.assert_allclose(depth, [depth_of(7)], rtol=1e-6)


@pytest.mark.parametrize("write", [write_binary, write_text])
def test_views_without_depth_are_named(tmp_path: Path, write: Any) -> None:
    write(tmp_path)
    with pytest.raises(fi.FileFormatError, match=r"dark\.png must observe at least one point"):
        fi.read_colmap(tmp_path, "dark.png")
    with pytest.raises(
        fi.InputError, match=r"must be one of the 3 images in .*, such as a b\.png, dark\.png, view\.png"
    ):
        fi.read_colmap(tmp_path, "view.jpg")
    with pytest.raises(fi.MissingFileError, match="there is no such folder"):
        fi.read_colmap(tmp_path / "no", "view.png")
    for file in tmp_path.glob("points3D.*"):
        file.unlink()
    with pytest.raises(fi.MissingFileError, match="must have images and points3D"):
        fi.read_colmap(tmp_path, "view.png")


@pytest.mark.parametrize("write", [write_binary, write_text])
def test_an_empty_model_is_an_error_of_its_file(tmp_path: Path, write: Any) -> None:
    for name, fault in (("points3D", "must have all points that view"), ("images", "must have at least one image")):
        for file in write(tmp_path).glob(f"{name}.*"):
            file.write_bytes(bytes(8) if file.suffix == ".bin" else b"# nothing\n")
        with pytest.raises(fi.FileFormatError, match=fault):
            fi.read_colmap(tmp_path, "view.png")


def test_a_text_model_may_be_larger_than_the_byte_budget(tmp_path: Path) -> None:
    write_text(tmp_path)
    with (tmp_path / "points3D.txt").open("a") as file:
        file.write("# long\n" * 1000)
    fi.read_colmap(tmp_path, "view.png", max_bytes=5000)


def test_every_truncation_of_a_binary_model_is_an_error(tmp_path: Path) -> None:
    write_binary(tmp_path)
    for file in (tmp_path / "images.bin", tmp_path / "points3D.bin"):
        whole = file.read_bytes()
        for length in range(1, len(whole)):
            file.write_bytes(whole[:length])
            with pytest.raises(fi.FileFormatError, match=f"{file.name}: "):
                fi.read_colmap(tmp_path, "view.png")
        file.write_bytes(whole)
    file.write_bytes(whole + b"x")
    with pytest.raises(fi.FileFormatError, match=r"points3D\.bin: too long"):
        fi.read_colmap(tmp_path, "view.png")


@pytest.mark.parametrize("name", ["images.bin", "points3D.bin"])
def test_forged_counts_are_refused_before_memory_is_allocated(tmp_path: Path, name: str) -> None:
    file = write_binary(tmp_path) / name
    file.write_bytes(struct.pack("<Q", 2**60) + file.read_bytes()[8:])
    with pytest.raises(fi.FileFormatError, match=rf"{name}: truncated or forged: it announces {2**60}"):
        fi.read_colmap(tmp_path, "view.png")


@settings(max_examples=60)
@given(st.sampled_from(["images", "points3D"]), st.booleans(), st.integers(0, 400), st.binary(max_size=9))
def test_damaged_models_give_a_result_or_an_error(name: str, binary: bool, place: int, damage: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = (write_binary if binary else write_text)(Path(folder)) / (name + (".bin" if binary else ".txt"))
        data = file.read_bytes()
        file.write_bytes(data[:place] + damage + data[place + len(damage) :])
        try:
            view = read_view(folder, "view.png")
        except (fi.FileFormatError, fi.InputError):
            return
        assert np.isfinite(view.uv).all()
        assert (view.depth > 0).all()
