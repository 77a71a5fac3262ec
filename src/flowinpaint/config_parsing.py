"""Conversion of TOML and JSON tables to dataclasses, with errors that name the key."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from flowinpaint.errors import InputError

T = TypeVar("T")

KIND = "kind"
"""The key of a table that names its dataclass, where the annotation is `Annotated[..., find]`.

find(kind, name=...) returns the class or raises an InputError that starts with the name; find(name=...) the default.
"""
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text in quotes"}


def build(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """A dataclass from a table of its fields; InputError names the key, what is accepted and the value."""
    types_of = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {path}{near[0]}?" if near else f"known keys: {', '.join(names)}."
            raise InputError(f"{path}{key}: there is no such key; {hint}")
    required = [field.name for field in dataclasses.fields(cls) if _is_required(field)]  # type: ignore[arg-type]
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{path}{missing[0]} is missing; required are {', '.join(required)}.")
    values = {key: _convert(value, types_of[key], path + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{path}{error}") from error


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _convert(value: Any, wanted: Any, key: str) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated and not callable(arguments[1]):  # a limit, which the dataclass checks
        return _convert(value, arguments[0], key)
    if origin is Annotated or dataclasses.is_dataclass(wanted):
        if not isinstance(value, Mapping):
            raise InputError(f"{key} must be a table [{key}], got {value!r}.")
        if origin is Annotated:
            kind = [value[KIND]] if KIND in value else []
            wanted = arguments[1](*kind, name=f"{key}.{KIND}")
        return build(wanted, value, f"{key}.")
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{key} must be {' or '.join(map(repr, arguments))}, got {value!r}.")
        return value
    if origin is tuple:
        return _convert_tuple(value, arguments, key)
    if origin is types.UnionType:  # X | None: TOML has no null, so only the X can be written
        return None if value is None else _convert(value, arguments[0], key)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise InputError(f"{key} must be {_WORDS[wanted]}, got {value!r}.")
    return value


def _convert_tuple(value: Any, arguments: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    endless = arguments[-1] is Ellipsis
    if not isinstance(value, list | tuple) or (not endless and len(value) != len(arguments)):
        count = "a list" if endless else f"a list of {len(arguments)}"
        raise InputError(f"{key} must be {count}, each {_WORDS[arguments[0]]}, got {value!r}.")
    kinds = [arguments[0]] * len(value) if endless else arguments
    return tuple(_convert(entry, kind, key) for entry, kind in zip(value, kinds, strict=True))
