"""Seeds: one small valid file of every format and layout that a reader accepts, all generated here."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save

import colmap_model
import finished_evaluations
import flowinpaint as fi
from flowinpaint.training.checkpoint import Checkpoint, write_checkpoint
from fuzz import encoders
from tiny_runs import tiny

Array = npt.NDArray[Any]


class Seed(NamedTuple):
    """A file for a reader. suffix: of its name. files: what must be in the same folder, by name."""

    reader: str
    name: str
    data: bytes
    suffix: str
    file: str = ""
    """The name that the reader expects, if any."""
    files: dict[str, bytes] = {}  # noqa: RUF012 (never changed)


def _encoded(suffix: str, pixels: Array, *options: int) -> bytes:
    good, data = cv2.imencode(suffix, pixels, options)
    assert good
    return data.tobytes()


def _pictures() -> dict[str, tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, (11, 13, 3), np.uint8)
    grey, deep = colour[..., 0].copy(), colour.astype(np.uint16) * 257
    alpha = np.dstack([colour, grey])
    smooth = cv2.GaussianBlur(rng.integers(0, 256, (48, 64, 3), np.uint8), (0, 0), 3)
    found = {
        f"png, {depth} bits, colour type {kind}{', interlaced' if laced else ''}": (
            ".png",
            encoders.png(13, 11, depth, kind, laced),
        )
        for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 4, 8), 4: (8, 16), 6: (8, 16)}.items()
        for depth in depths
        for laced in (False, True)
    }
    found |= {
        "jpeg, baseline": (".jpg", _encoded(".jpg", smooth)),
        "jpeg, grey": (".jpg", _encoded(".jpg", smooth[..., 0].copy())),
        "jpeg, progressive": (".jpg", _encoded(".jpg", smooth, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
        "jpeg, restarts": (".jpeg", _encoded(".jpg", smooth, cv2.IMWRITE_JPEG_RST_INTERVAL, 3)),
        "bmp, 24 bits": (".bmp", encoders.bmp(13, 11)),
        "bmp, 32 bits": (".bmp", encoders.bmp(13, 11, 32)),
        "bmp, 8 bits, top first": (".bmp", encoders.bmp(13, -11, 8)),
        "bmp, runs": (".bmp", encoders.bmp_runs(13, 11)),
        "bmp of opencv": (".bmp", _encoded(".bmp", grey)),
        "tiff, strips": (".tif", encoders.tiff(13, 11)),
        "tiff, big-endian": (".tif", encoders.tiff(13, 11, big_endian=True)),
        "tiff, bigtiff": (".tiff", encoders.tiff(13, 11, big=True)),
        "tiff, deflate": (".tif", encoders.tiff(13, 11, 3, deflated=True)),
        "tiff, 16 bits": (".tif", encoders.tiff(13, 11, 1, 16)),
        "tiff, lzw": (".tif", _encoded(".tif", colour, cv2.IMWRITE_TIFF_COMPRESSION, 5)),
        "webp, lossy": (".webp", _encoded(".webp", smooth, cv2.IMWRITE_WEBP_QUALITY, 70)),
        "webp, lossless": (".webp", _encoded(".webp", colour, cv2.IMWRITE_WEBP_QUALITY, 101)),
        "webp, alpha": (".webp", _encoded(".webp", alpha, cv2.IMWRITE_WEBP_QUALITY, 70)),
        "png of opencv, 16 bits": (".png", _encoded(".png", deep)),
        "pbm, plain": (".pnm", b"P1\n4 3\n1 0 1 0\n0 1 0 1\n1 1 0 0\n"),
        "pgm, plain": (".pgm", b"P2\n# a comment\n4 3\n255\n" + b" ".join(b"%d" % (20 * k) for k in range(12)) + b"\n"),
        "ppm, plain": (".ppm", b"P3\n2 2\n255\n" + b" ".join(b"%d" % (20 * k) for k in range(12)) + b"\n"),
        "pbm": (".pnm", b"P4\n13 11\n" + bytes(range(22))),
        "pgm": (".pgm", b"P5\n13 11\n255\n" + grey.tobytes()),
        "pgm, 16 bits": (".pgm", b"P5\n13 11\n65535\n" + deep[..., 0].astype(">u2").tobytes()),
        "ppm": (".ppm", b"P6\n13 11\n255\n" + colour.tobytes()),
    }
    return found


def _of_images() -> list[Seed]:
    pictures = _pictures()
    seeds = [Seed("image", name, data, suffix) for name, (suffix, data) in pictures.items()]
    pattern = np.indices((11, 13)).sum(0) % 3 == 0
    mask = pattern.astype(np.uint8) * np.uint8(255)
    seeds += [Seed("mask", suffix[1:], _encoded(suffix, mask), suffix) for suffix in (".png", ".bmp", ".tif", ".pgm")]
    seeds += [Seed("mask", f"npy of {x.dtype}", _npy(x), ".npy") for x in (pattern, mask, mask.astype(">i4"))]
    grey = [name for name in pictures if "grey" in name or "pgm" in name or "type 0" in name]
    seeds += [Seed("probability", name, pictures[name][1], pictures[name][0]) for name in grey]
    return seeds


def _npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _npz(packed: bool = False, **arrays: Array) -> bytes:
    return encoders.npz({f"{name}.npy": _npy(array) for name, array in arrays.items()}, packed)


def _field(channels: int) -> Array:
    y, x = np.mgrid[:11, :13].astype(np.float32)
    field: Array = np.stack([x - k * y + 1 for k in range(channels)], -1).astype(np.float32)
    return field


def _written(suffix: str, field: Array, **options: Any) -> bytes:
    valid = np.indices(field.shape[:2]).sum(0) % 4 > 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"field{suffix}"
        fi.write_flow(path, field, valid, **options)
        return path.read_bytes()


def _of_fields() -> list[Seed]:
    flow, depth = _field(2), np.abs(_field(1))
    seeds = [Seed("flow", suffix[1:], _written(suffix, flow), suffix) for suffix in (".flo", ".png", ".pfm")]
    seeds += [Seed("flow", f"{s[1:]}, one channel", _written(s, depth), s) for s in (".pfm", ".tif", ".npy")]
    seeds += [
        Seed("flow", "tif, three channels", _written(".tif", _field(3)), ".tif"),
        Seed("flow", "tiff, tiles", encoders.tiff(20, 18, 1, 32, tile=16, floating=True), ".tiff"),
        Seed("flow", "npy, float64", _npy(flow.astype(np.float64)), ".npy"),
        Seed("flow", "npy, big-endian", _npy(flow.astype(">f4")), ".npy"),
        Seed("flow", "npy, columns first", _npy(np.asfortranarray(flow)), ".npy"),
        Seed("flow", "npy, version 2", encoders.npy((3, 4, 2), version=2), ".npy"),
        Seed("flow", "npz", _written(".npz", flow), ".npz"),
        Seed("flow", "npz, deflated", _npz(True, flow=flow, valid=flow[..., 0] > 0), ".npz"),
        Seed("depth", "png in mm", _written(".png", depth, unit="mm"), ".png"),
        Seed("map", "npy", _npy(depth[..., 0]), ".npy"),
        Seed("map", "npy of integers", _npy(depth[..., 0].astype(np.int16)), ".npy"),
        Seed("map", "pfm", _written(".pfm", depth), ".pfm"),
        Seed("map", "npz", _written(".npz", depth), ".npz"),
        Seed("map", "png", _written(".png", depth, unit="px/256"), ".png"),
    ]
    return seeds


def _of_points() -> list[Seed]:
    rng = np.random.default_rng(1)
    starts = rng.uniform(0, 90, (9, 2))
    rows = np.hstack([starts, starts + rng.normal(0, 2, (9, 2)), rng.uniform(0, 1, (9, 1))])
    plain = "\n".join(" ".join(f"{x:.3f}" for x in row) for row in rows) + "\n"
    table = "x,y,u,v,confidence\n" + "\n".join(",".join(f"{x:.3f}" for x in row) for row in rows) + "\n"
    tracks = rng.uniform(5, 90, (4, 6, 2)).astype(np.float32)
    shown = np.ones((4, 6), np.bool_)
    scan = rng.normal(0, 10, (30, 4)).astype("<f4").tobytes()
    raw = {"P_rect_02": 12, "R_rect_00": 9, "R": 9, "T": 3}
    lines = ["calib_time: 09-Jan-2012 13:57:47"]
    lines += [f"{name}: {' '.join(f'{x:.6e}' for x in rng.normal(0, 1, count))}" for name, count in raw.items()]
    single = {"P2": 12, "R0_rect": 9, "Tr_velo_to_cam": 12}
    seeds = [
        Seed("matches", "text", plain.encode(), ".txt"),
        Seed("matches", "csv with a header", table.encode(), ".csv"),
        Seed("matches", "commented header", f"# {table.replace(',', ' ')}".encode(), ".txt"),
        Seed("matches with columns", "semicolons", plain.replace(" ", ";").encode(), ".csv"),
        Seed("tracks", "cotracker", _npz(True, pred_tracks=tracks[None], pred_visibility=shown[None]), ".npz"),
        Seed("tracks", "tapir", _npz(tracks=tracks.swapaxes(0, 1), occluded=~shown.T), ".npz"),
        Seed("velodyne", "scan", scan, ".bin"),
        Seed("calibration", "raw", "\n".join(lines).encode(), ".txt"),
        Seed(
            "calibration",
            "object",
            "\n".join(f"{k}: {' '.join(map(str, rng.normal(0, 1, n)))}" for k, n in single.items()).encode(),
            ".txt",
        ),
    ]
    with tempfile.TemporaryDirectory() as place:
        for write, suffix in ((colmap_model.write_binary, ".bin"), (colmap_model.write_text, ".txt")):
            folder = Path(place) / suffix
            folder.mkdir()
            write(folder)
            files = {path.name: path.read_bytes() for path in folder.iterdir()}
            seeds += [
                Seed("colmap", f"{name}, mutated", files[name], suffix, name, {k: files[k] for k in files if k != name})
                for name in files
            ]
    return seeds


def _network() -> bytes:
    torch.manual_seed(0)
    model = fi.Neuroexplicit(fi.NeuroexplicitConfig(width=1, steps=(1, 1, 1, 1)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        fi.save_model(model, path, torch.float16)
        return path.read_bytes()


def _checkpoint(step: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tensors = {"model.a": torch.zeros(3), "optimiser.b": torch.ones(2, 2)}
        return write_checkpoint(Path(folder), Checkpoint(step, 1.5, tiny(), tensors)).read_bytes()


def _of_runs() -> list[Seed]:
    network, newer, older = _network(), _checkpoint(6), _checkpoint(3)
    records = finished_evaluations.grid_of_records(
        {"eed": 0.5, "laplace-beltrami": 0.75}, [0.05, "holes"], ["KITTI2015"]
    )
    with tempfile.TemporaryDirectory() as place:
        folder = finished_evaluations.write_evaluation(Path(place) / "evaluation", records)
        results = (folder / "results.json").read_bytes()
    stored = b"".join(json.dumps(record).encode() + b"\n" for record in json.loads(results)["records"])
    tables = {"method": "eed", "by_density": {"0.01": {"lam": 1e-4, "alpha": 0.42}, "0.05": {"lam": 1e-3}}}
    times = {
        "name": "eed", "model": "x", "size": 64, "density": 0.05, "device": "cpu", "machine": "m",
        "torch": "2", "version": "1", "milliseconds": 1.5, "calls": 3, "share": 1.0,
    }  # fmt: skip
    log = [{"kind": "train", "step": k, "loss": 0.5} for k in range(3)] + [{"kind": "validation", "step": 2, "epe": 1}]
    digest = hashlib.sha256(network).hexdigest()
    config = (Path(fi.__file__).parent / "training/configs/demo.toml").read_bytes()
    return [
        Seed("weights", "tiny network", network, ".safetensors"),
        Seed("configuration of weights", "tiny network", network, ".safetensors"),
        Seed("checkpoint", "tiny run", newer, ".safetensors"),
        Seed(
            "newest checkpoint",
            "two of a tiny run",
            newer,
            ".safetensors",
            "step-000000006.safetensors",
            {"step-000000003.safetensors": older},
        ),
        Seed("training configuration", "demo", config, ".toml"),
        Seed("parameters", "by density", json.dumps(tables).encode(), ".json"),
        Seed("parameters", "one set", b'{"method": "eed", "lam": 1e-4, "alpha": 0.3}', ".json"),
        Seed("records", "store", stored, ".jsonl"),
        Seed("reproduction records", "store", stored, ".jsonl"),
        Seed("evaluation", "results", results, ".json", "results.json"),
        Seed("times", "one", json.dumps({"times": [times]}).encode(), ".json"),
        Seed("log", "four lines", b"".join(json.dumps(x).encode() + b"\n" for x in log), ".jsonl"),
        Seed(
            "checksums",
            "two files",
            f"{digest}  net.safetensors\n{digest[::-1]}  other.safetensors\n".encode(),
            "",
            "SHA256SUMS",
            {"net.safetensors": network},
        ),
        Seed("weights", "pickle in disguise", save({"a": torch.zeros(1)}), ".safetensors"),
        Seed("weights", "zero length header", struct.pack("<Q", 2) + b"{}", ".safetensors"),
    ]


@cache
def seeds() -> list[Seed]:
    """All seeds."""
    return [*_of_images(), *_of_fields(), *_of_points(), *_of_runs()]
