"""Conversion of TOML and JSON tables to dataclasses, and checks of their fields, with errors that name the key."""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from flowinpaint.errors import InputError, shown

T = TypeVar("T")

KIND = "kind"
"""The key of a table that selects its dataclass, for fields annotated as `Annotated[..., find]`.

find(kind, name=...) is the class, or raises an InputError that starts with the name; find(name=...) is the default.
"""
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text in quotes"}
_LARGEST = int(sys.float_info.max)


def build(cls: type[T], table: Any, path: str = "") -> T:
    """A dataclass from a table of its fields; InputError names the key, what is accepted and the value.

    Safe for tables from anywhere: values of any type and size end in an InputError.
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{path.rstrip('.') or 'the content'} must be a table of keys, got {shown(table)}")
    types_of, required = _fields_of(cls)  # type: ignore[arg-type]
    for key in table:
        if key not in types_of:
            near = difflib.get_close_matches(key, types_of, 1) if isinstance(key, str) and len(key) < 100 else []
            known = ", ".join(types_of)
            hint = f"did you mean {path}{near[0]}?" if near else f"known keys are {known}"
            name = key[:100] if isinstance(key, str) else shown(key)
            raise InputError(f"{path}{name}: there is no such key; {hint}")
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{path}{missing[0]} must be set; required keys are {', '.join(required)}")
    values = {key: convert(value, types_of[key], path + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{path}{error}") from error


@cache
def _fields_of(cls: type[Any]) -> tuple[dict[str, Any], list[str]]:
    """The types of the fields of a dataclass, and the names of those without a default."""
    hints, unset = get_type_hints(cls, include_extras=True), dataclasses.MISSING
    fields = [field for field in dataclasses.fields(cls) if field.init]
    required = [f.name for f in fields if f.default is unset and f.default_factory is unset]
    return {field.name: hints[field.name] for field in fields}, required


def check_types(config: Any) -> None:
    """Raise InputError unless the fields of a dataclass have the types of their annotations."""
    for name, wanted in get_type_hints(type(config), include_extras=True).items():
        convert(getattr(config, name), wanted, name)


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


def convert(value: Any, wanted: Any, key: str) -> Any:
    """A value of JSON or TOML as a type of Python, such as dict[str, float]; InputError names the key.

    Numbers must be finite and integers must fit 64 bits.
    """
    if wanted in _WORDS:
        return _scalar(value, wanted, key)
    form, detail = _form_of(wanted)
    if form == "either":
        return None if value is None and detail[0] else _one_of(value, detail[1], key)
    if form == "text":
        if not isinstance(value, str) or value not in detail:
            raise InputError(f"{key} must be {' or '.join(map(repr, detail))}, got {shown(value)}")
        return value
    if form == "table":
        if isinstance(detail, type) and isinstance(value, detail):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"{key} must be a table [{key}], got {shown(value)}")
        if not isinstance(detail, type):
            kind = [value[KIND]] if KIND in value else []
            detail = detail(*kind, name=f"{key}.{KIND}")
        return build(detail, value, f"{key}.")
    if form == "dict":
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise InputError(f"{key} must be a table of keys, got {shown(value)}")
        return {name: convert(entry, detail, f"{key}.{name[:100]}") for name, entry in value.items()}
    if form == "list":
        kind, part, length = detail
        return _list(value, kind, part, length, key)
    return value if form == "any" else convert(value, detail, key)


@cache
def _form_of(wanted: Any) -> tuple[str, Any]:
    """How `convert` treats a type, and its parts."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return "any", None
    if origin is Annotated:  # a function that finds the class, or a limit, which the dataclass checks
        return ("table", arguments[1]) if callable(arguments[1]) else ("same", arguments[0])
    if dataclasses.is_dataclass(wanted):
        return "table", wanted
    if origin is Literal:
        return "text", arguments
    if origin in (types.UnionType, Union):
        if all(get_origin(part) is Literal for part in arguments):
            return "text", tuple(text for part in arguments for text in get_args(part))
        return "either", (types.NoneType in arguments, [part for part in arguments if part is not types.NoneType])
    if origin is dict:
        return "dict", arguments[1]
    return "list", (origin, arguments[0], None if origin is list or arguments[-1] is Ellipsis else len(arguments))


def _list(value: Any, kind: Callable[[Any], Any], part: Any, length: int | None, key: str) -> Any:
    """A list or tuple whose entries have one type; length: None for any."""
    if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
        count = "a list" if length is None else f"a list of {length}"
        raise InputError(f"{key} must be {count}, each {_WORDS.get(part, 'a table')}, got {shown(value)}")
    if part is float and set(map(type, value)) == {float} and isfinite(sum(value)):  # fast, for curves in records
        return kind(value)
    return kind([convert(entry, part, key) for entry in value])


def _scalar(value: Any, wanted: type[Any], key: str) -> Any:
    kind = type(value)
    if wanted is float and kind is int and -_LARGEST <= value <= _LARGEST:
        return float(value)
    if kind is not wanted:
        raise InputError(f"{key} must be {_WORDS[wanted]}, got {shown(value)}")
    if kind is float and not isfinite(value):
        raise InputError(f"{key} must be a finite number, got {value}")
    if kind is int and not -(2**63) <= value < 2**63:
        raise InputError(f"{key} must be an integer of at most 64 bits, got {shown(value)}")
    return value


def _one_of(value: Any, kinds: Sequence[Any], key: str) -> Any:
    """A value of the type X of X | None; of float | str, for parameters, unchanged (an integer stays one)."""
    if len(kinds) == 1:
        return convert(value, kinds[0], key)
    if type(value) is str and str in kinds:
        return value
    return _scalar(value, int if type(value) is int else float, key)
