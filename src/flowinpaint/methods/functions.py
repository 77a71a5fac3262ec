"""Methods from functions of the user: of tensors, of numpy arrays, or named "module:function" or "file.py:function"."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache, partial, update_wrapper
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from flowinpaint.errors import InputError
from flowinpaint.methods.method import Method

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

OwnFill = Callable[..., Any]
"""A function with the arguments of `method.Fill`, `progress` being optional, that returns a `Solution` or a tensor
(1, C, H, W); or a `NumpyMethod`."""

SIGNATURE = "(image, flow, mask, *, progress=None, **parameters)"


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


class NumpyMethod:
    """A function of numpy arrays as a method; `numpy_method` makes it. Called, it is the function itself."""

    def __init__(self, function: Callable[..., npt.NDArray[Any]]) -> None:
        if not callable(function):
            raise InputError(f"function must be a function, got {type(function).__name__}")
        self.function = function
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function with these arguments."""
        return self.function(*arguments, **keywords)


def numpy_method(function: Callable[..., npt.NDArray[Any]]) -> NumpyMethod:
    """Adapt a function of numpy arrays for `method=`, `register_method` and `--methods`; also as a decorator.

        @fi.numpy_method
        def mean(image, flow, mask, *, scale=1.0):
            return np.broadcast_to(scale * np.nanmean(flow, (0, 1)), flow.shape)

        fi.inpaint(image, flow, method=mean)

    function: `fill(image, flow, mask, **parameters)` of an image (H, W, 3) float32 in [0, 1], a field (H, W, C)
    float32, NaN where unknown, and a mask (H, W) bool, True where known. It returns the dense field (H, W, C), or
    (H, W) if C is 1. Its other arguments, which need defaults, are the method's parameters. If one is called
    `progress`, it gets None or a function that takes a `Progress`.
    """
    return NumpyMethod(function)


def name_of(function: OwnFill) -> str:
    """The name of a function; that of its class if it is an object."""
    while isinstance(function, partial | NumpyMethod):
        function = function.func if isinstance(function, partial) else function.function
    return str(getattr(function, "__name__", type(function).__name__))


def method_of(name: str, function: OwnFill, argument: str, **capabilities: Unpack[Capabilities]) -> Method:
    """The method of a user's function; InputError about `argument` if its signature does not fit."""
    if not callable(function) or isinstance(function, type):
        kind = "a class" if isinstance(function, type) else type(function).__name__
        raise InputError(f"{argument} must be a function, got {kind}")
    signature = _signature(function)
    takes_progress = _binds(signature, progress=None)
    if not takes_progress and not _binds(signature):
        raise InputError(
            f"{argument} must have the signature {SIGNATURE}, every parameter with a default, got {name_of(function)}"
            f"{signature}"
        )
    documented = None if isinstance(function, partial) else inspect.getdoc(function)
    capabilities.setdefault("summary", (documented or "").partition("\n")[0].rstrip("."))
    call = function
    if isinstance(function, NumpyMethod):
        call = partial(_on_arrays, name, function.function)
        capabilities["devices"] = ("cpu",)

    def fill(*tensors: Tensor, progress: Any = None, **keywords: Any) -> Any:
        return call(*tensors, **keywords, **({"progress": progress} if takes_progress else {}))

    fill.__signature__ = signature  # type: ignore[attr-defined]
    fill.__wrapped__ = function  # type: ignore[attr-defined]
    return Method(name, implementation=fill, own=True, **capabilities)


def load_function(text: str, argument: str) -> Any:
    """The object of "module:function" or "file.py:function"; InputError about `argument` if it cannot be loaded.

    As for `python -m`, modules of the current folder can be imported; next to a file also those of its folder.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise InputError(f'{argument} must be "module:function" or "file.py:function", got {text!r}')
    path = Path(place)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise InputError(f"{argument} {text!r}: there is no file {place}")
    try:
        if is_file:
            stamp = path.stat()
            module = _load_file(path.resolve(), (stamp.st_mtime_ns, stamp.st_size))
        else:
            _add_to_path(Path.cwd())
            module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and not is_file and f"{place}.".startswith(f"{error.name}."):
            raise InputError(
                f"{argument} {text!r}: there is no module {error.name!r} in the current folder or on PYTHONPATH"
            ) from error
        raise InputError(f"{argument} {text!r} cannot be imported: {told(error)}") from error
    except Exception as error:
        raise InputError(f"{argument} {text!r} cannot be imported: {told(error)}") from error
    except SystemExit as error:
        hint = f"it ends the program; put this part of {place} below: if __name__ == '__main__'"
        raise InputError(f"{argument} {text!r} cannot be imported: {hint}") from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [key for key, value in vars(module).items() if _is_own_function(value, module)]
            close = get_close_matches(name, own, n=1)
            has = f"it has {', '.join(own)}" if own else "it has no function of its own"
            hint = f"did you mean {close[0]!r}?" if close else has
            raise InputError(f"{argument} {text!r}: there is no {name!r} in {place}; {hint}")
        found = getattr(found, part)
    return found


def told(error: BaseException) -> str:
    """An error of the user's code in one line: type, message, and the place in the file."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_internal(frame.filename)]
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    if isinstance(error, SyntaxError) or not frames:  # the message of a syntax error has its place
        return text
    last = (own or frames)[-1]
    return f"{text} ({Path(last.filename).name}, line {last.lineno})"


def _is_internal(file: str) -> bool:
    """Whether a file belongs to this package, an installed one or Python itself."""
    parts = Path(file).parts
    ours = Path(file).is_relative_to(Path(__file__).parents[1])
    return ours or "site-packages" in parts or file.startswith("<") or Path(file).is_relative_to(_PYTHON)


_PYTHON = Path(inspect.__file__).parent


def _is_own_function(value: object, module: ModuleType) -> bool:
    return callable(value) and not isinstance(value, type) and getattr(value, "__module__", "") == module.__name__


@lru_cache
def _load_file(path: Path, _stamp: tuple[int, int]) -> ModuleType:
    """The module of a file, executed again only if it has changed."""
    _add_to_path(path.parent)
    # Not under the name of the file: test.py or random.py would hide other modules.
    spec = importlib.util.spec_from_file_location(f"_flowinpaint_method_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path and not (folder == Path.cwd() and "" in sys.path):
        sys.path.insert(0, str(folder))


def fingerprint(method: Method) -> str:
    """A hash of the files that name and define a user's function, or of its own text without a file; else "".

    Other files that the function uses do not count.
    """
    place, named, _ = method.name.rpartition(":")
    if not method.own and not named:
        return ""
    function: Any = inspect.unwrap(method.implementation) if callable(method.implementation) else None
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    modules = [sys.modules.get(name) for name in (place, getattr(function, "__module__", None) or "")]
    files = [place if place.endswith(".py") else "", *(getattr(module, "__file__", None) or "" for module in modules)]
    digest = hashlib.blake2b(digest_size=16)
    sources = [path.read_bytes() for path in dict.fromkeys(map(Path, filter(None, files))) if path.is_file()]
    if not sources:
        with suppress(OSError, TypeError):
            sources = [inspect.getsource(function).encode()]
    if not sources and (code := getattr(function, "__code__", None)) is not None:
        sources = [code.co_code, repr(code.co_consts).encode()]
    for source in sources:
        digest.update(source)
    return digest.hexdigest() if sources else ""


def _signature(function: Any) -> inspect.Signature:
    """The signature of a function, or of the `forward` of a network."""
    torch = sys.modules.get("torch")  # a network has imported it
    if torch is not None and isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        return inspect.signature(function)
    except ValueError as error:  # some functions of compiled modules
        raise InputError(f"{name_of(function)} must have a signature that Python can read; write a def") from error


def _binds(signature: inspect.Signature, **keywords: object) -> bool:
    try:
        signature.bind(None, None, None, **keywords)
    except TypeError:
        return False
    return True


def _on_arrays(
    name: str, function: Callable[..., Any], image: Tensor, flow: Tensor, mask: Tensor, **keywords: Any
) -> Tensor:
    """Call a function of numpy arrays on tensors."""
    import numpy as np
    import torch

    from flowinpaint.methods.returned import field_of

    known = mask[0, 0].numpy() > 0
    picture, given = (np.ascontiguousarray(np.moveaxis(x[0].numpy(), 0, -1)) for x in (image, flow))
    given[~known] = np.nan
    keywords = {k: v[0, 0].numpy() if isinstance(v, torch.Tensor) else v for k, v in keywords.items()}
    filled = field_of(name, function(picture, given, known, **keywords), given)
    return torch.from_numpy(filled).movedim(-1, 0)[None].contiguous()
