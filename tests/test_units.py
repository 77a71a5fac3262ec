"""Units of 16-bit PNGs of one channel, and fields in TIFF and EXR files."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.io import check_flow_writable, clip_to_format, parse_unit
from flowinpaint.io.exr import exr_fault
from flowinpaint.io.units import UNITS, levels_of, unit_value, values_of

LEVELS = np.array([[0, 1, 255], [256, 1000, 65535]], np.uint16)


@pytest.fixture
def depth(tmp_path: Path) -> Path:
    cv2.imwrite(str(tmp_path / "depth.png"), LEVELS)
    return tmp_path / "depth.png"


@pytest.mark.parametrize(
    ("unit", "value"), [("m/256", 1000 / 256), ("mm", 1), ("cm", 10), ("m", 1000), ("px/256", 1000 / 256), (1e-4, 0.1)]
)
def test_a_unit_says_what_a_level_is_worth(depth: Path, unit: str | float, value: float) -> None:
    field, valid = fi.read_flow(depth, unit)
    assert field.shape == (2, 3, 1)
    assert field.dtype == np.float32
    assert field[1, 1, 0] == pytest.approx(value)
    assert np.array_equal(valid, LEVELS > 0)
    assert np.isnan(field[0, 0, 0])
    fi.write_flow(depth.with_name("again.png"), field, unit=unit)
    assert np.array_equal(np.asarray(cv2.imread(str(depth.with_name("again.png")), -1)), LEVELS)


def test_a_unit_is_never_guessed(depth: Path) -> None:
    sentence = re.escape(
        "depth.png: a 16-bit PNG of one channel needs a unit; pass unit='m/256' (KITTI depth), 'mm' "
        "(RealSense, Kinect, NYU) or 'px/256' (KITTI disparity)"
    )
    field = np.ones((2, 3, 1), np.float32)
    for call in (
        lambda: fi.read_flow(depth),
        lambda: fi.write_flow(depth, field),
        lambda: check_flow_writable(depth, 1),
        lambda: clip_to_format(depth, field),
    ):
        with pytest.raises(fi.InputError, match=sentence):
            call()


@pytest.mark.parametrize("unit", ["inch", 0, -1.0, np.nan, np.inf, True, b"mm"])
def test_a_wrong_unit_is_named(depth: Path, unit: float) -> None:
    with pytest.raises(fi.InputError, match=r"unit must be m/256, mm, cm, m, px/256, px or a number above 0"):
        fi.read_flow(depth, unit)


def test_other_formats_hold_the_values_themselves(tmp_path: Path) -> None:
    field = np.full((2, 3, 1), 2.5, np.float32)
    fi.write_flow(tmp_path / "a.npy", field, unit="mm")
    assert np.array_equal(fi.read_flow(tmp_path / "a.npy")[0], field)
    with pytest.raises(fi.InputError, match=r"a\.npy: unit must be None for a \.npy, which holds the values"):
        fi.read_flow(tmp_path / "a.npy", "mm")


def test_a_flow_png_has_no_unit(tmp_path: Path) -> None:
    field = np.full((2, 3, 2), 2.5, np.float32)
    fi.write_flow(tmp_path / "flow.png", field)
    for unit in (None, "px/256"):
        assert np.array_equal(fi.read_flow(tmp_path / "flow.png", unit)[0], field)


@pytest.mark.parametrize(("value", "unit"), [(0.0004, "mm"), (65.536, "mm"), (256, "m/256"), (0.0, "m"), (-3, "m")])
def test_values_outside_the_range_are_refused(tmp_path: Path, value: float, unit: str) -> None:
    field = np.ones((2, 3, 1))
    field[1, 2] = value
    with pytest.raises(
        fi.InputError, match=rf"a\.png: a 16-bit PNG in {unit} must have values from .*, got {float(value)}"
    ):
        fi.write_flow(tmp_path / "a.png", field, unit=unit)
    assert list(tmp_path.iterdir()) == []


@given(st.sampled_from([*UNITS, 1e-4, 0.37]), st.integers(1, 65535))
def test_every_level_survives_float32(unit: str | float, level: int) -> None:
    step = unit_value(unit)
    values = values_of(np.array([[level, 0]], np.uint16), step)
    levels, bad = levels_of(values, np.array([[True, False]]), step)
    assert levels.tolist() == [[level, 0]]
    assert not bad.any()


def test_the_option_is_a_name_or_a_number() -> None:
    assert parse_unit(None) is None
    assert parse_unit("mm") == "mm"
    assert parse_unit("0.001") == 0.001
    with pytest.raises(fi.InputError, match=r"--unit must be m/256.*, got 'feet'"):
        parse_unit("feet")


@pytest.mark.parametrize("suffix", [".tif", ".TIFF"])
def test_float_tiffs_are_fields(tmp_path: Path, suffix: str) -> None:
    field = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(np.float32)
    field[2, 3] = np.nan
    for channels in (1, 3):
        path = tmp_path / f"a{channels}{suffix}"
        fi.write_flow(path, field[..., :channels])
        back, valid = fi.read_flow(path)
        assert np.array_equal(back, field[..., :channels], equal_nan=True)
        assert np.count_nonzero(~valid) == 1


def test_exr_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    field = np.ones((5, 7, 1), np.float32)
    (tmp_path / "b.exr").write_bytes(b"\x76\x2f\x31\x01")
    monkeypatch.setattr(cv2, "getBuildInformation", lambda: "    OpenEXR:                     NO\n")
    for call in (lambda: fi.write_flow(tmp_path / "a.exr", field), lambda: fi.read_flow(tmp_path / "b.exr")):
        with pytest.raises(
            fi.InputError, match=r"\.exr: this OpenCV cannot read or write EXR files; use a float \.tif"
        ):
            call()
    monkeypatch.setattr(cv2, "getBuildInformation", lambda: "    OpenEXR:                     build (ver 2.3.0)\n")
    monkeypatch.delenv("OPENCV_IO_ENABLE_OPENEXR", raising=False)
    assert "OPENCV_IO_ENABLE_OPENEXR=1" in str(exr_fault())
    monkeypatch.setenv("OPENCV_IO_ENABLE_OPENEXR", "1")
    assert exr_fault() is None
    with pytest.raises(fi.FileFormatError, match=r"b\.exr: truncated or damaged: its EXR header has no size"):
        fi.read_flow(tmp_path / "b.exr")
    window = b"dataWindow\0box2i\0" + (16).to_bytes(4, "little") + bytes(8) + (40000).to_bytes(4, "little") * 2
    (tmp_path / "b.exr").write_bytes(b"\x76\x2f\x31\x01" + bytes(4) + window + b"\0")
    with pytest.raises(fi.FileFormatError, match=r"b\.exr: must have at most .*, got 19200960012 bytes"):
        fi.read_flow(tmp_path / "b.exr")
