"""Configurations in TOML files, in `--set` options and in checkpoints, and what may change when a run goes on."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.training.config import TrainingConfig

T = TypeVar("T")

FREE_TABLES = ("schedule", "validation", "run")
FREE_KEYS = ("data.bank", "data.root", "data.workers")
"""What a run that goes on may change: how long it lasts, what it reports, and where on this machine its data lie."""
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}


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


def build(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """A dataclass from a table of its fields; InputError names the key, what was given and what is taken."""
    types_of = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {path}{near[0]}?" if near else f"taken: {', '.join(names)}."
            raise InputError(f"{path}{key}: there is no such key; {hint}")
    values = {key: _convert(value, types_of[key], path + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{path}{error}") from error


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


def _convert(value: Any, wanted: Any, key: str) -> Any:
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        if not isinstance(value, dict):
            raise InputError(f"{key}: {value!r} was given; a table [{key}] is taken.")
        return build(wanted, value, f"{key}.")
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{key}: {value!r} was given; {' or '.join(map(repr, arguments))} is taken.")
        return value
    if origin is tuple:
        return _convert_tuple(value, arguments, key)
    if origin is types.UnionType:  # X | None: TOML has no null, so only the X can be written
        return None if value is None else _convert(value, arguments[0], key)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise InputError(f"{key}: {value!r} was given; {_WORDS[wanted]} is taken.")
    return value


def _convert_tuple(value: Any, arguments: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    endless = arguments[-1] is Ellipsis
    wrong = not isinstance(value, list | tuple) or (not endless and len(value) != len(arguments))
    if wrong:
        count = "a list" if endless else f"a list of {len(arguments)}"
        raise InputError(f"{key}: {value!r} was given; {count} is taken, each {_WORDS[arguments[0]]}.")
    kinds = [arguments[0]] * len(value) if endless else arguments
    return tuple(_convert(entry, kind, key) for entry, kind in zip(value, kinds, strict=True))


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
