"""Models on disk: safetensors, with the configuration beside the weights in the file's metadata."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import atomic_path
from flowinpaint.neural.model_config import NeuroexplicitConfig
from flowinpaint.neural.neuroexplicit import Neuroexplicit

CONFIG_KEY = "flowinpaint.neuroexplicit"
WEIGHTS_SUFFIX = ".safetensors"


def save_model(model: Neuroexplicit, path: str | Path) -> None:
    """Write weights and configuration to a .safetensors file, whole or not at all."""
    if not isinstance(model, Neuroexplicit):
        raise InputError(f"model: {type(model).__name__} was given; a Neuroexplicit is taken.")
    if Path(path).suffix != WEIGHTS_SUFFIX:
        raise InputError(f"path: {str(path)!r} was given; a name that ends in {WEIGHTS_SUFFIX} is taken.")
    tensors = {name: value.contiguous().cpu() for name, value in model.state_dict().items()}
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={CONFIG_KEY: json.dumps(asdict(model.config))}))


def read_model(path: str | Path) -> Neuroexplicit:
    """Build the model that a .safetensors file of `save_model` holds, on the CPU."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file.")
    if not path.is_file():
        raise FileFormatError(f"{path}: is a folder; a .safetensors file is taken.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise FileFormatError(f"{path}: not a readable safetensors file: {error}.") from error
    if CONFIG_KEY not in metadata:
        raise FileFormatError(
            f"{path}: it holds no model; a file of save_model is taken, or model.safetensors of a run."
        )
    try:
        fields: dict[str, Any] = json.loads(metadata[CONFIG_KEY])
        fields |= {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        config = NeuroexplicitConfig(**fields)
        with torch.device("meta"):  # shapes only: a false configuration must not take memory
            shapes = {name: value.shape for name, value in Neuroexplicit(config).state_dict().items()}
    except (InputError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{path}: its configuration does not describe a model: {error}.") from error
    _check_tensors(path, shapes, tensors)
    model = Neuroexplicit(config)
    model.load_state_dict(tensors)
    return model


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
