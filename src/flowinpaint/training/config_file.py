"""Configurations in TOML files, in `--set` options and in checkpoints, and what may change when a run goes on."""

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
"""What a run that goes on may change: how long it lasts, what it reports, and where on this machine its data lie."""


def read_config(path: str | Path, settings: Sequence[str] = ()) -> TrainingConfig:
    """The configuration in a TOML file, changed by settings of the form table.key=value."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file; a configuration in TOML is taken.")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileFormatError(f"{path}: not a readable TOML file: {error}.") from error
    try:
        build(TrainingConfig, tables)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return apply_settings(tables, settings)


def apply_settings(tables: dict[str, Any], settings: Sequence[str]) -> TrainingConfig:
    """The configuration of these tables, changed by settings of the form table.key=value."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        *parents, last = key.strip().split(".")
        if not (equals and parents and last and text.strip()):
            raise InputError(f"--set: {setting!r} was given; TABLE.KEY=VALUE is taken, for example optimiser.lr=1e-4.")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise InputError(f"--set: {setting!r} was given; {parent} is a value and has no keys.")
        table[last] = _value(text.strip())
    try:
        return build(TrainingConfig, tables)
    except InputError as error:
        raise InputError(f"--set: {error}" if settings else str(error)) from error


def as_tables(config: TrainingConfig) -> dict[str, Any]:
    """The configuration as nested tables that JSON and TOML can hold; `build` gives it back."""
    return dataclasses.asdict(config)


def check_same_run(before: TrainingConfig, now: TrainingConfig) -> None:
    """Raise InputError if a run would go on as another one: with other data, another model or optimiser."""
    old, new = _flat(as_tables(before)), _flat(as_tables(now))
    for key in new:
        free = key.split(".")[0] in FREE_TABLES or key in FREE_KEYS
        if not free and old.get(key) != new[key]:
            raise InputError(
                f"{key}: {new[key]!r} was given, but the run to resume has {old.get(key)!r}; the same is taken, or a "
                "new run folder."
            )


def _value(text: str) -> Any:
    """What TOML takes the text for, or else the text itself: names go without quotes on a command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat
