"""Weights files: safetensors with the configuration in the metadata, and checksums of the shipped files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from flowinpaint.config_parsing import build
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io.files import write_bytes
from flowinpaint.networks.network import Network
from flowinpaint.networks.registry import ModelConfig, build_network, config_class

CONFIG_KEY = "flowinpaint."
"""Prefix of the metadata key that holds the configuration; the kind of the network follows."""
WEIGHTS_SUFFIX = ".safetensors"
CHECKSUMS = "SHA256SUMS"
"""File next to the shipped weights, written by `sha256sum`. New weights need a new file, a new line and a new card."""


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
    with _opened(path) as file:
        config = _config_in(path, file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    try:
        with torch.device("meta"):  # shapes only: a corrupt configuration must not allocate memory
            shapes = {name: value.shape for name, value in build_network(config).state_dict().items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{path}: the configuration does not describe a model: {error}") from error
    _check_tensors(path, shapes, tensors)
    model = build_network(config)
    model.load_state_dict(tensors)
    return model


def read_model_config(path: str | Path) -> ModelConfig:
    """The configuration of the model in a .safetensors file, without its weights."""
    with _opened(Path(path)) as file:
        return _config_in(Path(path), file.metadata() or {})


def read_checksums(path: Path) -> dict[str, str]:
    """SHA-256 by file name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


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


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    if not path.is_file():
        raise FileFormatError(f"{path}: must be a .safetensors file, got a folder")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file: {error}") from error


def _config_in(path: Path, metadata: dict[str, str]) -> ModelConfig:
    key = next((key for key in metadata if key.startswith(CONFIG_KEY)), None)
    if key is None:
        raise FileFormatError(
            f"{path}: must hold a model; use a file of save_model, or model.safetensors of a training run"
        )
    kind = config_class(key.removeprefix(CONFIG_KEY), f"{path}: kind")
    try:
        config: ModelConfig = build(kind, json.loads(metadata[key]))
    except (InputError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path}: the configuration does not describe a model: {error}") from error
    return config


def _check_tensors(path: Path, shapes: dict[str, torch.Size], tensors: dict[str, torch.Tensor]) -> None:
    if differing := sorted(shapes.keys() ^ tensors.keys()):
        raise FileFormatError(
            f"{path}: the weights must fit their configuration, got differences at {', '.join(differing[:5])}"
        )
    for name, value in tensors.items():
        if not (value.is_floating_point() and torch.isfinite(value).all()):
            raise FileFormatError(f"{path}: {name} must be a tensor of finite floating-point numbers")
        if value.shape != shapes[name]:
            raise FileFormatError(
                f"{path}: {name} must be of shape {tuple(shapes[name])} for its configuration, got {tuple(value.shape)}"
            )
