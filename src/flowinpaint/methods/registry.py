"""The registry of methods: those of the package, those registered by a program, and those of installed packages.

`get_method` also accepts a function itself, and "module:function" or "file.py:function".

An installed package adds a method through the entry-point group `flowinpaint.methods`:

    [project.entry-points."flowinpaint.methods"]
    mine = "my_package.module:fill"     # a fill function, or a `Method`

Its module is imported only when the method is used or all methods are listed. A method that cannot be imported is
listed as unavailable, and raises an error when it is used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack, overload

from flowinpaint.errors import InputError
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.methods.functions import Capabilities, OwnFill, load_function, method_of, name_of
from flowinpaint.methods.method import Method

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "flowinpaint.methods"
WEIGHTS_SUFFIX = ".safetensors"
METHODS = dict(BUILTIN)
"""The methods of the package and those that `register_method` added, by name."""

AnyFill = TypeVar("AnyFill", bound=OwnFill)


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


def get_method(name_or_path: str | Path | OwnFill, argument: str = "method") -> Method:
    """The method of a name, of a .safetensors file with a network's weights, or of a function.

    A function is itself, or "module:function" or "file.py:function".
    Raises an InputError about `argument` if there is no such method or it cannot be used here.
    """
    is_file = isinstance(name_or_path, str) and name_or_path.endswith(WEIGHTS_SUFFIX)
    if is_file or isinstance(name_or_path, Path):
        from flowinpaint.methods.neural import file_method

        return file_method(Path(str(name_or_path)), str(name_or_path))
    if not isinstance(name_or_path, str):
        if callable(name_or_path) and not isinstance(name_or_path, type):
            return method_of(name_of(name_or_path), name_or_path, argument)
        kind = f"the class {name_or_path.__name__}" if isinstance(name_or_path, type) else type(name_or_path).__name__
        raise InputError(f"{argument} must be a name, the path of a {WEIGHTS_SUFFIX} file or a function, got {kind}")
    found = find_method(name_or_path)
    if found is None and ":" in name_or_path:
        return _loaded_method(name_or_path, argument)
    if found is None:
        names = [*METHODS, *_plugins()]
        close = _closest(name_or_path, names)
        hint = f"; did you mean {close!r}?" if close else ""
        file = name_or_path if name_or_path.endswith(".py") else f"{name_or_path}.py"
        if file == name_or_path or Path(file).is_file():
            hint = f"; name a function in the file: {file}:function"
        raise InputError(
            f"{argument} must be one of {', '.join(names)}, the path of a {WEIGHTS_SUFFIX} file, or module:function, "
            f"got {name_or_path!r}{hint}"
        )
    if reason := found.why_not():
        raise InputError(f"{argument} {name_or_path!r} cannot be used: it {reason}")
    return found


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
    (1, C, H, W), 0 where unknown, and (1, 1, H, W), 1 where known. It may also return just a tensor (1, C, H, W). Its
    other arguments, which need defaults, are the method's parameters; `progress` may be missing. For a function of
    numpy arrays, see `numpy_method`.
    capabilities: fields of `Method`. The summary is by default the first line of the function's docstring.
    """
    if function is None:
        return lambda fill: register_method(name, fill, **capabilities)
    if name in BUILTIN or not name or name.endswith(WEIGHTS_SUFFIX) or set(name) & set(",: \t\n"):
        raise InputError(f"name must be new, without commas, colons and spaces, got {name!r}")
    METHODS[name] = method_of(name, function, "function", **capabilities)
    return function


@cache
def _plugins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow, and not needed for `flowinpaint --version`

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    for name in sorted(points.keys() & BUILTIN.keys()):
        warnings.warn(
            f"Ignored entry point {name!r} of {ENTRY_POINTS}, because a built-in method has this name.", stacklevel=2
        )
    return points


@cache
def _plugin_method(point: EntryPoint) -> Method:
    """The method of an entry point; one with a `problem` if loading it raises any exception."""
    try:
        found = point.load()
        if isinstance(found, Method):
            return replace(found, name=point.name)
        return method_of(point.name, found, point.value)
    except Exception as error:
        problem = f"comes from the entry point {point.value}, which failed with {type(error).__name__}: {error}"
        return Method(point.name, "", point.value, problem=problem)


def _loaded_method(text: str, argument: str) -> Method:
    """The method of "module:function", with its capabilities if the module registers it or it is a `Method`."""
    found = load_function(text, argument)
    if isinstance(found, Method):
        return replace(found, name=text)
    for method in METHODS.values():
        if getattr(method.implementation, "__wrapped__", None) is found:
            return replace(method, name=text)
    return method_of(text, found, f"{argument} {text!r}")


def _closest(name: str, names: Sequence[str]) -> str | None:
    """The method that a misspelled or abbreviated name probably means."""
    plain = {re.sub("[^a-z0-9]", "", known.lower()): known for known in reversed(names)}
    asked = re.sub("[^a-z0-9]", "", name.lower())
    if len(asked) > 1:
        initials = {"".join(part[0] for part in known.split("-") if part): known for known in names if "-" in known}
        tests = (
            lambda known: known == asked,
            lambda known: known.startswith(asked),
            lambda known: asked.startswith(known),
            lambda known: asked in known,
        )
        for test in tests:
            if fits := [known for key, known in plain.items() if test(key)]:
                return min(fits, key=len)
        if asked in initials:
            return initials[asked]
    close = get_close_matches(asked, plain, n=1)
    return plain[close[0]] if close else None
