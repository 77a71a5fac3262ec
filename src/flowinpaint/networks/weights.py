"""Weights files: safetensors with the configuration in the metadata, and checksums of the shipped files."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save

from flowinpaint.config_parsing import build
from flowinpaint.errors import FileFormatError, InputError, MissingFileError, check_file, shown
from flowinpaint.io.files import write_bytes
from flowinpaint.io.tensors import TensorFile, open_tensors
from flowinpaint.io.text import checking_content, parse_json, read_text
from flowinpaint.networks.network import Network
from flowinpaint.networks.registry import ModelConfig, build_network, config_class

CONFIG_KEY = "flowinpaint."
"""Prefix of the metadata key that holds the configuration; the kind of the network follows."""
WEIGHTS_SUFFIX = ".safetensors"
CHECKSUMS = "SHA256SUMS"
"""File next to the shipped weights, written by `sha256sum`. New weights need a new file, a new line and a new card."""
_CHECKSUM = re.compile(r"([0-9a-f]{64}) [ *](\S+)")
_LARGEST_CHECKSUMS = 2**16
_DTYPES = ("F64", "F32", "F16", "BF16")


def save_model(model: Network, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
    """Write weights and configuration to a .safetensors file, completely or not at all; dtype may be a half type."""
    if not isinstance(model, Network):
        raise InputError(f"model must be a network of flowinpaint, got {type(model).__name__}")
    if Path(path).suffix != WEIGHTS_SUFFIX:
        raise InputError(f"path must end in {WEIGHTS_SUFFIX}, got {str(path)!r}")
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise InputError(f"dtype must be torch.float32, float16 or bfloat16, got {dtype}")
    tensors = {name: value.to(dtype).contiguous().cpu() for name, value in model.state_dict().items()}
    metadata = {CONFIG_KEY + model.config.kind: json.dumps(asdict(model.config))}
    write_bytes(Path(path), save(tensors, metadata=metadata))


def read_model(path: str | Path) -> Network:
    """Build the model in a .safetensors file of `save_model`, on the CPU."""
    path = Path(path)
    with open_tensors(path) as file:
        config = _config_in(path, file.metadata)
        _check_shapes(path, config, file)
        tensors = file.read()
    for name, value in tensors.items():
        check_file(path, not torch.isfinite(value).all() and f"{name} must be a tensor of finite numbers")
    model = build_network(config)
    model.load_state_dict(tensors)
    return model


def read_model_config(path: str | Path) -> ModelConfig:
    """The configuration of the model in a .safetensors file, without its weights."""
    with open_tensors(Path(path)) as file:
        return _config_in(Path(path), file.metadata)


def read_checksums(path: Path) -> dict[str, str]:
    """SHA-256 by file name."""
    sums: dict[str, str] = {}
    for number, line in enumerate(read_text(path, _LARGEST_CHECKSUMS).splitlines(), 1):
        entry = _CHECKSUM.fullmatch(line)
        if entry is None or entry[2] in sums:
            raise FileFormatError(
                f"{path}: line {number}: must be a SHA-256 and the name of a further file, got {shown(line)}; install "
                "flowinpaint again"
            )
        sums[entry[2]] = entry[1]
    return sums


def check_shipped(path: Path) -> None:
    """Raise MissingFileError or FileFormatError unless a shipped weights file is present and undamaged."""
    sums = path.with_name(CHECKSUMS)
    for file in (path, sums):
        if not file.is_file():
            raise MissingFileError(
                f"{file}: there is no such file, although it is part of flowinpaint; install flowinpaint again"
            )
    with path.open("rb") as weights:
        found = hashlib.file_digest(weights, "sha256").hexdigest()
    if found != read_checksums(sums).get(path.name):
        raise FileFormatError(
            f"{path}: damaged: its SHA-256 differs from the one in {CHECKSUMS}; install flowinpaint again"
        )


def _config_in(path: Path, metadata: dict[str, str]) -> ModelConfig:
    key = next((key for key in metadata if key.startswith(CONFIG_KEY)), None)
    if key is None:
        raise FileFormatError(
            f"{path}: must hold a model; use a file of save_model, or model.safetensors of a training run"
        )
    with checking_content(path):
        kind = config_class(key.removeprefix(CONFIG_KEY), "kind")
    try:
        config: ModelConfig = build(kind, parse_json(metadata[key], path, f"metadata {key}"))
    except InputError as error:
        raise FileFormatError(f"{path}: the configuration does not describe a model: {error}") from error
    return config


def _check_shapes(path: Path, config: ModelConfig, file: TensorFile) -> None:
    """FileFormatError unless the tensors of a file are those of a configuration; reads and allocates nothing."""
    try:
        with torch.device("meta"):
            shapes = {name: tuple(value.shape) for name, value in build_network(config).state_dict().items()}
    except (TypeError, ValueError, RuntimeError) as error:  # for example sizes above those of any tensor
        raise FileFormatError(f"{path}: the configuration does not describe a model: {error}") from error
    if differing := sorted(shapes.keys() ^ file.shapes.keys()):
        raise FileFormatError(
            f"{path}: the weights must fit their configuration, got differences at {', '.join(differing[:5])}"
        )
    for name, shape in shapes.items():
        dtype, found = file.dtypes[name], file.shapes[name]
        check_file(path, dtype not in _DTYPES and f"{name} must be a tensor of {', '.join(_DTYPES)}, got {dtype}")
        fault = f"{name} must be of shape {shape} for its configuration, got {shown(found)}"
        check_file(path, found != shape and fault)
