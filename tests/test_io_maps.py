"""Maps of one number per pixel, as files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.io import read_map, read_probability, write_flow, write_image

VALUES = np.random.default_rng(0).random((7, 9)).astype(np.float32)
HOLES = np.where(np.random.default_rng(1).random((7, 9)) < 0.2, np.nan, VALUES)
READERS = pytest.mark.parametrize("read", [read_map, read_probability])
Reader = Callable[[Path], npt.NDArray[Any]]


@READERS
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pfm"])
@pytest.mark.parametrize("values", [VALUES, HOLES])
def test_a_field_of_one_channel_is_a_map(tmp_path: Path, read: Reader, suffix: str, values: Any) -> None:
    """As `flowinpaint fill` writes expected errors and inliers."""
    path = tmp_path / f"map{suffix}"
    write_flow(path, values[..., None].astype(np.float32))
    found = read(path)
    assert found.shape == (7, 9)
    assert np.array_equal(found, values.astype(np.float32), equal_nan=True)


@READERS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
def test_a_matrix_of_any_type_of_number(tmp_path: Path, read: Reader, dtype: Any) -> None:
    path = tmp_path / "map.npy"
    values = (10 * VALUES).astype(dtype)
    np.save(path, values)
    assert np.array_equal(read(path), values)


def test_a_16_bit_png_holds_256_times_the_values_of_a_map(tmp_path: Path) -> None:
    raw = np.arange(63, dtype=np.uint16).reshape(7, 9) * 1000
    cv2.imwrite(str(tmp_path / "map.png"), raw)
    found = read_map(tmp_path / "map.png")
    assert np.array_equal(found, np.where(raw == 0, np.nan, raw / 256).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("dtype", "full"), [(np.uint8, 255), (np.uint16, 65535)])
@pytest.mark.parametrize("suffix", [".png", ".tif", ".PNG"])
def test_a_picture_holds_probabilities_from_black_to_white(tmp_path: Path, dtype: Any, full: int, suffix: str) -> None:
    raw = np.linspace(0, full, 63).astype(dtype).reshape(7, 9)
    path = tmp_path / f"p{suffix}"
    path.write_bytes(cv2.imencode(suffix.lower(), raw)[1].tobytes())
    found = read_probability(path)
    assert found.dtype == np.float32
    assert (found.min(), found.max()) == (0, 1)
    np.testing.assert_allclose(found, raw / full, atol=1e-6)


def test_a_grey_picture_may_have_three_equal_channels(tmp_path: Path) -> None:
    grey = (255 * VALUES).astype(np.uint8)
    write_image(tmp_path / "grey.png", grey)
    write_image(tmp_path / "rgb.png", np.repeat(grey[..., None], 3, 2))
    assert np.array_equal(read_probability(tmp_path / "rgb.png"), read_probability(tmp_path / "grey.png"))


def write_colour(path: Path) -> None:
    picture = np.zeros((7, 9, 3), np.uint8)
    picture[0, 0] = (1, 2, 3)
    write_image(path, picture)


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "two channels": ("m.flo", lambda p: write_flow(p, np.zeros((7, 9, 2), np.float32)), "a map must have one channel"),
    "two channels of an array": ("m.npy", lambda p: np.save(p, np.zeros((7, 9, 2))), "a map must have one channel"),
    "one dimension": ("m.npy", lambda p: np.save(p, np.zeros(7)), "must hold "),
    "bool": ("m.npy", lambda p: np.save(p, np.zeros((7, 9), np.bool_)), "must hold .*got bool"),
    "complex": ("m.npy", lambda p: np.save(p, np.zeros((7, 9), complex)), "must hold .*got complex"),
    "damaged": ("m.npy", lambda p: p.write_bytes(b"numpy"), "damaged"),
    "no such kind of file": ("m.txt", lambda p: p.write_text("0.5"), "must end in one of"),
}


@READERS
@pytest.mark.parametrize("case", BAD)
def test_what_is_no_map_is_named(tmp_path: Path, read: Reader, case: str) -> None:
    name, write, message = BAD[case]
    write(tmp_path / name)
    with pytest.raises(FileFormatError, match=f"{name}: {message}"):
        read(tmp_path / name)


def test_a_picture_in_colour_holds_no_probabilities(tmp_path: Path) -> None:
    write_colour(tmp_path / "p.png")
    with pytest.raises(FileFormatError, match=r"p\.png: probabilities must be a grey image, got one in colour"):
        read_probability(tmp_path / "p.png")


@READERS
@pytest.mark.parametrize("name", ["none.npy", "none.png", "none.pfm"])
def test_a_missing_file_is_named(tmp_path: Path, read: Reader, name: str) -> None:
    with pytest.raises(MissingFileError, match=f"{name}: there is no such file"):
        read(tmp_path / name)
