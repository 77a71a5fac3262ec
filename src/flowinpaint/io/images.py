"""Images and masks in PNG, JPEG, BMP, TIFF, PNM and WebP files."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io.arrays import Mask, open_npy
from flowinpaint.io.budget import check_budget, with_max_bytes
from flowinpaint.io.files import StrPath, check_output, existing_file, write_bytes
from flowinpaint.io.image_headers import check_image_file, image_kind, png_layout
from flowinpaint.io.jpeg import AHEAD, with_junk
from flowinpaint.opencv import cv2, load_opencv, silenced

_LZW = 5
_TYPES = (np.uint8, np.uint16, np.float32, np.float64)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm")


@with_max_bytes
def read_image(path: StrPath, *, max_bytes: int | None = None) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32]:
    """Read an image (H, W) grey or (H, W, 3) RGB without alpha: uint8 in 0..255, other depths as float32 in [0, 1].

    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    pixels = decode_image(path, path.read_bytes())
    if pixels.dtype == np.uint8:
        return pixels
    check_budget(path, 4 * pixels.size)
    if pixels.dtype == np.uint16:
        image = pixels.astype(np.float32)
        image /= np.float32(65535)
        return image
    if pixels.dtype.kind != "f" or not ((pixels >= 0) & (pixels <= 1)).all():
        found = f"{pixels.dtype} from {pixels.min()} to {pixels.max()}"
        raise FileFormatError(f"{path}: pixels must be uint8, uint16 or float in [0, 1], got {found}")
    return pixels.astype(np.float32, copy=False)


def write_image(path: StrPath, image: npt.NDArray[np.uint8]) -> None:
    """Write a uint8 image (H, W) or (H, W, 3) RGB in the format of the suffix."""
    check_image_writable(path)
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.size == 0 or (image.ndim != 2 and image.shape[2:] != (3,)):
        raise InputError(f"{path}: image must be uint8 (H, W) or (H, W, 3), got {image.dtype} {image.shape}")
    write_bytes(Path(path), encode_image(Path(path), image))


def check_image_writable(path: StrPath) -> None:
    """Raise InputError if no image can be written to `path`, whose folder may be new."""
    if Path(path).suffix.lower() not in IMAGE_SUFFIXES:
        raise InputError(f"{path}: must end in one of {', '.join(IMAGE_SUFFIXES)}")
    check_output(Path(path))
    load_opencv()


@with_max_bytes
def read_mask(path: StrPath, *, max_bytes: int | None = None) -> Mask:
    """Read a mask (H, W), True = known: where an image, or a .npy of bool or integers, is not zero.

    max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    path = existing_file(path)
    if path.suffix.lower() == ".npy":
        return np.asarray(open_npy(path, "biu") != 0)
    pixels = decode_image(path, path.read_bytes())
    shades = pixels[(pixels != 0) & (pixels != pixels.max())].size
    fault = f"a mask must have two values, got {shades} pixels of others; threshold the image"
    check_file(path, shades > 0 and fault)
    return np.asarray((pixels.reshape(*pixels.shape[:2], -1) != 0).any(axis=2))


def write_mask(path: StrPath, mask: Mask) -> None:
    """Write a mask (H, W) bool as an 8-bit PNG, 255 = True."""
    mask = np.asarray(mask)
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{path}: must end in .png")
    if mask.ndim != 2 or mask.dtype != np.bool_:
        raise InputError(f"{path}: mask must be bool (H, W), got {mask.dtype} {mask.shape}")
    write_image(path, mask.astype(np.uint8) * np.uint8(255))


def decode_image(path: Path, data: bytes) -> npt.NDArray[Any]:
    """Decode the bytes of `path` to pixels (H, W) or (H, W, 3) RGB of the stored type, without alpha."""
    kind, picture = image_kind(data), check_image_file(path, data)
    pixels = _decoded(picture.data)
    if pixels is not None and kind == "JPEG" and picture.data.endswith(AHEAD) and cv2.__version__.startswith("4."):
        again = _decoded(with_junk(picture.data, picture.width))
        pixels = pixels if np.array_equal(pixels, again) else None  # type: ignore[arg-type]
    if pixels is None or pixels.shape[:2] != (picture.height, picture.width):
        raise FileFormatError(f"{path}: truncated or damaged: OpenCV cannot decode this {kind}")
    if pixels.dtype not in _TYPES:
        raise FileFormatError(f"{path}: pixels must be uint8, uint16, float32 or float64, got {pixels.dtype}")
    if pixels.ndim == 2:
        return pixels
    if kind == "PNG" and png_layout(data)[1] == 4:
        return np.ascontiguousarray(pixels[..., 0])
    if pixels.dtype == np.float64:  # which OpenCV does not convert
        return np.ascontiguousarray(pixels[..., 2::-1])
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGB)


def decode_with_alpha(path: Path, data: bytes) -> npt.NDArray[Any]:
    """Decode the bytes of `path` to pixels as OpenCV stores them, BGR with alpha if there is one.

    Decodes all of the file, once it is checked: `check_image_file` drops the alpha of lossy WebP and of tRNS in PNG.
    """
    check_image_file(path, data)
    pixels = _decoded(data)
    if pixels is None:
        raise FileFormatError(f"{path}: truncated or damaged: OpenCV cannot decode this {image_kind(data)}")
    return pixels


def _decoded(data: bytes) -> npt.NDArray[Any] | None:
    """The pixels as OpenCV stores them, BGR; None if it cannot decode them."""
    with silenced(), suppress(cv2.error):
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return None


def encode_image(path: Path, pixels: npt.NDArray[Any]) -> bytes:
    """Encode pixels (H, W) or (H, W, 3) RGB in the format of the suffix of `path`."""
    encoded = False
    # OpenCV 4 writes three channels of floats in a lossy colour format, which sets negative values to 0.
    lossless = path.suffix.lower() in (".tif", ".tiff") and pixels.dtype == np.float32
    options = [cv2.IMWRITE_TIFF_COMPRESSION, _LZW] if lossless else []
    with suppress(cv2.error):
        bgr = pixels if pixels.ndim == 2 else pixels[..., ::-1]
        encoded, data = cv2.imencode(path.suffix, np.ascontiguousarray(bgr), options)
    if not encoded:
        raise InputError(f"{path}: OpenCV cannot write {pixels.dtype} of shape {pixels.shape} as {path.suffix!r}")
    return data.tobytes()
