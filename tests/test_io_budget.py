"""Small files that need much memory or time, and truncated JPEGs: what is refused, and what must still be readable."""

from __future__ import annotations

import io
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io import read_flow, read_image, read_map, read_mask, read_probability, write_flow
from flowinpaint.io.budget import DEFAULT, VARIABLE, check_expansion, parse_bytes
from flowinpaint.io.images import decode_image
from flowinpaint.io.matches import read_matches
from fuzz.encoders import png_chunk as chunk

PATH = Path("picture.any")
RNG = np.random.default_rng(0)
SCENE = np.clip(cv2.resize(RNG.normal(128, 60, (16, 20, 3)), (160, 128), interpolation=cv2.INTER_CUBIC), 0, 255).astype(
    np.uint8
)


@pytest.fixture(autouse=True)
def _default_budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, "")  # so that what --max-bytes sets is undone
    yield


def refused(path: Path, data: bytes, match: str) -> None:
    """Assert that reading the file fails at once, without memory for what it announces."""
    path.write_bytes(data)
    read = read_flow if path.suffix in (".npz", ".npy") else read_image
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(FileFormatError, match=match):
        read(path)
    assert time.process_time() - start < 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert 1024 * grown < 4 * len(data) + 2**25


def png(width: int, height: int, depth: int, colour: int, extra: bytes = b"") -> bytes:
    """A PNG of zeros."""
    row = bytes(1 + width * {0: 1, 2: 3}[colour] * depth // 8)
    packer = zlib.compressobj(1)
    raster = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", raster) + chunk(b"IEND", b"")


def tiff(entries: list[tuple[int, int, int, int]], content: bytes) -> bytes:
    """A TIFF of tags (number, type, count, value), and content from byte 8."""
    table = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return (
        b"II" + struct.pack("<HI", 42, 8 + len(content)) + content + struct.pack("<H", len(entries)) + table + bytes(4)
    )


def npz(shape: tuple[int, ...], claimed: int) -> bytes:
    """An archive whose array announces a shape; its deflated member has `claimed` zeros."""
    header, stream = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("flow.npy", header.getvalue() + bytes(claimed))
    return stream.getvalue()


def jpeg(pixels: npt.NDArray[Any] = SCENE, *options: int) -> bytes:
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def test_a_34_byte_webp_of_16383x16383_is_refused(tmp_path: Path) -> None:
    data = bytes.fromhex("524946461a000000574542505650384c0e0000002ffebfff0f071011fd0f4444ff03")
    refused(tmp_path / "a.webp", data, "must have at most 536870912 bytes, got 1073610756")


def test_a_small_webp_larger_than_an_8k_frame_is_refused(tmp_path: Path) -> None:
    bits = (8999) | (7999 << 14)
    body = b"WEBPVP8L" + struct.pack("<IBI", 14, 0x2F, bits) + bytes(9)
    refused(tmp_path / "a.webp", b"RIFF" + struct.pack("<I", len(body)) + body, "must expand to at most 64 times")


def test_a_run_length_coded_bmp_of_1_5_gb_is_refused(tmp_path: Path) -> None:
    info = struct.pack("<IiiHHIIiiII", 40, 16384, 16384, 1, 8, 1, 0, 0, 0, 0, 0)
    data = b"BM" + struct.pack("<IHHI", 300_000, 0, 0, 54) + info + b"\xff\1" * 150_000
    refused(tmp_path / "a.bmp", data, "must have at most")


def test_a_png_of_33_kb_and_516_mb_is_refused(tmp_path: Path) -> None:
    whole = png(8, 8, 8, 0)
    huge = chunk(b"IHDR", struct.pack(">IIBBBBB", 22000, 22000, 8, 0, 0, 0, 0))
    refused(tmp_path / "a.png", whole[:8] + huge + whole[33:], "must expand to at most 64 times")


def test_a_flow_png_of_1_5_gb_is_refused(tmp_path: Path) -> None:
    whole = png(8, 8, 16, 2)
    huge = chunk(b"IHDR", struct.pack(">IIBBBBB", 16000, 16000, 16, 2, 0, 0, 0))
    refused(tmp_path / "a.png", whole[:8] + huge + whole[33:], "must have at most")


def test_compressed_notes_in_a_png_are_not_expanded() -> None:
    note = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(8_000_000), 1))
    start = time.process_time()
    assert decode_image(PATH, png(8, 8, 8, 0, note * 100)).shape == (8, 8)
    assert time.process_time() - start < 0.5


def test_many_chunks_and_animations_in_a_png_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "a.png", png(8, 8, 8, 0, chunk(b"tEXt", b"") * 2**17), "must have at most 131072 chunks")
    refused(tmp_path / "a.png", png(8, 8, 8, 0, chunk(b"acTL", bytes(8))), "must be a still picture")


def test_an_npz_of_400_channels_and_1_6_gb_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "a.npz", npz((1000, 1000, 400), 0), "must have at most 536870912 bytes, got 1600000128")
    refused(tmp_path / "a.npz", npz((1, 1, 7 * 10**6), 0), "must have at most 1024 channels, got 7000000")


def test_an_npz_of_many_members_is_refused(tmp_path: Path) -> None:
    data = npz((2, 2), 16)
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    refused(tmp_path / "a.npz", data[:start] + data[start:end] * 2000 + data[end:], "must have at most 1000 arrays")


def test_an_npy_header_of_4_gb_is_refused(tmp_path: Path) -> None:
    data = b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + bytes(1000)
    refused(tmp_path / "a.npy", data, "damaged")


def test_a_jpeg_of_4000_scans_is_refused(tmp_path: Path) -> None:
    whole = jpeg(SCENE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    scan = whole[whole.rindex(b"\xff\xda") : -2]
    refused(tmp_path / "a.jpg", whole[:-2] + 4000 * scan + whole[-2:], "must have at most 1000 segments")
    refused(tmp_path / "a.jpg", whole[:-2] + 200 * scan + whole[-2:], "must have at most 100 scans")


@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_a_jpeg_whose_frame_header_is_too_short_is_refused(tmp_path: Path, length: int) -> None:
    whole = jpeg(SCENE)
    frame = whole.index(b"\xff\xc0")
    refused(tmp_path / "a.jpg", whole[: frame + 2] + struct.pack(">H", length) + whole[frame + 4 :], "no size")


def test_a_progressive_jpeg_of_empty_scans_is_refused(tmp_path: Path) -> None:
    whole = jpeg(SCENE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    scan = whole.index(b"\xff\xda")
    start, end = scan + 2 + whole[scan + 3], whole.index(b"\xff\xc4", scan)
    refused(tmp_path / "a.jpg", whole[:start] + whole[end:], "scan 1 of this JPEG has too few bytes")


def test_an_npz_with_a_forged_packed_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1M")
    data = bytearray(npz((500, 350), 4 * 500 * 350))
    entry = data.index(b"PK\1\2")
    data[entry + 20 : entry + 24] = struct.pack("<I", 2**31)
    refused(tmp_path / "a.npz", bytes(data), "must expand to at most 64 times")


def test_tiffs_that_opencv_reads_wrongly_are_refused(tmp_path: Path) -> None:
    size = [(256, 4, 1, 8), (257, 4, 1, 8), (259, 3, 1, 1), (277, 3, 1, 3)]
    refused(tmp_path / "a.tif", tiff([*size, (258, 8, 1, 64)], b""), "tag 258 of a TIFF must hold unsigned integers")
    refused(tmp_path / "a.tif", tiff([*size, (258, 3, 1, 16), (284, 3, 1, 2)], b""), "planes|truncated")


def test_an_animation_behind_many_chunks_is_refused(tmp_path: Path) -> None:
    chunks = b"VP8X" + struct.pack("<I", 10) + bytes(10) + (b"junk" + bytes(4)) * 140_000 + b"ANIM" + bytes(4)
    data = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks
    refused(tmp_path / "a.webp", data, "must have at most 131072 chunks")


def test_20_mb_of_blanks_after_p6_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "a.ppm", b"P6" + b" " * 20_000_000 + b"1 1 255\n123", "its PNM header has no size")


def test_20_mb_of_tiff_tags_are_refused(tmp_path: Path) -> None:
    tags = [(256, 4, 1, 8), (257, 4, 1, 8), (273, 4, 2_500_000, 8), (279, 4, 2_500_000, 8)]
    refused(tmp_path / "a.tif", tiff(tags, bytes(10_000_000)), "its tags need 20000008 bytes")
    refused(
        tmp_path / "a.tif",
        tiff([(256, 4, 1, 8), (257, 4, 1, 8), *[(40000, 1, 1, 0)] * 1500], b""),
        "must have at most 1000 tags",
    )


def test_tiff_strips_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    places = struct.pack("<64I", *([8 + 512] * 64)) + struct.pack("<64I", *([4000] * 64))
    tags = [(256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 1, 8), (259, 3, 1, 8), (277, 3, 1, 1), (278, 4, 1, 1)]
    tags += [(273, 4, 64, 8), (279, 4, 64, 8 + 256)]
    refused(tmp_path / "a.tif", tiff(tags, places + bytes(4000)), "its strips or tiles have 256000 bytes")


def test_tiff_tiles_count_with_their_margins(tmp_path: Path) -> None:
    tags = [(256, 4, 1, 16), (257, 4, 1, 1), (258, 3, 1, 8), (259, 3, 1, 8), (322, 4, 1, 32768), (323, 4, 1, 32768)]
    refused(tmp_path / "a.tif", tiff(tags, b""), "must have at most")


def test_nearly_empty_8k_frames_are_readable(tmp_path: Path) -> None:
    """The expansion of masks and sparse fields up to 8K; sizes without decoding, to save time."""
    pixels = 8192 * 4320
    for channels, size in ((1, 1), (3, 1), (3, 2), (4, 2)):
        check_expansion(PATH, pixels * channels * size, 30_000, pixels)
    check_expansion(PATH, pixels * 2 * 4, 300_000)  # a flow in an .npz
    with pytest.raises(FileFormatError, match="must expand to at most 64 times its size"):
        check_expansion(PATH, pixels * 2, 30_000, pixels * 2)
    (tmp_path / "mask.png").write_bytes(png(4096, 2160, 8, 0))
    assert not read_mask(tmp_path / "mask.png").any()


def test_the_budget_is_an_argument_of_the_readers(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), SCENE)
    write_flow(tmp_path / "f.pfm", np.ones((64, 64), np.float32))
    (tmp_path / "m.txt").write_text("1 2 3 4\n" * 10)
    cases: list[tuple[Any, str, int]] = [
        (read_image, "a.png", SCENE.nbytes),
        (read_mask, "a.png", SCENE.nbytes),
        (read_flow, "f.pfm", 64 * 64 * 4 + 20),
        (read_map, "f.pfm", 64 * 64 * 4 + 20),
        (read_probability, "f.pfm", 64 * 64 * 4 + 20),
        (read_matches, "m.txt", 80),
    ]
    for read, name, needed in cases:
        with pytest.raises(FileFormatError, match=f"must have at most {needed // 2} bytes"):
            read(tmp_path / name, max_bytes=needed // 2)
    assert len(read_flow(tmp_path / "f.pfm", max_bytes=2 * 64 * 64 * 4)[0]) == 64
    with pytest.raises(InputError, match="max_bytes must be an integer of at least 1"):
        read_image(tmp_path / "a.png", max_bytes=0)


def test_the_budget_is_a_variable_and_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_flow(tmp_path / "f.flo", np.ones((64, 64, 2), np.float32))
    monkeypatch.setenv(VARIABLE, "10K")
    with pytest.raises(FileFormatError, match="must have at most 10240 bytes, got 32780 bytes as a file"):
        read_flow(tmp_path / "f.flo")
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(InputError, match=f"{VARIABLE} must be a number of bytes"):
        read_flow(tmp_path / "f.flo")
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "f.flo"), "--max-bytes", "1K"], env={"COLUMNS": "400"})
    assert shown.exit_code == 1
    assert "must have at most 1024 bytes" in shown.output.replace("\n", "")
    assert parse_bytes("2GiB") == 4 * DEFAULT


PROGRESSIVE, RESTARTS = cv2.IMWRITE_JPEG_PROGRESSIVE, cv2.IMWRITE_JPEG_RST_INTERVAL
JPEGS = {
    "baseline": jpeg(),
    "grey": jpeg(SCENE[..., 0]),
    "4:4:4": jpeg(SCENE, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111),
    "best": jpeg(SCENE, cv2.IMWRITE_JPEG_QUALITY, 100),
    "worst": jpeg(SCENE, cv2.IMWRITE_JPEG_QUALITY, 1),
    "restarts": jpeg(SCENE, RESTARTS, 3),
    "progressive": jpeg(SCENE, PROGRESSIVE, 1),
    "progressive restarts": jpeg(SCENE, PROGRESSIVE, 1, RESTARTS, 2),
    "flat": jpeg(np.full((128, 160, 3), 128, np.uint8)),
}
JPEGS["thumbnail"] = JPEGS["grey"][:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(JPEGS["worst"])) + JPEGS["worst"]
JPEGS["thumbnail"] += JPEGS["baseline"][2:]
JPEGS["trailing"] = JPEGS["baseline"] + JPEGS["worst"]
JPEGS["fill bytes"] = JPEGS["baseline"][:-2] + b"\xff\xff\xff\xd9"


@pytest.mark.parametrize("name", JPEGS)
def test_complete_jpegs_are_read_without_a_word(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    expected: Any = cv2.imdecode(np.frombuffer(JPEGS[name], np.uint8), cv2.IMREAD_UNCHANGED)
    pixels = decode_image(PATH, JPEGS[name])
    np.testing.assert_array_equal(pixels, expected if expected.ndim == 2 else expected[..., ::-1])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["baseline", "grey", "4:4:4", "best", "restarts", "progressive", "flat", "thumbnail"])
def test_a_jpeg_cut_in_half_that_keeps_its_end_marker_is_refused(name: str) -> None:
    data = JPEGS[name]
    frame = max(data.rfind(b"\xff\xc0"), data.rfind(b"\xff\xc2"))
    start, end = data.index(b"\xff\xda", frame) + 20, len(data) - 40
    if name == "progressive":
        end = data.rindex(b"\xff\xda")  # the end of the last scan is not checked
    for place in np.linspace(start, end, 12).astype(int):
        cut = data[:place].rstrip(b"\xff") + b"\xff\xd9"
        with pytest.raises(FileFormatError, match="truncated"):
            decode_image(PATH, cut)


def test_unusual_jpegs_are_refused() -> None:
    data = JPEGS["baseline"]
    frame = data.index(b"\xff\xc0")
    for marker in (b"\xff\xc3", b"\xff\xc9"):  # lossless, arithmetic
        with pytest.raises(FileFormatError, match="must be baseline or progressive"):
            decode_image(PATH, data[:frame] + marker + data[frame + 2 :])
    with pytest.raises(FileFormatError, match="must be baseline or progressive with 8 bits"):
        decode_image(PATH, data[: frame + 4] + b"\x0c" + data[frame + 5 :])
    with pytest.raises(FileFormatError, match="DNL"):
        decode_image(PATH, data[:-2] + b"\xff\xdc\0\4\0\x80\xff\xd9")
    with pytest.raises(FileFormatError, match="must have 0 restart markers, got 1"):
        decode_image(PATH, data[:-200] + b"\xff\xd0" + data[-200:])
