"""Diagnosis of steps that are not finite: repeats the batch in parts and checks each stage."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flowinpaint.training.step import TrainingStep

_NAMED = 3


class NotFiniteError(RuntimeError):
    """A run was stopped because its steps were no longer finite."""


def diagnose(training: TrainingStep, first: int) -> str:
    """The samples of the joint batch starting at `first` that are not finite, and the stage where this begins."""
    local = len(training.samples)
    batch = training.config.data.batch
    found: list[str] = []
    for start in range(first, first + batch, local):
        found += _faults(training, torch.arange(start, start + local, device=training.samples.device))
    where = f"Step {first // batch}, samples {first} to {first + batch - 1}"
    return f"{where}: {'; '.join(found) or 'the batch alone is finite when repeated'}"


def _faults(training: TrainingStep, samples: Tensor) -> list[str]:
    """The first stage that is not finite for these samples."""
    batch = training.source.again(samples)
    task = training.task_of(samples, batch)
    inputs = (*batch, task.mask, task.given)
    for name, x in zip(("image", "flow", "valid", "mask", "given vectors"), inputs, strict=True):
        if bad := _bad_samples(samples, x):
            return [f"the input {name} is not finite in sample {bad}"]
    for parameter in training.parameters.values():
        parameter.grad = None
    if bad_weights := [name for name, p in training.parameters.items() if not torch.isfinite(p).all()]:
        return [f"the weights {_some(bad_weights)} are not finite"]
    output = training.predict(task, alone=True)
    prediction = _finest(output)
    if bad := _bad_samples(samples, prediction):
        return [f"the prediction is not finite in sample {bad}"]
    loss = training.objective.loss(output, task)
    if not torch.isfinite(loss):
        return [f"the loss is {loss.item()}, from a prediction up to {prediction.abs().max().item():.1e}"]
    loss.backward()  # type: ignore[no-untyped-call]
    grads = {name: p.grad for name, p in training.parameters.items() if p.grad is not None}
    if bad_grads := [name for name, grad in grads.items() if not torch.isfinite(grad).all()]:
        return [f"the gradients of {_some(bad_grads)} are not finite, while the loss is {loss.item():.3g}"]
    return []


def _finest(output: Any) -> Tensor:
    """The field in a network's output for a task, or the loss if the output is that."""
    field: Tensor = output if isinstance(output, Tensor) else output[0]
    return field


def _bad_samples(samples: Tensor, x: Tensor) -> str:
    if x.ndim == 0:
        return "" if torch.isfinite(x) else _some([str(n) for n in samples.tolist()])
    finite = torch.isfinite(x).flatten(1).all(1)
    return _some([str(n) for n in samples[~finite].tolist()])


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
