"""Selection of the backend that runs a model: by device, types and gradient."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor, nn

from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.networks.network import versions_of
from flowinpaint.neuroexplicit.backends.pytorch import TorchBackend

if TYPE_CHECKING:
    from flowinpaint.networks.output import Filled
    from flowinpaint.neuroexplicit.model import Neuroexplicit
    from flowinpaint.result import ProgressCallback

Kind = Literal["cpu", "cuda", "cuda_training"]


class PackedEngine(Protocol):
    """A backend of one model that keeps the weights in its own layout."""

    def __call__(
        self, image: Tensor, data: DataTerm, start: Tensor | None = None, progress: ProgressCallback | None = None
    ) -> Filled:
        """Fill the fields of images (B, 3, H, W)."""

    def repack(self) -> None:
        """Read the weights again after their values have changed in place."""


class Backends:
    """The backends of one model: built on first use, and rebuilt when the weights move in memory."""

    def __init__(self) -> None:
        self._engines: dict[Kind, PackedEngine] = {}
        self._places: list[int] = []
        self._versions: dict[Kind, list[int] | None] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Backends], tuple[()]]:
        # Backends cannot be copied, since some hold recorded graphs; a copy of the model builds its own.
        return Backends, ()

    def select(self, model: Neuroexplicit, image: Tensor, data: DataTerm) -> Callable[..., Filled]:
        """The fastest backend for these inputs; PyTorch's accepts all."""
        weights = _plain_weights(model)
        if weights is not None and (kind := _kind_of(model, image, data, weights)) is not None:
            packed = self._packed(kind, weights, model, data.f.device)
            if packed is not None:
                return packed
        return TorchBackend(model)

    def _packed(
        self, kind: Kind, weights: list[nn.Parameter], model: Neuroexplicit, device: torch.device
    ) -> PackedEngine | None:
        """The backend of a kind with the current weights; None if it cannot be built for them."""
        places, versions = [p.data_ptr() for p in weights], versions_of(weights)
        with self._lock:
            if places != self._places:
                self._engines, self._places = {}, places
            if kind not in self._engines:
                if any(p.dtype != torch.float32 or p.device != device for p in weights):
                    return None
                engine = _build(kind, model)
                if engine is None:
                    return None
                self._engines[kind] = engine
            elif versions is None or versions != self._versions[kind]:
                with torch.inference_mode(False), torch.no_grad():
                    self._engines[kind].repack()
            self._versions[kind] = versions
            return self._engines[kind]


def _plain_weights(model: Neuroexplicit) -> list[nn.Parameter] | None:
    """The model's weights, or None if a layer was modified, for example by a parametrization.

    A fill takes well under a millisecond on a GPU, and walking through all modules would be a good part of that.
    """
    weights = [model.lam]
    for layer in model.dtm._modules.values():
        assert layer is not None
        own = layer._parameters
        weight, bias = own.get("weight"), own.get("bias")
        if len(own) != 2 or layer._modules or weight is None or bias is None:
            return None
        weights += [weight, bias]
    return weights


def _kind_of(model: Neuroexplicit, image: Tensor, data: DataTerm, weights: list[nn.Parameter]) -> Kind | None:
    """The kind of packed backend for these inputs, or None."""
    f = data.f
    traced = torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]
    if f.dtype != torch.float32 or model.config.learn_kernels or traced or (f.is_cuda and data.weight is not None):
        return None
    if torch.is_grad_enabled():
        if any(x is not None and x.requires_grad for x in (image, f, data.weight)):
            return None
        if any(p.requires_grad for p in weights):
            in_half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
            return "cuda_training" if f.is_cuda and in_half else None
    if f.is_cuda:
        return "cuda"
    return "cpu" if f.device.type == "cpu" else None


def _build(kind: Kind, model: Neuroexplicit) -> PackedEngine | None:
    """A new backend; None if a package that it needs is missing."""
    # A backend's tensors are used after this call, so they must not be inference tensors or need gradients.
    with torch.inference_mode(False), torch.no_grad():
        try:
            if kind == "cpu":
                return _module("cpu").CpuBackend(model)  # type: ignore[no-any-return]
            if kind == "cuda":
                return _module("recorded").RecordedBackend(_module("cuda").CudaBackend(model))  # type: ignore[no-any-return]
            return _module("cuda_training").CudaTrainingBackend(model)  # type: ignore[no-any-return]
        except ModuleNotFoundError as error:
            if error.name != "triton":  # it comes with PyTorch on Linux only
                raise
    return None


def _module(name: str) -> Any:
    return import_module(f"flowinpaint.neuroexplicit.backends.{name}")
