"""COLMAP's sparse models: the depth of the points that a view observes.

A model is a folder with `images` and `points3D` (and `cameras`), as .bin, which COLMAP prefers, or .txt. Counts in
the files are compared with the bytes that are left before memory is allocated.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flowinpaint.errors import FileFormatError, InputError, MissingFileError, check_file, shown
from flowinpaint.io.budget import check_budget, with_max_bytes
from flowinpaint.io.files import StrPath, existing_file
from flowinpaint.io.text import as_numbers, raw_lines

_NO_POINT = 2**64 - 1
_IMAGE = struct.Struct("<I7dI")
"""An image: id, quaternion w x y z, translation, camera id."""
_POINT = np.dtype([("id", "<u8"), ("position", "<f8", 3), ("colour", "u1", 3), ("error", "<f8"), ("track", "<u8")])
"""A point; `track` observations of _TRACK_BYTES follow it."""
_KEYPOINT = np.dtype([("x", "<f8"), ("y", "<f8"), ("point", "<u8")])
_TRACK_BYTES = 8
_POINT_COLUMNS = 8
_LONGEST_LINE = 2**23
"""Some 200,000 keypoints of an image."""
_CHUNK = 2**16
"""Points that are copied at once."""


class SparseView(NamedTuple):
    """uv (M, 2): x, y of the keypoints; depth (M,) in the model's unit; error (M,): reprojection errors in px."""

    uv: npt.NDArray[np.float64]
    depth: npt.NDArray[np.float32]
    error: npt.NDArray[np.float32]


class _Pose(NamedTuple):
    rotation: npt.NDArray[np.float64]
    translation: npt.NDArray[np.float64]
    keypoints: npt.NDArray[Any]
    """(K,) of _KEYPOINT, in COLMAP's pixels, whose (0, 0) is the corner of the image."""


@np.errstate(all="ignore")
@with_max_bytes
def read_colmap(
    folder: StrPath, image_name: str, *, max_bytes: int | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Read the sparse depth of a view: uv (M, 2), x, y of its keypoints in px, and their depth (M,).

    folder: a COLMAP model, binary or text. image_name: as in the model, for example "IMG_0001.JPG". The keypoints are
    those of the image that COLMAP read, distorted if it is. Depth is along the optical axis, in the model's unit, which
    is not metric unless the model was scaled. max_bytes: the byte budget; default FLOWINPAINT_MAX_BYTES or 512 MiB.
    """
    view = read_view(folder, image_name)
    return view.uv, view.depth


def read_view(folder: StrPath, image_name: str) -> SparseView:
    """The sparse depth of a view, with reprojection errors; arguments as for `read_colmap`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingFileError(f"{folder}: there is no such folder")
    suffix = ".bin" if (folder / "images.bin").exists() else ".txt"
    images, points = folder / f"images{suffix}", folder / f"points3D{suffix}"
    if not images.exists() or not points.exists():
        raise MissingFileError(f"{folder}: a COLMAP model must have images and points3D, both .bin or both .txt")
    binary = suffix == ".bin"
    pose = _find(images, image_name, _binary_images(images) if binary else _text_images(images))
    ids, positions, errors = _binary_points(points) if binary else _text_points(points)
    seen = pose.keypoints[pose.keypoints["point"] != _NO_POINT]
    order = np.argsort(ids)
    place = np.searchsorted(ids, seen["point"], sorter=order)
    missing = (place >= len(ids)) | (ids[order[np.minimum(place, len(ids) - 1)]] != seen["point"]) if len(ids) else True
    check_file(images, bool(np.any(missing)) and f"{points.name} must have all points that {image_name} observes")
    rows = order[place]
    # w (x, y, 1) = K (R X + t): the third row of R and t gives the depth.
    with np.errstate(over="ignore", invalid="ignore"):
        depth = (positions[rows] @ pose.rotation[2] + pose.translation[2]).astype(np.float32)
    uv = np.column_stack([seen["x"], seen["y"]]) - 0.5  # here, (0, 0) is the centre of a pixel
    good = (depth > 0) & np.isfinite(depth) & np.isfinite(uv).all(axis=1)
    check_file(images, not good.any() and f"{image_name} must observe at least one point in front of it, got none")
    return SparseView(uv[good], depth[good], errors[rows][good].astype(np.float32))


def _find(path: Path, name: str, images: Iterator[tuple[bytes, Any]]) -> _Pose:
    """The pose of the image with this name; the other images are only listed."""
    wanted, first, count = name.encode(errors="replace"), [], 0
    for found, read in images:
        if found == wanted:
            pose: _Pose = read()
            return pose
        count += 1
        if count <= 3:
            first.append(found[:200].decode(errors="replace"))
    check_file(path, count == 0 and "must have at least one image, got none")
    raise InputError(
        f"image_name must be one of the {count} images in {path}, such as {', '.join(first)}, got {name!r:.200}"
    )


def _pose(path: Path, quaternion: Any, translation: Any, keypoints: npt.NDArray[Any]) -> _Pose:
    q, t = np.array(quaternion, np.float64), np.array(translation, np.float64)
    length = float(np.sqrt(q @ q)) if np.isfinite(q).all() else 0.0
    check_file(path, not (0 < length < np.inf and np.isfinite(t).all()) and "an image must have a finite pose")
    w, x, y, z = q / length
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    # Rodrigues: R = I + 2 w [v] + 2 [v]^2 for a unit quaternion (w, v).
    return _Pose(np.eye(3) + 2 * w * cross + 2 * cross @ cross, t, keypoints)


def _count(path: Path, data: bytes, position: int, smallest: int, what: str) -> int:
    """The number of items at a position; FileFormatError if the bytes behind it cannot hold as many."""
    check_file(path, position + 8 > len(data) and f"truncated: it ends at byte {len(data)}")
    (count,) = struct.unpack_from("<Q", data, position)
    left = len(data) - position - 8
    short = count * smallest > left
    check_file(path, short and f"truncated or forged: it announces {count} {what}, {left} bytes cannot hold them")
    return int(count)


def _binary_images(path: Path) -> Iterator[tuple[bytes, Any]]:
    data = existing_file(path).read_bytes()
    position = 8
    for _ in range(_count(path, data, 0, _IMAGE.size + 9, "images")):
        end = data.find(b"\0", position + _IMAGE.size)
        check_file(path, end < 0 and f"truncated: it ends inside an image at byte {len(data)}")
        count = _count(path, data, end + 1, _KEYPOINT.itemsize, "keypoints")

        def read(at: int = position, start: int = end + 9, count: int = count) -> _Pose:
            _, *pose, _ = _IMAGE.unpack_from(data, at)
            return _pose(path, pose[:4], pose[4:], np.frombuffer(data, _KEYPOINT, count, start))

        yield data[position + _IMAGE.size : end], read
        position = end + 9 + count * _KEYPOINT.itemsize
    check_file(path, position != len(data) and f"too long: its images end at byte {position} of {len(data)}")


def _binary_points(path: Path) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    data = existing_file(path).read_bytes()
    count, position = _count(path, data, 0, _POINT.itemsize, "points"), 8
    places = np.empty(count, np.int64)
    size, track_at, last = _POINT.itemsize, _POINT.itemsize - 8, len(data) - _POINT.itemsize
    unpack = struct.Struct("<Q").unpack_from
    for i in range(count):
        check_file(path, position > last and f"truncated: it ends at byte {len(data)}")
        places[i] = position
        position += size + _TRACK_BYTES * unpack(data, position + track_at)[0]
    check_file(path, position > len(data) and f"truncated: it ends at byte {len(data)}")
    check_file(path, position < len(data) and f"too long: its points end at byte {position} of {len(data)}")
    ids, positions, errors = np.empty(count, np.uint64), np.empty((count, 3)), np.empty(count)
    if count == 0:  # no window fits
        return ids, positions, errors
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), size)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        points = windows[places[part]].view(_POINT)[:, 0]
        ids[part], positions[part], errors[part] = points["id"], points["position"], points["error"]
    return ids, positions, errors


def _text_images(path: Path) -> Iterator[tuple[bytes, Any]]:
    with existing_file(path, whole=False).open("rb") as stream:
        lines = ((i, line) for i, line in raw_lines(path, stream, _LONGEST_LINE) if not line.startswith(b"#"))
        for number, line in lines:
            if line.isspace():
                continue
            words = line.split(maxsplit=9)
            check_file(path, len(words) != 10 and f"line {number} must be an image of 10 words, got {len(words)}")
            _, observed = next(lines, (number + 1, None))  # an empty line if the image has no keypoints
            check_file(path, observed is None and f"truncated: it ends before the keypoints of line {number}")

            def read(number: int = number, words: list[bytes] = words, observed: bytes = observed or b"") -> _Pose:
                pose = _numbers(path, number, words[1:8])
                return _pose(path, pose[:4], pose[4:], _text_keypoints(path, number + 1, observed.split()))

            yield words[9].strip(), read


def _text_keypoints(path: Path, number: int, words: list[bytes]) -> npt.NDArray[Any]:
    check_file(path, len(words) % 3 > 0 and f"line {number} must have three numbers per keypoint, got {len(words)}")
    keypoints = np.empty(len(words) // 3, _KEYPOINT)
    keypoints["x"], keypoints["y"] = (_numbers(path, number, words[k::3]) for k in (0, 1))
    keypoints["point"] = [_NO_POINT if word == b"-1" else _identifier(path, number, word) for word in words[2::3]]
    return keypoints


def _text_points(path: Path) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    ids, values = array("Q"), array("d")
    with existing_file(path, whole=False).open("rb") as stream:
        for number, line in raw_lines(path, stream, _LONGEST_LINE):
            words = line.split(maxsplit=_POINT_COLUMNS)
            if not words or line.startswith(b"#"):
                continue
            short = len(words) < _POINT_COLUMNS
            check_file(path, short and f"line {number} must be a point of at least {_POINT_COLUMNS} words")
            if number % _CHUNK == 0:
                check_budget(path, 2 * (ids.itemsize * len(ids) + values.itemsize * len(values)))
            ids.append(_identifier(path, number, words[0]))
            values.extend(_numbers(path, number, [*words[1:4], words[7]]))
    table = np.frombuffer(values, np.float64).reshape(-1, 4)
    return np.frombuffer(ids, np.uint64), table[:, :3], table[:, 3]


def _identifier(path: Path, number: int, word: bytes) -> int:
    if not word.isdigit() or len(word) > 19:  # below 2^64
        found = shown(word.decode(errors="replace"))
        raise FileFormatError(f"{path}: line {number} must have the id of a point, got {found}")
    return int(word)


def _numbers(path: Path, number: int, words: list[bytes]) -> list[float]:
    try:
        return as_numbers(words)
    except ValueError:
        found = b" ".join(words[:8]).decode(errors="replace")
        raise FileFormatError(f"{path}: line {number} must have numbers, got {shown(found)}") from None
