"""Conversion of TOML and JSON tables to dataclasses, and checks of their fields, with errors that name the key."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from flowinpaint.errors import InputError

T = TypeVar("T")

KIND = "kind"
"""The key of a table that selects its dataclass, for fields annotated as `Annotated[..., find]`.

find(kind, name=...) is the class, or raises an InputError that starts with the name; find(name=...) is the default.
"""
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text in quotes"}


def build(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """A dataclass from a table of its fields; InputError names the key, what is accepted and the value."""
    types_of = get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            hint = f"did you mean {path}{near[0]}?" if near else f"known keys are {', '.join(fields)}"
            raise InputError(f"{path}{key}: there is no such key; {hint}")
    unset = dataclasses.MISSING
    required = [name for name, f in fields.items() if f.default is unset and f.default_factory is unset]
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{path}{missing[0]} must be set; required keys are {', '.join(required)}")
    values = {key: _convert(value, types_of[key], path + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{path}{error}") from error


def check_types(config: Any) -> None:
    """Raise InputError unless the fields of a dataclass have the types of their annotations."""
    for name, wanted in get_type_hints(type(config), include_extras=True).items():
        _convert(getattr(config, name), wanted, name)


def check_ranges(config: Any, **ranges: tuple[float, float]) -> None:
    """Raise InputError unless these fields of a dataclass are finite and in their ranges (least, most).

    The range of a tuple holds for each of its numbers.
    """
    types_of = get_type_hints(type(config))
    for name, (least, most) in ranges.items():
        value, parts = getattr(config, name), get_args(types_of[name])
        numbers = value if isinstance(value, tuple | list) else (value,)
        if not all(least <= number <= most and number < math.inf for number in numbers):
            kind = _WORDS[int if int in (types_of[name], *parts) else float]
            limits = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
            each = f"a list of {len(parts)}, each " if get_origin(types_of[name]) is tuple else ""
            raise InputError(f"{name} must be {each}{kind} {limits}, got {value}")


def flattened(table: Mapping[str, Any], separator: str, path: str = "") -> dict[str, Any]:
    """The values in nested tables by their keys, joined by the separator."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, Mapping)
        flat |= flattened(value, separator, f"{path}{key}{separator}") if nested else {f"{path}{key}": value}
    return flat


def _convert(value: Any, wanted: Any, key: str) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated and not callable(arguments[1]):  # a limit, which the dataclass checks
        return _convert(value, arguments[0], key)
    if origin is Annotated or dataclasses.is_dataclass(wanted):
        if isinstance(wanted, type) and isinstance(value, wanted):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"{key} must be a table [{key}], got {value!r}")
        if origin is Annotated:
            kind = [value[KIND]] if KIND in value else []
            wanted = arguments[1](*kind, name=f"{key}.{KIND}")
        return build(wanted, value, f"{key}.")
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{key} must be {' or '.join(map(repr, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        endless = arguments[-1] is Ellipsis
        if not isinstance(value, list | tuple) or (not endless and len(value) != len(arguments)):
            count = "a list" if endless else f"a list of {len(arguments)}"
            raise InputError(f"{key} must be {count}, each {_WORDS[arguments[0]]}, got {value!r}")
        return tuple(_convert(entry, arguments[0], key) for entry in value)
    if origin is types.UnionType:  # X | None: TOML has no null, so only the X can be written
        return None if value is None else _convert(value, arguments[0], key)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise InputError(f"{key} must be {_WORDS[wanted]}, got {value!r}")
    return value
