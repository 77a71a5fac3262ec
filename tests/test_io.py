import io
import os
import pickle
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import (
    FLOW_SUFFIXES,
    IMAGE_SUFFIXES,
    atomic_path,
    check_flow_writable,
    check_folder_writable,
    check_image_writable,
    clip_to_format,
    make_folder,
    new_folder,
    read_flow,
    read_image,
    read_mask,
    write_flow,
    write_image,
    write_mask,
)
from helpers import reference

Array = npt.NDArray[Any]
READERS: list[Callable[[Path], object]] = [read_flow, read_mask, read_image]
FLOW = np.random.default_rng(0).normal(scale=30, size=(6, 5, 2)).astype(np.float32)
KNOWN = np.random.default_rng(1).random((6, 5)) < 0.7
TIFFS = (".tif", ".tiff")
HELD = [(".flo", 2), (".pfm", 1), (".pfm", 2), (".pfm", 3), (".tif", 1), (".tif", 3), (".tiff", 1)]
HELD += [(suffix, channels) for suffix in (".npy", ".npz") for channels in range(1, 6)]


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def file_bytes(suffix: str, flow: Array = FLOW) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_flow(Path(folder, "a" + suffix), flow[..., :1] if suffix in TIFFS else flow)
        return Path(folder, "a" + suffix).read_bytes()


def npy_bytes(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def npz_bytes(packing: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return stream.getvalue()


def png16(width: int, height: int, raster: bytes, colour: int = 2, depth: int = 16) -> bytes:
    data = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(raster)), (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return data


@st.composite
def fields(draw: st.DrawFn) -> tuple[str, Array, Array]:
    suffix, channels = draw(st.sampled_from(HELD))
    limit = float(np.float32(1e9)) if suffix == ".flo" else None
    values = st.floats(limit and -limit, limit, width=32, allow_nan=False, allow_infinity=False)
    height, width = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    flow = draw(hnp.arrays(np.float32, (height, width, channels), elements=values))
    if draw(st.booleans()):
        flow = np.asfortranarray(flow)[::-1]
    return suffix, flow, draw(hnp.arrays(np.bool_, (height, width)))


@given(fields())
@example((".flo", np.array([[[-0.0, 1e-45]]], np.float32), np.ones((1, 1), np.bool_)))
def test_round_trips_are_exact(field: tuple[str, Array, Array]) -> None:
    suffix, flow, valid = field
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "übung" + suffix)
        if suffix == ".pfm" and flow.shape[2] == 3 and not np.where(valid, flow[..., 2], 1).any():
            with pytest.raises(InputError, match=r"third channel of zeros"):
                write_flow(path, flow, valid)
            return
        write_flow(path, flow, valid)
        back, known = read_flow(path)
    assert back.dtype == np.float32
    assert back.shape == flow.shape
    np.testing.assert_array_equal(known, valid)
    np.testing.assert_array_equal(bits(back[valid]), bits(flow[valid]))
    assert np.isnan(back[~valid]).all()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_arrays_keep_their_floating_type(tmp_path: Path, suffix: str, dtype: Any) -> None:
    write_flow(tmp_path / f"a{suffix}", FLOW.astype(dtype), KNOWN)
    flow, valid = read_flow(tmp_path / f"a{suffix}")
    assert flow.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(valid, KNOWN)
    np.testing.assert_array_equal(flow[valid], FLOW.astype(dtype)[valid])


@pytest.mark.parametrize("channels", [1, 2])
def test_kitti_is_exact_on_its_grid(tmp_path: Path, channels: int) -> None:
    path, unit = tmp_path / "a.png", "px/256" if channels == 1 else None
    levels = np.arange(2**16, dtype=np.float32).reshape(256, 256)
    flow = np.dstack([levels, levels.T]) / 64 - 512 if channels == 2 else levels[..., None] / 256
    valid = (levels + levels.T) % 3 > 0
    write_flow(path, flow, valid, unit)
    back, known = read_flow(path, unit)
    np.testing.assert_array_equal(known, valid)
    np.testing.assert_array_equal(back[valid], flow[valid])
    raw = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    write_flow(path, back, known, unit)
    np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), raw)
    write_flow(path, back + np.float32(0.001), known, unit)
    np.testing.assert_array_equal(read_flow(path, unit)[0], back)


def test_kitti_channel_order(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png16(2, 1, b"\0" + struct.pack(">6H", 32768 + 64, 32768 - 32, 1, 9, 9, 0)))
    flow, valid = read_flow(tmp_path / "a.png")
    np.testing.assert_array_equal(flow[0], [[1, -0.5], [np.nan, np.nan]])
    np.testing.assert_array_equal(valid, [[True, False]])


def test_flo_is_what_opencv_writes(tmp_path: Path) -> None:
    cv2.writeOpticalFlow(str(tmp_path / "a.flo"), FLOW)
    assert (tmp_path / "a.flo").read_bytes() == file_bytes(".flo")
    special = FLOW.copy()
    special[0, :3, 0] = [np.nan, np.inf, 1.1e9]
    cv2.writeOpticalFlow(str(tmp_path / "a.flo"), special)
    flow, valid = read_flow(tmp_path / "a.flo")
    assert np.isnan(flow[0, :3]).all()
    assert valid.sum() == valid.size - 3


@pytest.mark.parametrize("scale", [b"-1", b"1.0", b"-0.003922", b"25", b"+2e-3"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pfm_values_are_taken_as_stored(tmp_path: Path, scale: bytes, channels: int) -> None:
    stored = np.arange(2 * 3 * channels, dtype=np.float32).reshape(2, 3, channels)
    raster = stored[::-1].astype("<f4" if scale[:1] == b"-" else ">f4").tobytes()
    kind = b"PF" if channels == 3 else b"Pf"
    (tmp_path / "a.pfm").write_bytes(kind + b" \n3 2 \n" + scale + b"\n" + raster)
    np.testing.assert_array_equal(read_flow(tmp_path / "a.pfm")[0], stored)


def test_npz_variants(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path.write_bytes(npz_bytes(packing, anything=npy_bytes(FLOW[..., 0].astype(np.float64))))
        flow, valid = read_flow(path)
        assert flow.shape == (6, 5, 1)
        assert valid.all()
    path.write_bytes(npz_bytes(flow=npy_bytes(FLOW), valid=npy_bytes(KNOWN.astype(int)), more=b""))
    np.testing.assert_array_equal(read_flow(path)[1], KNOWN)


NPZ = npz_bytes(zipfile.ZIP_DEFLATED, flow=npy_bytes(FLOW))
DIRECTORY = NPZ.index(b"PK\1\2")
BILLION = "{'descr': '<f4', 'fortran_order': False, 'shape': (25000, 40000, 2), }\n"
FAULTS: list[tuple[str, bytes, str]] = [
    ("a.flo", b"PIEH" + struct.pack("<ii", 40000, 25000) + bytes(99), "truncated: the header says 40000x25000"),
    ("a.flo", b"PIEH" + struct.pack("<ii", -4, 2) + bytes(99), "at least 1x1 pixels, got -4x2"),
    ("a.flo", b"PIEH" + struct.pack("<ii", 0, 0), "at least 1x1 pixels, got 0x0"),
    ("a.flo", b"PIEH" + struct.pack("<ii", 1024, 436) + bytes(1988), "1024x436 (3571724 bytes), the file has 2000"),
    ("a.flo", b"HEIP" + file_bytes(".flo")[4:], "must start with b'PIEH', got b'HEIP'"),
    ("a.pfm", b"PF\n40000 25000\n-1\n" + bytes(99), "truncated: the header says 40000x25000"),
    ("a.pfm", b"Pf\n-3 2\n-1\n", "at least 1x1 pixels, got -3x2"),
    ("a.pfm", b"Pf\n3 2\n0\n" + bytes(24), "a PFM must start with"),
    ("a.pfm", b"Pf\n3 2\nnan\n" + bytes(24), "a PFM must start with"),
    ("a.pfm", b"PF" + b"9" * 500, "a PFM must start with"),
    ("a.pfm", b"P6" + file_bytes(".pfm")[2:], "a PFM must start with"),
    ("a.npy", npy_header(BILLION), "must have at most 536870912 bytes"),
    ("a.npy", npy_header(BILLION.replace("25000, 40000", "436, 1024")) + bytes(99), "truncated"),
    ("a.npy", npy_header(BILLION.replace("25000", "-5")) + bytes(99), "at least 1x1 pixels, got 40000x-5"),
    ("a.npy", npy_header("-" * 9000 + "1\n"), "damaged"),
    ("a.npy", pickle.dumps([1, 2]), "damaged"),
    ("a.npy", npy_bytes(np.array([[{}]], object)), "got object"),
    ("a.npy", npy_bytes(np.zeros((3, 4), np.int32)), "got int32"),
    ("a.npy", npy_bytes(np.zeros((3, 0, 2))), "float64 (3, 0, 2)"),
    ("a.npy", npy_bytes(np.zeros(3)), "float64 (3,)"),
    ("a.npz", npz_bytes(flow=npy_header(BILLION)), "must have at most 536870912 bytes"),
    ("a.npz", npz_bytes(flow=npy_header(BILLION.replace("25000, 40000", "436, 1024"))), "truncated"),
    ("a.npz", npz_bytes(zipfile.ZIP_LZMA, flow=npy_bytes(FLOW)), "must be stored or deflated"),
    ("a.npz", NPZ + b"x", "too long"),
    ("a.npz", NPZ[: DIRECTORY + 24] + struct.pack("<I", 10**9) + NPZ[DIRECTORY + 28 :], "must expand to at most"),
    ("a.npz", npz_bytes(u=npy_bytes(FLOW), v=npy_bytes(FLOW)), "one of its 2 arrays must be named flow"),
    ("a.npz", npz_bytes(flow=npy_bytes(FLOW), valid=npy_bytes(KNOWN[1:])), "got (5, 5)"),
    ("a.npz", npz_bytes(flow=npy_bytes(np.array([{}], object))), "got object"),
    ("a.npz", b"this is not a zip file", "damaged"),
    ("a.png", png16(40000, 25000, b"x"), "must have at most 536870912 bytes"),
    ("a.png", png16(5000, 5000, bytes(99)), "cannot hold that"),
    ("a.png", png16(2, 1, bytes(7), depth=8), "a field PNG must have 16 bits, in RGB for flow"),
    ("a.png", png16(2, 1, bytes(17), colour=6), "a field PNG must have 16 bits"),
    ("a.png", b"\xff\xd8\xff", "not a PNG"),
    ("a.tif", cv2.imencode(".tif", KNOWN.astype(np.uint16))[1].tobytes(), "must have float32 values, got uint16"),
    ("a.tif", b"\x89PNG", "not a TIFF"),
    ("a.xyz", b"anything", "must end in one of .flo, .png, .pfm, .npy, .npz"),
]


@pytest.mark.parametrize(("name", "data", "fault"), FAULTS)
def test_faulty_flow_files(tmp_path: Path, name: str, data: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(data)
    start = time.perf_counter()
    with pytest.raises(FileFormatError) as caught:
        read_flow(tmp_path / name)
    assert time.perf_counter() - start < 1
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert fault in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_forged_sizes_take_no_memory(tmp_path: Path) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit needs Linux's /proc")
    forged = [
        fault
        for fault in FAULTS
        if fault[2].endswith(("40000x25000", "536870912 bytes", "truncated", "expand to at most", "hold that"))
    ]
    paths = [tmp_path / f"{number}{name}" for number, (name, _, _) in enumerate(forged)]
    for path, (_, data, _) in zip(paths, forged, strict=True):
        path.write_bytes(data)
    program = """if True:
        import resource, sys
        from flowinpaint.errors import FileFormatError
        from flowinpaint.io import read_flow, read_image, read_mask
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, [pages * resource.getpagesize() + 2**26] * 2)
        for path in sys.argv[1:]:
            for read in (read_flow, read_image, read_mask):
                try:
                    read(path)
                except FileFormatError as error:
                    assert "MemoryError" not in str(error), error
                else:
                    raise SystemExit(path)
    """
    assert len(paths) > 8
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, *map(str, paths)], check=True, timeout=60)


@pytest.mark.parametrize("suffix", FLOW_SUFFIXES)
def test_every_truncation_and_every_extension(tmp_path: Path, suffix: str) -> None:
    whole, path = file_bytes(suffix, FLOW[:2, :3]), tmp_path / f"a{suffix}"
    for data in [whole[:length] for length in range(len(whole))] + [whole + b"x", whole + bytes(64)]:
        path.write_bytes(data)
        try:
            flow, _ = read_flow(path)
        except FileFormatError as error:
            assert f"a{suffix}" in str(error)
            continue
        assert suffix in TIFFS  # which may end in data that no pixel needs
        np.testing.assert_array_equal(flow, FLOW[:2, :3, :1])


@given(st.sampled_from(FLOW_SUFFIXES), st.data())
def test_any_bytes_give_a_result_or_a_format_error(suffix: str, draw: st.DataObject) -> None:
    data = bytearray(draw.draw(st.one_of(st.binary(), st.just(file_bytes(suffix)))))
    for position in draw.draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=3)):
        data[position : position + 1] = draw.draw(st.binary(max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a" + suffix)
        path.write_bytes(data)
        for read in READERS:
            try:
                read(path)
            except FileFormatError as error:
                assert str(error).startswith(f"{path}: ")
                assert "\n" not in str(error)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("suffix", [*FLOW_SUFFIXES, ".jpg", ""])
def test_missing_folder_and_empty(tmp_path: Path, read: Callable[[Path], object], suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with pytest.raises(MissingFileError, match="there is no such file"):
        read(path)
    path.mkdir()
    with pytest.raises(FileFormatError, match="got a folder"):
        read(path)
    path.rmdir()
    path.touch()
    with pytest.raises(FileFormatError, match="must not be empty"):
        read(path)


@pytest.mark.parametrize(
    ("name", "value", "channels", "reason"),
    [
        ("a.flo", 1.1e9, 2, r"a \.flo must have values up to 1e9, got 1100000000\.0; use \.npy"),
        ("a.flo", 1e300, 2, r"values must fit into float32, got 1e\+300; use \.npy"),
        ("a.pfm", -1e300, 1, r"values must fit into float32, got -1e\+300; use \.npy"),
        ("a.png", 512, 2, r"a KITTI PNG must have values from -512 to 511\.984, got 512\.0; use \.flo"),
        ("a.png", -513, 2, r"a KITTI PNG must have values from .*, got -513\.0"),
        ("a.png", 1e308, 2, r"a KITTI PNG must have values from .*, got 1e\+308"),
        ("a.npy", np.nan, 2, "known values must be finite, got nan"),
        ("a.flo", 0, 1, r"\.flo must have 2 channels, got 1; use \.npy for others"),
        ("a.png", 0, 3, r"\.png must have 1 or 2 channels, got 3"),
        ("a.pfm", 0, 4, r"\.pfm must have 1 or 2 or 3 channels, got 4"),
        ("a.xyz", 0, 2, r"must end in one of \.flo"),
        ("no/a.npy", 0, 2, "the folder .*no does not exist"),
    ],
)
def test_what_a_format_cannot_hold(tmp_path: Path, name: str, value: float, channels: int, reason: str) -> None:
    flow = np.ones((2, 3, channels))
    flow[1, 2, 0] = value
    with pytest.raises(InputError, match=f"{name}: {reason}"):
        write_flow(tmp_path / name, flow, np.ones((2, 3), np.bool_))
    assert list(tmp_path.iterdir()) == []
    if "channels" not in reason and name not in ("a.xyz", "no/a.npy"):
        write_flow(tmp_path / name, flow, np.arange(6).reshape(2, 3) < 5)


def test_write_flow_checks_its_arguments(tmp_path: Path) -> None:
    bad: Any
    for bad in (FLOW[None], FLOW[:0], FLOW.astype(int), "flow"):
        with pytest.raises(InputError, match=r"flow must "):
            write_flow(tmp_path / "a.npy", bad)
    for bad in (KNOWN.astype(int), KNOWN[1:]):
        with pytest.raises(InputError, match=r"valid must be bool \(6, 5\), got "):
            write_flow(tmp_path / "a.npy", FLOW, bad)
    (tmp_path / "b.flo").mkdir()
    with pytest.raises(InputError, match="got a folder"):
        check_flow_writable(tmp_path / "b.flo", 2)
    for path, channels in ((tmp_path / "a.npz", 9), (tmp_path / "A.FLO", 2)):
        check_flow_writable(path, channels)
    with pytest.raises(InputError, match="got 0"):
        check_flow_writable(tmp_path / "a.npy", 0)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.flo")
    try:
        write_flow(path, FLOW)
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    np.testing.assert_array_equal(read_flow(path)[0], FLOW)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_images(tmp_path: Path, suffix: str) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
    exact = suffix not in (".jpg", ".jpeg")
    for image in [colour] * (suffix != ".pgm") + [colour[..., 0]] * (suffix not in (".ppm", ".webp")):
        write_image(tmp_path / f"a{suffix}", image[::-1])
        back = read_image(tmp_path / f"a{suffix}")
        assert back.dtype == np.uint8
        assert back.shape == image.shape
        assert np.array_equal(back, image[::-1]) == exact


def test_image_depths(tmp_path: Path) -> None:
    deep = np.array([[0, 1, 32768, 65535]], np.uint16)
    cv2.imwrite(str(tmp_path / "a.png"), deep)
    image = read_image(tmp_path / "a.png")
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, deep.astype(np.float32) / np.float32(65535))
    values: Array
    for values in (deep / 65535, deep.astype(np.float32) / 65535):
        cv2.imwrite(str(tmp_path / "a.tiff"), values)
        np.testing.assert_array_equal(read_image(tmp_path / "a.tiff"), values.astype(np.float32))
    for values in (np.array([[0, 1.5]]), np.array([[np.nan, 1]]), np.array([[-0.1]]), np.array([[1]], np.int16)):
        cv2.imwrite(str(tmp_path / "a.tiff"), values)
        with pytest.raises(FileFormatError, match=r"a\.tiff: pixels must be uint8.*, got "):
            read_image(tmp_path / "a.tiff")


def test_images_and_masks_that_cannot_be_written(tmp_path: Path) -> None:
    bad: Any
    for bad in (FLOW, np.zeros((2, 3, 4), np.uint8), np.zeros((0, 3), np.uint8), np.zeros(3, np.uint8)):
        with pytest.raises(InputError, match=r"a\.png: image must be "):
            write_image(tmp_path / "a.png", bad)
    with pytest.raises(InputError, match=r"a\.npy"):
        check_image_writable(tmp_path / "a.npy")
    check_image_writable(tmp_path / "no" / "a.png")  # a command may make the folder
    with pytest.raises(InputError, match=r"no/a\.png: the folder .* does not exist"):
        write_image(tmp_path / "no" / "a.png", np.zeros((2, 3), np.uint8))
    for bad, name in ((KNOWN.astype(int), "a.png"), (FLOW > 0, "a.png")):
        with pytest.raises(InputError, match="mask must be bool"):
            write_mask(tmp_path / name, bad)
    assert list(tmp_path.iterdir()) == []


def test_masks(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    write_mask(path, KNOWN.T)
    np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), KNOWN.T * np.uint8(255))
    np.testing.assert_array_equal(read_mask(path), KNOWN.T)
    cv2.imwrite(str(path), np.array([[[0, 0, 0, 255], [0, 1, 0, 0]]], np.uint8))
    np.testing.assert_array_equal(read_mask(path), [[False, True]])
    for dtype in (np.bool_, np.uint8, np.int64):
        np.save(tmp_path / "a.npy", KNOWN.astype(dtype))
        np.testing.assert_array_equal(read_mask(tmp_path / "a.npy"), KNOWN)
    np.save(tmp_path / "a.npy", FLOW)
    with pytest.raises(FileFormatError, match=r"must hold bool or integer \(H, W\), got float32"):
        read_mask(tmp_path / "a.npy")


def fail(*_: object, **__: object) -> None:
    raise PermissionError("no")


@pytest.mark.parametrize("suffix", FLOW_SUFFIXES)
@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failed_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, step: str
) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"before")
    monkeypatch.setattr(Path, step, fail)
    for write in (write_flow, lambda path, _: write_mask(path.with_suffix(".png"), KNOWN)):
        with pytest.raises(PermissionError):
            write(tmp_path / f"a{suffix}", FLOW[..., :1] if suffix in TIFFS else FLOW)
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]
    assert (tmp_path / f"a{suffix}").read_bytes() == b"before"


def test_atomic_path(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    with pytest.raises(KeyboardInterrupt), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    before = os.umask(0o027)
    try:
        with atomic_path(str(target)) as temporary:
            assert (temporary.parent, temporary.suffix) == (tmp_path, ".json")
            temporary.write_text("whole")
            assert not target.exists()
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (tmp_path / "link.txt").symlink_to(target)
    with atomic_path(tmp_path / "link.txt") as temporary:
        temporary.write_text("through the link")
    assert target.read_text() == "through the link"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "report.json"]
    with pytest.raises(InputError, match="a folder or a device"), atomic_path("/dev/null"):
        pass


def test_reference_data(tmp_path: Path) -> None:
    for path in sorted(reference("realflow").rglob("*.*")):
        if path.stem in ("flow", "disp"):
            flow, valid = read_flow(path)
            write_flow(tmp_path / path.name, flow, valid)
            again, known = read_flow(tmp_path / path.name)
            np.testing.assert_array_equal(known, valid)
            np.testing.assert_array_equal(again, flow)
            assert read_image(path.with_name("image.png")).shape[:2] == flow.shape[:2]
        elif path.stem.startswith("mask"):
            mask = read_mask(path)
            write_mask(tmp_path / path.name, mask)
            np.testing.assert_array_equal(read_mask(tmp_path / path.name), mask)
            assert 0 < mask.mean() < 0.11


def test_a_mask_of_many_shades_is_refused(tmp_path: Path) -> None:
    shaded = np.array([[0, 3, 255]], np.uint8)
    write_image(tmp_path / "shaded.png", shaded)
    with pytest.raises(FileFormatError, match=r"shaded\.png: a mask must have two values, got 1 pixels of others"):
        read_mask(tmp_path / "shaded.png")
    with pytest.raises(InputError, match=r"mask\.jpg: must end in \.png"):
        write_mask(tmp_path / "mask.jpg", KNOWN)


def test_a_folder_without_permission_is_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"a\.flo: cannot write to the folder"):
        check_flow_writable(tmp_path / "a.flo", 2)
    with pytest.raises(InputError, match=r"a\.png: cannot write to the folder"):
        check_image_writable(tmp_path / "a.png")
    with pytest.raises(InputError, match=rf"{tmp_path.name}: cannot write to this folder"):
        check_folder_writable(tmp_path / "a" / "b")


def test_a_folder_can_be_made_beneath_folders_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, tmp_path / "a" / "b", Path("a"), Path()):
        check_folder_writable(path)
    for path in (tmp_path / "file", Path("file") / "a"):
        with pytest.raises(InputError, match="file: must be a folder, got a file"):
            check_folder_writable(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert make_folder("a/b") == Path("a/b")
    assert make_folder("a/b").is_dir()


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"b: cannot make this folder \(No space left on device\)"):
        make_folder(tmp_path / "b")


def test_clipping_to_a_format_brings_values_into_its_range(tmp_path: Path) -> None:
    wild = np.array([[[-900.0, 3.0], [1e6, 0.25]]], np.float32)
    assert clip_to_format("a.flo", wild) is wild
    for flow, unit in ((wild, None), (wild[..., :1], "px/256"), (wild[..., :1], "mm"), (wild[..., :1], 0.3)):
        clipped = clip_to_format("a.png", flow, unit)
        write_flow(tmp_path / "a.png", clipped, unit=unit)
        np.testing.assert_array_equal(read_flow(tmp_path / "a.png", unit)[0], clipped)
        np.testing.assert_array_equal(clip_to_format("a.png", clipped, unit), clipped)


class TestNewFolder:
    def test_it_is_made_with_its_parents(self, tmp_path: Path) -> None:
        with new_folder(tmp_path / "a" / "b"):
            pass
        assert (tmp_path / "a" / "b").is_dir()

    def test_it_is_removed_after_an_error_if_it_is_new_and_empty(self, tmp_path: Path) -> None:
        (tmp_path / "old").mkdir()
        with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "old" / "a" / "b"):
            raise KeyboardInterrupt
        assert list((tmp_path / "old").iterdir()) == []
        with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "a" / "b"):
            (tmp_path / "a" / "file").touch()
            raise KeyboardInterrupt
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
