"""Which fast way a model takes, if any: one of the device's for inference, or one of CUDA's for training."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

from flowinpaint.networks.network import versions_of

if TYPE_CHECKING:
    from flowinpaint.networks.output import Filled
    from flowinpaint.neuroexplicit.model import Neuroexplicit

Way = Literal["cpu.CpuInference", "cuda.CudaInference", "cuda_training.CudaTraining"]


class Engine(Protocol):
    """A model laid out for one device."""

    def __call__(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
        """What the model's `fill` takes and returns, float32."""

    def repack(self) -> None:
        """Take the model's weights again: they lie where they lay, with other values."""


class Engines:
    """The engines of one model: built when they are first wanted, and anew when the weights have moved."""

    def __init__(self) -> None:
        self._engines: dict[Way, Engine] = {}
        self._places: list[int] = []
        self._versions: dict[Way, list[int] | None] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Engines], tuple[()]]:
        # What an engine holds, recorded graphs among it, cannot be copied; a copy of the model builds its own.
        return Engines, ()

    def engine_for(self, model: Neuroexplicit, image: Tensor, flow: Tensor) -> Engine | None:
        """The engine that takes these inputs, or None: then the model's own `forward` is the way."""
        if flow.dtype != torch.float32 or model.config.learn_kernels or _is_traced():
            return None
        weights = _weights_of(model)
        if weights is None or (way := _way(image, flow, weights)) is None:
            return None
        places, versions = [p.data_ptr() for p in weights], versions_of(weights)
        with self._lock:
            if places != self._places:
                self._engines, self._places = {}, places
            if way not in self._engines:
                if any(p.dtype != torch.float32 or p.device != flow.device for p in weights):
                    return None
                engine = _build(way, model)
                if engine is None:
                    return None
                self._engines[way] = engine
            elif versions is None or versions != self._versions[way]:
                with torch.inference_mode(False), torch.no_grad():
                    self._engines[way].repack()
            self._versions[way] = versions
            return self._engines[way]


def _weights_of(model: Neuroexplicit) -> list[nn.Parameter] | None:
    """The model's weights, or None where a layer is not as it was made, as under a parametrization.

    A call takes well under a millisecond, of which walking through all modules would be a good part.
    """
    weights = [model.lam]
    for layer in model.dtm._modules.values():
        assert layer is not None
        own = layer._parameters
        if (
            len(own) != 2
            or layer._modules
            or (weight := own.get("weight")) is None
            or (bias := own.get("bias")) is None
        ):
            return None
        weights += [weight, bias]
    return weights


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


def _way(image: Tensor, flow: Tensor, weights: list[nn.Parameter]) -> Way | None:
    if torch.is_grad_enabled():
        if image.requires_grad or flow.requires_grad:
            return None
        if any(p.requires_grad for p in weights):
            in_half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
            return "cuda_training.CudaTraining" if flow.is_cuda and in_half else None
    if flow.is_cuda:
        return "cuda.CudaInference"
    return "cpu.CpuInference" if flow.device.type == "cpu" else None


def _build(way: Way, model: Neuroexplicit) -> Engine | None:
    module, name = way.split(".")
    try:
        kind = getattr(import_module(f"flowinpaint.neuroexplicit.backends.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # it comes with PyTorch on Linux only
            raise
        return None
    # What an engine keeps must outlive the mode of the call that it was built in.
    with torch.inference_mode(False), torch.no_grad():
        engine: Engine = kind(model)
    return engine
