"""`Method`: everything the package knows about one way to fill a field."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from flowinpaint.errors import InputError
from flowinpaint.extras import is_installed, needs
from flowinpaint.progress import reporting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from flowinpaint.networks.registry import ModelConfig
    from flowinpaint.result import ProgressCallback, Solution

Fill = Callable[..., "Solution"]
"""`fill(image, flow, mask, *, progress=None, **parameters)` on tensors (1, 3, H, W), (1, C, H, W), (1, 1, H, W).

The image is in [0, 1], the flow 0 where unknown, the mask 1 where known and 0 elsewhere. The function of a `Method` may
also return a tensor (1, C, H, W).
"""

RESERVED = ("progress", "weight", "start")
"""Keywords of a fill function that are not parameters of the method."""

ARGUMENTS = (
    "noise",
    "confidence",
    "second",
    "fill_where",
    "image_where",
    "max_gap",
    "space",
    "bounds",
    "robust",
    "mask",
)
"""Arguments of `inpaint` that a misspelt keyword may have meant."""
_KINDS: tuple[tuple[type, str], ...] = ((bool, "True or False"), (str, "a string"), (Real, "a number"))
"""Types of parameters; one whose default is None is a number."""


@dataclass(frozen=True)
class Method:
    """A method of `inpaint`: how to run it, what it needs, and what it can do.

    name: the argument `method` of `inpaint`; for a network in a file, its path.
    summary: one line for `flowinpaint methods`.
    implementation: the fill function, or the configuration of a network, or its class for the default one;
        "module:name" is imported on first use.
    weights: the file of a network's weights; None for a method without a network.
    shipped: the weights are part of the package, and are compared with their checksum before use.
    extra: the optional extra of the package that it needs.
    trained_by: the network of `flowinpaint reproduce` that makes the weights, which are not part of the package.
    warm_up: a function, or its "module:name", that is called with the device before a fill, for example to compile.
    double: the fill function gets float64. Rounding to float32 keeps the residual of a steady-state solver at about
        2e-6, above its tolerance.
    devices: the device types it supports. Tensors on others are copied to the first of these, and the result back.
    channels: the only number of channels C it fills; None for any.
    gives_error: its solutions carry the expected error.
    needs_image: False if its result does not depend on the image.
    takes_weights: it takes the weight of each given vector (1, 1, H, W).
    baseline: it exists for comparison, and runs only when named.
    problem: the reason why a plug-in could not be loaded.
    own: it is a function of the user.
    """

    name: str
    summary: str
    implementation: str | Callable[..., Any] | ModelConfig
    weights: Path | None = None
    shipped: bool = False
    extra: str = ""
    trained_by: str = ""
    warm_up: str | Callable[[torch.device], object] = ""
    double: bool = False
    devices: tuple[str, ...] = ("cpu", "cuda")
    channels: int | None = None
    gives_error: bool = False
    needs_image: bool = True
    takes_weights: bool = False
    baseline: bool = False
    problem: str = ""
    own: bool = False

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The parameters a user may set by keyword, with their defaults."""
        if self.config is not None:
            return dict(self.config.parameters)
        named = list(inspect.signature(self._implementation).parameters.values())
        settable = [p for p in named[:3] if p.kind is p.KEYWORD_ONLY]
        settable += [p for p in named[3:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return {p.name: p.default for p in settable if p.name not in RESERVED}

    @property
    def config(self) -> ModelConfig | None:
        """The configuration of a network; None for a method without one."""
        found = self._implementation if self.is_network else None
        return found() if isinstance(found, type) else found

    @property
    def is_network(self) -> bool:
        """Whether this is a network, with or without available weights."""
        return self.weights is not None or bool(self.trained_by)

    def not_installed(self) -> str:
        """The clause "needs PACKAGE (COMMAND)" if the extra that it needs is not installed, otherwise ""."""
        return needs(self.extra) if self.extra and not is_installed(self.extra) else ""

    def why_not(self) -> str:
        """The reason, as a clause, why `inpaint` cannot run it here by its name; "" if it can."""
        if self.problem:
            return self.problem
        clauses = [self.not_installed()]
        if self.trained_by:
            clauses.append(
                f"has no weights here: 'flowinpaint reproduce networks --only {self.trained_by}' trains them in "
                f"minutes on a GPU; then pass the path reproduction/networks/{self.trained_by}/model.safetensors"
            )
        return " and ".join(filter(None, clauses))

    def check_parameters(self, given: Mapping[str, Any]) -> None:
        """Raise InputError unless every given parameter exists, and is a number or a string like its default.

        A parameter whose default is neither, as a function of the user may have, accepts any value.
        """
        if unknown := sorted(given.keys() - self.parameters.keys()):
            known = ", ".join(self.parameters) or "none"
            close = get_close_matches(unknown[0], [*ARGUMENTS, *self.parameters], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            if unknown[0] == "max_error":
                hint = "; call result.trusted(max_error)"
            if unknown[0] == "seed" and self.takes_weights:
                hint = "; seed needs robust, noise, confidence or second"
            raise InputError(f"{unknown[0]} must be a parameter of {self.name!r}, which has {known}{hint}")
        for name, value in given.items():
            default = self.parameters[name]
            if not isinstance(default, bool | str | Real | None):
                continue
            kind, wanted = next((k for k in _KINDS if isinstance(default, k[0])), _KINDS[-1])
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise InputError(f"{name} must be {wanted}, got {value!r}")

    def check_channels(self, channels: int) -> None:
        """Raise InputError unless it fills fields of this many channels."""
        if self.channels is not None and channels != self.channels:
            raise InputError(f"flow must have {self.channels} channels for {self.name}, got {channels}")

    def prepare(self, device: torch.device) -> Fill:
        """Load and compile the method for a device; return its fill function for tensors there."""
        if self.weights is not None:
            from flowinpaint.methods.neural import network_fill

            return reporting(network_fill(self, device))
        if self.warm_up:
            warm_up = resolve_name(self.warm_up) if isinstance(self.warm_up, str) else self.warm_up
            warm_up(device)
        return reporting(self._run)

    def fill(
        self,
        image: Tensor,
        flow: Tensor,
        mask: Tensor,
        *,
        weight: Tensor | None = None,
        progress: ProgressCallback | None = None,
        **parameters: Any,
    ) -> Solution:
        """Fill a field; the tensors are those of `Fill`, on any device.

        weight: (1, 1, H, W), the weight of each given vector; only for a method that `takes_weights`.
        """
        if weight is not None:
            if not self.takes_weights:
                raise InputError(f"weight must be None for {self.name}, which keeps given vectors exactly")
            parameters["weight"] = weight
        return self.prepare(flow.device)(image, flow, mask, progress=progress, **parameters)

    def _run(self, image: Tensor, flow: Tensor, mask: Tensor, **keywords: Any) -> Solution:
        """Call the fill function in the type and on the device it computes with, and check what it returns."""
        import torch

        from flowinpaint.methods.returned import check_filled, solution_of

        device = flow.device if flow.device.type in self.devices else self.devices[0]
        dtype = torch.float64 if self.double else flow.dtype
        # Copies, because a function of the user may write to them.
        tensors = (x.to(device, dtype, copy=True) for x in (image, flow, mask))
        for name, x in keywords.items():
            if name in ("weight", "start") and x is not None:
                keywords[name] = x.to(device).double() if self.double else x.to(device)
        solution = solution_of(self.name, self._implementation(*tensors, **keywords), flow)
        error = solution.expected_error
        if self.gives_error and error is None:
            raise InputError(f"method {self.name!r} must return the expected error that it declares, got None")
        error = None if error is None else error.detach().to(flow.device)
        u = solution.u.detach().to(flow.device)
        if self.own:
            check_filled(self.name, u, mask)
        return replace(solution, u=u, expected_error=error)

    @cached_property
    def _implementation(self) -> Any:
        if not isinstance(self.implementation, str):
            return self.implementation
        try:
            if ":" not in self.implementation:
                raise ValueError('it must be "module:name"')
            return resolve_name(self.implementation)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"method {self.name!r} cannot be loaded from {self.implementation}: {error}") from error
