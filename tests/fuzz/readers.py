"""The readers under test. They may raise `ALLOWED` about a bad file, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from results_page.evaluations import merge, read_evaluation

import flowinpaint as fi
from flowinpaint.evaluation.parameter_file import read_parameters
from flowinpaint.evaluation.records import open_store
from flowinpaint.io import read_map, read_probability
from flowinpaint.methods.neural import file_method
from flowinpaint.networks.weights import check_shipped
from flowinpaint.reproduction.runs import read_records
from flowinpaint.reproduction.timing import read_times
from flowinpaint.training.checkpoint import read_checkpoint, read_newest
from flowinpaint.training.config import read_config
from flowinpaint.training.recorder import cut_back

ALLOWED = (fi.InputError, fi.FileFormatError, OSError)
"""MissingFileError is an OSError."""


def _records(path: Path) -> list[object]:
    with open_store(path) as store:
        return list(store)


def _newest(path: Path) -> object:
    try:
        return read_newest(path.parent)
    except ALLOWED as error:
        raise AssertionError("a damaged checkpoint must fall back to the one before it") from error


READERS: dict[str, Callable[[Path], object]] = {
    "image": fi.read_image,
    "mask": fi.read_mask,
    "flow": fi.read_flow,
    "depth": lambda path: fi.read_flow(path, "mm"),
    "map": read_map,
    "probability": read_probability,
    "matches": fi.read_matches,
    "matches with columns": lambda path: fi.read_matches(path, "x,y,u,v,noise"),
    "tracks": fi.read_tracks,
    "velodyne": fi.read_velodyne,
    "calibration": fi.read_calibration,
    "colmap": lambda path: fi.read_colmap(path.parent, "view.png"),
    "weights": fi.load_model,
    "configuration of weights": lambda path: file_method(path, "own"),
    "checkpoint": read_checkpoint,
    "newest checkpoint": _newest,
    "training configuration": read_config,
    "parameters": read_parameters,
    "records": _records,
    "reproduction records": read_records,
    "evaluation": lambda path: merge([read_evaluation(path.parent)]),
    "times": read_times,
    "log": lambda path: cut_back(path, 2),
    "checksums": lambda path: check_shipped(path.parent / "net.safetensors"),
}
