"""The registry of methods: those of the package, those registered by a program, and those of installed packages.

An installed package adds a method through the entry-point group `flowinpaint.methods`:

    [project.entry-points."flowinpaint.methods"]
    mine = "my_package.module:fill"     # a fill function, or a `Method`

Its module is imported only when the method is used or all methods are listed. A method that cannot be imported is
listed as unavailable, and raises an error when it is used.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack, overload

from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.methods.method import Fill, Method

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "flowinpaint.methods"
WEIGHTS_SUFFIX = ".safetensors"
METHODS = dict(BUILTIN)
"""The methods of the package and those that `register_method` added, by name."""

AnyFill = TypeVar("AnyFill", bound=Fill)


def all_methods() -> list[Method]:
    """All methods, including those that cannot be used here (`Method.why_not`)."""
    plugins = (_plugin_method(point) for name, point in _plugins().items() if name not in METHODS)
    return [*METHODS.values(), *plugins]


def methods() -> list[str]:
    """The names that `inpaint` accepts: the methods that can be used here."""
    return [method.name for method in all_methods() if not method.why_not()]


def usual_methods() -> list[str]:
    """Those of `methods()` that are meant for use: all but the paper's neural baselines."""
    return [method.name for method in all_methods() if not (method.baseline or method.why_not())]


def find_method(name: str) -> Method | None:
    """The method with this name, even if it cannot be used here; None if there is none."""
    if name in METHODS:
        return METHODS[name]
    point = _plugins().get(name)
    return None if point is None else _plugin_method(point)


def get_method(name_or_path: str | Path, argument: str = "method") -> Method:
    """The method of a name, or of a .safetensors file with a network's weights.

    Raises an InputError about `argument` if there is no such method or it cannot be used here.
    """
    is_path = isinstance(name_or_path, Path) or str(name_or_path).endswith(WEIGHTS_SUFFIX)
    if is_path:
        from flowinpaint.methods.neural import file_method

        return file_method(Path(name_or_path), str(name_or_path))
    if not isinstance(name_or_path, str):
        kind = type(name_or_path).__name__
        raise InputError(f"{argument} must be a name or the path of a {WEIGHTS_SUFFIX} file, got {kind}")
    found = find_method(name_or_path)
    if found is None:
        names = [*METHODS, *_plugins()]
        close = get_close_matches(name_or_path.lower(), names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"{argument} must be one of {', '.join(names)}, or the path of a {WEIGHTS_SUFFIX} file, "
            f"got {name_or_path!r}{hint}"
        )
    if reason := found.why_not():
        raise InputError(f"{argument} {name_or_path!r} cannot be used: it {reason}")
    return found


class Capabilities(TypedDict, total=False):
    """The fields of `Method` that `register_method` accepts."""

    summary: str
    double: bool
    devices: tuple[str, ...]
    channels: int | None
    gives_error: bool
    needs_image: bool
    takes_weights: bool
    baseline: bool


@overload
def register_method(
    name: str, function: None = None, **capabilities: Unpack[Capabilities]
) -> Callable[[AnyFill], AnyFill]: ...


@overload
def register_method(name: str, function: AnyFill, **capabilities: Unpack[Capabilities]) -> AnyFill: ...


def register_method(
    name: str, function: AnyFill | None = None, **capabilities: Unpack[Capabilities]
) -> AnyFill | Callable[[AnyFill], AnyFill]:
    """Add a method to `inpaint`, the command line and the benchmark, in this process; also as a decorator.

        @fi.register_method("mean", summary="the mean of the known vectors")
        def mean(image, flow, mask, *, scale=1.0, progress=None):
            mean = (flow * mask).sum((2, 3), keepdim=True) / mask.sum()
            return fi.Solution(scale * mean.expand_as(flow))

    function: `fill(image, flow, mask, *, progress=None, **parameters) -> Solution` on tensors (1, 3, H, W) in [0, 1],
    (1, C, H, W) and (1, 1, H, W). Its keyword-only arguments, which need defaults, are the method's parameters.
    capabilities: fields of `Method`. The summary is by default the first line of the function's docstring.
    """
    if function is None:
        return lambda fill: register_method(name, fill, **capabilities)
    if name in BUILTIN or not name or name.endswith(WEIGHTS_SUFFIX) or set(name) & set(", \t\n"):
        raise InputError(f"name must be new, without commas and spaces, got {name!r}")
    METHODS[name] = _method_of(name, function, "function", **capabilities)
    return function


@cache
def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow, and not needed for `flowinpaint --version`

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    for name in sorted(points.keys() & BUILTIN.keys()):
        warnings.warn(f"entry point {name!r} of {ENTRY_POINTS} must have a new name; it is ignored", stacklevel=2)
    return points


@cache
def _plugin_method(point: EntryPoint) -> Method:
    """The method of an entry point; one with a `problem` if loading it raises any exception."""
    try:
        found = point.load()
        if isinstance(found, Method):
            return replace(found, name=point.name)
        return _method_of(point.name, found, point.value)
    except Exception as error:
        problem = f"comes from the entry point {point.value}, which failed with {type(error).__name__}: {error}"
        return Method(point.name, "", point.value, problem=problem)


def _method_of(name: str, function: Fill, argument: str, **capabilities: Unpack[Capabilities]) -> Method:
    """The method of a fill function; InputError about `argument` if its signature is not that of `Fill`."""
    if not callable(function):
        raise InputError(f"{argument} must be a function, got {type(function).__name__}")
    signature = inspect.signature(function)
    try:
        signature.bind(None, None, None, progress=None)
    except TypeError as error:
        raise InputError(
            f"{argument} must have the signature (image, flow, mask, *, progress=None, **parameters), every parameter "
            f"with a default, got {signature}"
        ) from error
    capabilities.setdefault("summary", (inspect.getdoc(function) or "").partition("\n")[0].rstrip("."))
    return Method(name, implementation=function, **capabilities)
