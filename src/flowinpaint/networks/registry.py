"""Registry of networks: the module, configuration and training objective of each kind.

A module registers itself with `register_model`. Each folder of `flowinpaint/baselines` is a kind and is imported when
that kind is first looked up, so a new baseline needs only its folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol, TypeVar

from flowinpaint import baselines
from flowinpaint.errors import InputError
from flowinpaint.networks.network import Network

N = TypeVar("N", bound=type[Network])

FLAGSHIP = "neuroexplicit"


class ModelConfig(Protocol):
    """The configuration of a network: a frozen dataclass whose field `kind` has the registered name as its default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __hash__(self) -> int: ...

    @property
    def kind(self) -> str:
        """The registered name."""

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters of `Network.complete` that a user may set, with their defaults."""


@dataclass(frozen=True)
class RegisteredModel:
    """The classes of one kind of network; objective: "package.module:Class", imported when training starts."""

    module: type[Network]
    config: type[Any]
    objective: str


_REGISTERED: dict[str, RegisteredModel] = {}


def register_model(kind: str, *, config: type[Any], objective: str) -> Callable[[N], N]:
    """Class decorator that registers a `Network` under the name that configurations and weights files give."""

    def register(module: N) -> N:
        _REGISTERED[kind] = RegisteredModel(module, config, objective)
        return module

    return register


def kinds() -> list[str]:
    """The known kinds: the flagship, the folders of `flowinpaint/baselines`, and all others that are registered."""
    folders = [module.name for module in pkgutil.iter_modules(baselines.__path__) if module.ispkg]
    return list(dict.fromkeys([FLAGSHIP, *folders, *_REGISTERED]))


def registered(kind: object, name: str = "kind") -> RegisteredModel:
    """The classes of a kind; InputError, which calls the argument by `name`, if it is unknown."""
    known = kinds()
    if not isinstance(kind, str) or kind not in known:
        raise InputError(f"{name} must be {' or '.join(map(repr, known))}, got {kind!r}")
    if kind not in _REGISTERED:
        package = FLAGSHIP + ".model" if kind == FLAGSHIP else f"baselines.{kind}.module"
        import_module(f"flowinpaint.{package}")
    return _REGISTERED[kind]


def config_class(kind: object = FLAGSHIP, name: str = "kind") -> type[Any]:
    """The configuration class of a kind."""
    return registered(kind, name).config


def build_network(config: ModelConfig) -> Network:
    """A network with new weights."""
    return registered(config.kind).module(config)
