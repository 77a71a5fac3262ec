import resource
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.io.budget import reading
from flowinpaint.io.image_headers import check_image_file, image_kind, png_layout, size_fault
from flowinpaint.io.images import decode_image, decode_with_alpha, encode_image
from fuzz.encoders import png_chunk as chunk

PATH = Path("picture.any")
PIXELS = np.random.default_rng(0).integers(0, 256, (13, 18, 3), np.uint8)
SIGNATURES = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0+", b"P6\n", b"RIFF0000WEBP"]


def image_fault(data: bytes) -> str | None:
    """The fault that `check_image_file` finds."""
    try:
        check_image_file(PATH, data)
    except FileFormatError as error:
        return str(error).removeprefix("picture.any: ")
    return None


def png(width: int, height: int, depth: int, colour: int, idat: bytes, extra: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", idat) + chunk(b"IEND", b"")


def tiff(tags: dict[int, int], raster: bytes, order: str = "<") -> bytes:
    """One uncompressed strip of 8-bit grey unless `tags` says otherwise."""
    merged = {258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: tags[257], 279: len(raster)} | tags
    data = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8 + len(raster)) + raster
    entries = [struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in sorted(merged.items())]
    return data + struct.pack(order + "H", len(entries)) + b"".join(entries) + bytes(4)


def bigtiff(width: int, height: int, raster: bytes) -> bytes:
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 16, 277: 1, 278: height, 279: len(raster)}
    entries = [struct.pack("<HHQQ", tag, 16, 1, value) for tag, value in tags.items()]
    head = b"II" + struct.pack("<HHHQ", 43, 8, 0, 16 + len(raster)) + raster
    return head + struct.pack("<Q", len(entries)) + b"".join(entries) + bytes(8)


def bmp(width: int, height: int, raster: bytes, depth: int = 24, packing: int = 0) -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, depth, packing, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(raster), 0, 0, 54) + info + raster


def jpeg(width: int, height: int, rest: bytes) -> bytes:
    return b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes([1, 17, 0]) + rest


def webp(fourcc: bytes, payload: bytes) -> bytes:
    body = b"WEBP" + fourcc + struct.pack("<I", len(payload)) + payload
    return b"RIFF" + struct.pack("<I", len(body)) + body


def encoded(suffix: str, pixels: npt.NDArray[Any] = PIXELS, *options: int) -> bytes:
    return cv2.imencode(suffix, pixels, options)[1].tobytes()


WHOLE = {
    "png": encoded(".png"),
    "png16": encoded(".png", PIXELS.astype(np.uint16) * 257),
    "jpeg": encoded(".jpg"),
    "progressive jpeg": encoded(".jpg", PIXELS, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "bmp": encoded(".bmp"),
    "tiff": encoded(".tiff"),
    "raw tiff": encoded(".tiff", PIXELS, cv2.IMWRITE_TIFF_COMPRESSION, 1),
    "big-endian tiff": tiff({256: 18, 257: 13}, PIXELS[..., 0].tobytes(), ">"),
    "bigtiff": bigtiff(18, 13, PIXELS[..., 0].tobytes()),
    "ppm": encoded(".ppm"),
    "pgm": encoded(".pgm", PIXELS[..., 0]),
    "pgm16": b"P5 18 13 65535\n" + bytes(2 * 18 * 13),
    "ascii pbm": b"P1\n# by hand\n18 13\n" + b"10" * 9 * 13,
    "ascii pgm": b"P2 18 13 255\n" + b"7 " * 18 * 13,
    "pbm": b"P4\n18 # wide\n13\n" + bytes(3 * 13),
    "lossless webp": encoded(".webp"),
    "lossy webp": encoded(".webp", PIXELS, cv2.IMWRITE_WEBP_QUALITY, 50),
    "webp with alpha": encoded(".webp", np.dstack([PIXELS, PIXELS[..., 0]]), cv2.IMWRITE_WEBP_QUALITY, 50),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_pictures_pass_with_their_size(name: str) -> None:
    assert check_image_file(PATH, WHOLE[name])[:2] == (18, 13)
    assert decode_image(PATH, WHOLE[name]).shape[:2] == (13, 18)


@pytest.mark.parametrize("name", WHOLE)
def test_no_truncated_picture_is_decoded_to_other_pixels(name: str) -> None:
    whole = decode_image(PATH, WHOLE[name])
    for length in range(len(WHOLE[name])):
        try:
            pixels = decode_image(PATH, WHOLE[name][:length])
        except FileFormatError as error:
            assert str(error).startswith("picture.any: ")
        else:
            np.testing.assert_array_equal(pixels, whole)


FORGED = {
    "png": png(40000, 25000, 8, 2, b"x" * 99),
    "jpeg": jpeg(40000, 25000, b"\xff\xd9"),
    "bmp": bmp(40000, 25000, b"x" * 99),
    "tiff": tiff({256: 40000, 257: 25000}, b"x" * 99),
    "bigtiff": bigtiff(40000, 25000, b"x" * 99),
    "ppm": b"P6 40000 25000 255\n" + b"x" * 99,
    "ascii pgm": b"P2 40000 25000 255\n1 2 3",
    "webp": webp(b"VP8X", bytes(4) + struct.pack("<HBHB", 39999, 0, 24999, 0)),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_claim_of_a_billion_pixels_is_refused_at_once(name: str) -> None:
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(FileFormatError, match=r"picture\.any: must have at most"):
        decode_image(PATH, FORGED[name])
    assert time.perf_counter() - start < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 50_000  # in kB


@pytest.mark.parametrize(
    "data",
    [
        png(5000, 5000, 8, 2, zlib.compress(bytes(1000))),
        jpeg(5000, 5000, b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + b"x" * 99 + b"\xff\xd9"),
        bmp(5000, 5000, b"x" * 99),
        bmp(5000, 5000, b"x" * 99, 8, 1),
        tiff({256: 5000, 257: 5000}, b"x" * 99),
        b"P6 5000 5000 65535\n" + b"x" * 99,
        b"P2 5000 5000 255\n1 2 3",
    ],
)
def test_fewer_pixels_than_the_limit_must_still_fit_the_file(data: bytes) -> None:
    assert (image_fault(data) or "").startswith("truncated")


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png(0, 5, 8, 0, b""), "0x5"),
        (jpeg(7, 0, b"\xff\xd9"), "7x0"),
        (bmp(-3, 5, bytes(99)), "-3x5"),
        (tiff({256: 0, 257: 4}, b""), "0x4"),
        (b"P5 0 0 255\n", "0x0"),
        (webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + bytes(4)), "0x0"),
    ],
)
def test_zero_and_negative_sizes(data: bytes, size: str) -> None:
    assert image_fault(data) == f"must have at least 1x1 pixels, got {size}"


def test_size_fault() -> None:
    assert size_fault(2**14, 2**14) is None
    assert size_fault(2**14, 0) == "must have at least 1x1 pixels, got 16384x0"
    assert size_fault(3, 2, 18, 20) == "too long: the header says 3x2 (18 bytes), the file has 20"


@pytest.mark.parametrize("data", [b"", b"x", b"GIF89a", b"#?RADIANCE\n", b"Pf\n1 1\n-1\n", b"P8 1 1\n"])
def test_unknown_kinds(data: bytes) -> None:
    assert image_kind(data) is None
    assert "formats PNG, JPEG, BMP, TIFF, PNM, WebP" in (image_fault(data) or "")


def test_bmp_from_the_top_and_of_the_oldest_kind() -> None:
    raster = np.zeros((2, 4), np.uint8)
    raster[0] = [1, 2, 3, 0]
    np.testing.assert_array_equal(decode_image(PATH, bmp(1, -2, raster.tobytes()))[0, 0], [3, 2, 1])
    core = b"BM" + struct.pack("<IHHI", 34, 0, 0, 26) + struct.pack("<IHHHH", 12, 1, 2, 1, 24) + bytes(8)
    assert check_image_file(PATH, core)[:2] == (1, 2)
    assert (image_fault(core[:-1]) or "").startswith("truncated")


def test_png_faults() -> None:
    good = WHOLE["png"]
    middle = good.index(b"IDAT") + 40
    flipped = good[:middle] + bytes([good[middle] ^ 0xFF]) + good[middle + 1 :]
    assert "checksum" in (image_fault(flipped) or "")
    assert "too long" in (image_fault(good + b"x") or "")
    assert png_layout(WHOLE["png16"]) == (16, 2)
    for idat in (b"no deflate", zlib.compress(bytes(9)), zlib.compress(bytes(6 * 19))[:-1]):
        with pytest.raises(FileFormatError, match="OpenCV cannot decode this PNG"):
            decode_image(PATH, png(18, 6, 8, 0, idat))


def test_jpeg_thumbnail_is_not_taken_for_the_picture() -> None:
    thumbnail = encoded(".jpg", PIXELS[:2, :3])
    exif = b"\xff\xe1" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    data = WHOLE["jpeg"][:2] + exif + WHOLE["jpeg"][2:]
    assert check_image_file(PATH, data)[:2] == (18, 13)
    assert "no end-of-image marker" in (image_fault(data[:-2]) or "")
    assert image_fault(data + b"appended by a camera") is None


def test_alpha_is_decoded_once_the_file_is_checked() -> None:
    wide = np.dstack([PIXELS, PIXELS[..., 0]])
    grey = png(18, 6, 8, 0, zlib.compress(bytes(6 * 19)), chunk(b"tRNS", bytes(2)))
    assert (decode_with_alpha(PATH, WHOLE["webp with alpha"])[..., 3] == wide[..., 3]).all()
    assert (decode_with_alpha(PATH, grey)[..., 3] == 0).all()
    whole = encoded(".png", wide)
    for data in (whole[:-20], whole[:-1], WHOLE["webp with alpha"][:-40]):
        with pytest.raises(FileFormatError, match="truncated"):
            decode_with_alpha(PATH, data)
    with pytest.raises(FileFormatError, match="OpenCV cannot decode this PNG"):
        decode_with_alpha(PATH, png(18, 6, 8, 0, b"no deflate"))


def test_coded_data_of_a_jpeg_count_against_the_byte_budget() -> None:
    with reading(8 * 300):
        fault = image_fault(WHOLE["jpeg"]) or ""
    assert "must have at most 300 coded bytes, got" in fault
    assert "--max-bytes" in fault


def test_tiff_with_fax_rows_of_whole_words_is_refused() -> None:
    assert "got number 32771" in (image_fault(tiff({256: 16, 257: 1, 258: 1, 259: 32771}, bytes(2))) or "")


def test_tiff_that_opencv_would_alter_is_refused() -> None:
    for tags in ({274: 6}, {277: 4, 262: 2, 338: 2}, {277: 2, 258: 16, 338: 2}):
        fault = image_fault(tiff({256: 2, 257: 1} | tags, bytes(8)))
        assert "must be 1" in (fault or "") or "without alpha" in (fault or "")
    assert image_fault(tiff({256: 2, 257: 1, 277: 4, 262: 2, 338: 1}, bytes(8))) is None
    assert "must have at most" in (image_fault(tiff({256: 2, 257: 1, 322: 2**20, 323: 2**20}, bytes(2))) or "")


def test_pnm_of_another_range_is_refused() -> None:
    assert "got 1023" in (image_fault(b"P5 1 1 1023\n\3\0") or "")
    assert "too long" in (image_fault(WHOLE["ppm"] + b"x") or "")


@pytest.mark.parametrize(
    ("colour", "row", "expected"),
    [
        (4, [10, 0, 20, 128], [[10, 20]]),
        (2, [1, 2, 3, 4, 5, 6], [[[1, 2, 3], [4, 5, 6]]]),
        (6, [1, 2, 3, 0, 4, 5, 6, 9], [[[1, 2, 3], [4, 5, 6]]]),
    ],
)
@pytest.mark.parametrize("depth", [8, 16])
def test_alpha_is_dropped_and_colours_are_rgb(colour: int, row: list[int], expected: Any, depth: int) -> None:
    row_bytes = np.array(row, ">u2" if depth == 16 else np.uint8).tobytes()
    pixels = decode_image(PATH, png(2, 1, depth, colour, zlib.compress(b"\0" + row_bytes)))
    assert pixels.dtype == (np.uint16 if depth == 16 else np.uint8)
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_exif_orientation_is_not_applied(kind: str) -> None:
    exif = tiff({256: 18, 257: 13, 274: 6}, b"")
    app1 = b"\xff\xe1" + struct.pack(">H", 8 + len(exif)) + b"Exif\0\0" + exif
    turned = {
        "jpeg": WHOLE["jpeg"][:2] + app1 + WHOLE["jpeg"][2:],
        "png": WHOLE["png"][:33] + chunk(b"eXIf", exif) + WHOLE["png"][33:],
    }[kind]
    np.testing.assert_array_equal(decode_image(PATH, turned), decode_image(PATH, WHOLE[kind]))


@pytest.mark.parametrize(("suffix", "pixels"), [(".xyz", PIXELS), ("", PIXELS), (".pgm", PIXELS)])
def test_what_opencv_does_not_encode(suffix: str, pixels: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(InputError, match=r"^a.*: OpenCV cannot write uint8 of shape \(13, 18, 3\) as"):
        encode_image(Path("a" + suffix), pixels)


@given(st.sampled_from(SIGNATURES), st.binary(max_size=200))
@example(b"MM\0+", struct.pack(">HHQ", 8, 0, 2**64 - 1))
def test_any_bytes_are_a_picture_or_a_fault(signature: bytes, data: bytes) -> None:
    if image_fault(signature + data) is None:
        assert min(check_image_file(PATH, signature + data)[:2]) >= 1


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_damaged_pictures_decode_or_raise(name: str, draw: st.DataObject) -> None:
    damaged = bytearray(WHOLE[name])
    for position in draw.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[position] = draw.draw(st.integers(0, 255))
    try:
        assert decode_image(PATH, bytes(damaged)).ndim in (2, 3)
    except FileFormatError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("data", "pixels"),
    [(b"P1 2 1\n0 1", [[255, 0]]), (b"P2 2 1 255\n1 2", [[1, 2]]), (b"P3 1 1 255\n1 2 3", [[[1, 2, 3]]])],
)
def test_text_pixels_may_end_without_a_line_break(data: bytes, pixels: list[Any]) -> None:
    np.testing.assert_array_equal(decode_image(PATH, data), pixels)
