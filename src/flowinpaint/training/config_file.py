"""Configurations from TOML files, `--set` options and checkpoints, and the keys that a resumed run may change."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowinpaint.config_parsing import build
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.training.config import TrainingConfig

FREE_TABLES = ("schedule", "validation", "run")
FREE_KEYS = ("data.bank", "data.root", "data.workers")
"""Keys that a resumed run may change: its length, its reports, and the location of its data."""


def read_config(path: str | Path, settings: Sequence[str] = ()) -> TrainingConfig:
    """The configuration in a TOML file, changed by settings of the form table.key=value."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file; pass a configuration in TOML.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileFormatError(f"{path}: not a readable TOML file: {error}.") from error
    try:
        config = build(TrainingConfig, tables)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return apply_settings(tables, settings) if settings else config


def apply_settings(tables: dict[str, Any], settings: Sequence[str]) -> TrainingConfig:
    """The configuration of these tables, changed by settings of the form table.key=value."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        *parents, last = key.strip().split(".")
        if not (equals and parents and last and text.strip()):
            raise InputError(f"--set must be TABLE.KEY=VALUE, for example optimiser.lr=1e-4, got {setting!r}.")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise InputError(f"--set {setting}: {parent} is a value and has no keys.")
        table[last] = _value(text.strip())
    try:
        return build(TrainingConfig, tables)
    except InputError as error:
        raise InputError(f"--set: {error}" if settings else str(error)) from error


def as_tables(config: TrainingConfig) -> dict[str, Any]:
    """The configuration as nested tables that JSON and TOML can hold; `build` is the inverse."""
    return dataclasses.asdict(config)


def check_same_run(before: TrainingConfig, now: TrainingConfig) -> None:
    """Raise InputError if a resumed run differs from the saved one in data, model or optimiser."""
    old, new = _flat(as_tables(before)), _flat(as_tables(now))
    for key in new:
        free = key.split(".")[0] in FREE_TABLES or key in FREE_KEYS
        if not free and old.get(key) != new[key]:
            raise InputError(
                f"{key} must be {old.get(key)!r} as in the run to resume, got {new[key]!r}; use the same, or a new run "
                "folder."
            )


def _value(text: str) -> Any:
    """The text as a TOML value, or as a string if it is none: names need no quotes on a command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat
