"""Models on disk: safetensors, with the configuration beside the weights in the file's metadata."""

from __future__ import annotations

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
from flowinpaint.io import atomic_path
from flowinpaint.networks.network import Network
from flowinpaint.networks.registry import CONFIGS, ModelConfig, build_network

CONFIG_KEY = "flowinpaint."
"""Before the kind of a network: the key of a file's metadata under which its configuration stands."""
WEIGHTS_SUFFIX = ".safetensors"


def save_model(model: Network, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
    """Write weights and configuration to a .safetensors file, whole or not at all; in half precision if so asked."""
    if not isinstance(model, Network):
        raise InputError(f"model: {type(model).__name__} was given; a network of flowinpaint is taken.")
    if Path(path).suffix != WEIGHTS_SUFFIX:
        raise InputError(f"path: {str(path)!r} was given; a name that ends in {WEIGHTS_SUFFIX} is taken.")
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise InputError(f"dtype: {dtype} was given; torch.float32, float16 or bfloat16 is taken.")
    tensors = {name: value.to(dtype).contiguous().cpu() for name, value in model.state_dict().items()}
    metadata = {CONFIG_KEY + model.config.kind: json.dumps(asdict(model.config))}
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(tensors, metadata=metadata))


def read_model(path: str | Path) -> Network:
    """Build the model that a .safetensors file of `save_model` holds, on the CPU."""
    with _opened(Path(path)) as file:
        config = _config_in(Path(path), file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    try:
        with torch.device("meta"):  # shapes only: a false configuration must not take memory
            shapes = {name: value.shape for name, value in build_network(config).state_dict().items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{path}: its configuration does not describe a model: {error}.") from error
    _check_tensors(Path(path), shapes, tensors)
    model = build_network(config)
    model.load_state_dict(tensors)
    return model


def read_model_config(path: str | Path) -> ModelConfig:
    """The configuration of the model in a .safetensors file, without its weights."""
    with _opened(Path(path)) as file:
        return _config_in(Path(path), file.metadata() or {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file.")
    if not path.is_file():
        raise FileFormatError(f"{path}: is a folder; a .safetensors file is taken.")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file: {error}.") from error


def _config_in(path: Path, metadata: dict[str, str]) -> ModelConfig:
    kind = next((kind for kind in CONFIGS if CONFIG_KEY + kind in metadata), None)
    if kind is None:
        raise FileFormatError(
            f"{path}: it holds no model; a file of save_model is taken, or model.safetensors of a run."
        )
    try:
        config: ModelConfig = build(CONFIGS[kind], json.loads(metadata[CONFIG_KEY + kind]))
    except (InputError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path}: its configuration does not describe a model: {error}.") from error
    return config


def _check_tensors(path: Path, shapes: dict[str, torch.Size], tensors: dict[str, torch.Tensor]) -> None:
    if differing := sorted(shapes.keys() ^ tensors.keys()):
        raise FileFormatError(f"{path}: the weights do not fit their configuration at {', '.join(differing[:5])}.")
    for name, value in tensors.items():
        if not (value.is_floating_point() and torch.isfinite(value).all()):
            raise FileFormatError(f"{path}: {name} is not a tensor of finite floating numbers.")
        if value.shape != shapes[name]:
            raise FileFormatError(
                f"{path}: {name} has shape {tuple(value.shape)}; its configuration asks for {tuple(shapes[name])}."
            )
