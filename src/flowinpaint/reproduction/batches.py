"""Frames filled by a network several at a time: a network that samples takes as long for one as for a few."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from flowinpaint import checks
from flowinpaint.api import load_model, to_batch
from flowinpaint.data.folder import Frame
from flowinpaint.errors import sentence_of
from flowinpaint.evaluation.records import Record, RunKey
from flowinpaint.evaluation.runner import Job, measure
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import confidence_of, expected_error
from flowinpaint.result import Result
from flowinpaint.viz.colours import Field

Loaded = tuple[RunKey, Frame]
KeepField = Callable[[RunKey, Field], None]


def run_batches(jobs: Sequence[Job], count: int, keep_field: KeepField | None = None) -> Iterator[Record]:
    """The records of jobs of one run each, up to `count` frames of one size to a call.

    All have the same network, parameters and device. The seconds of a run are its call's over the frames of the call.
    What a network draws at random depends on a frame's place in the call. keep_field: is given what a network that
    samples has made, since that takes long.
    """
    first = jobs[0].runs[0]
    try:
        model = load_model(first.method, first.device)
        if _compiled(model, torch.device(first.device)):
            model.compile_parts()
    except Exception as error:
        yield from (Record(job.runs[0], error=sentence_of(error)) for job in jobs)
        return
    waiting: dict[tuple[int, ...], list[Loaded]] = {}
    for job in jobs:
        (key,) = job.runs
        try:
            frame = job.sample.load(key.case, key.seed, key.crop)
        except Exception as error:
            yield Record(key, error=sentence_of(error))
            continue
        group = waiting.setdefault(frame.truth.shape, [])
        group.append((key, frame))
        if len(group) == count:
            yield from _run(model, waiting.pop(frame.truth.shape), count, keep_field)
    for group in waiting.values():
        yield from _run(model, group, count, keep_field)


def _run(model: Network, group: Sequence[Loaded], count: int, keep_field: KeepField | None) -> list[Record]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = _fill(model, group, count)
        except Exception as error:
            return [Record(key, error=sentence_of(error)) for key, _ in group]
    if keep_field is not None and model.samples:
        for (key, _), result in zip(group, results, strict=True):
            keep_field(key, result.flow)
    notes = list(dict.fromkeys(str(warning.message) for warning in caught))
    return [
        Record(key, measure(result, frame), notes=notes) for (key, frame), result in zip(group, results, strict=True)
    ]


@torch.inference_mode()
def _fill(model: Network, group: Sequence[Loaded], count: int) -> list[Result]:
    """What `inpaint` makes of each frame, in one call.

    A network that is compiled, and so anew for each number of frames, gets `count` of them: the last is repeated.
    """
    key = group[0][0]
    device, parameters = torch.device(key.device), dict[str, Any](key.parameters)
    frames = [frame for _, frame in group]
    if _compiled(model, device):
        frames += [frames[-1]] * (count - len(frames))
    start = time.perf_counter()
    images, flows, masks = (
        torch.cat([to_batch(x, device) for x in arrays])
        for arrays in zip(*(_arrays(frame) for frame in frames), strict=True)
    )
    field, log_error = model.complete(images, flows, masks, None, **parameters)
    filled = torch.where(masks > 0, flows, field.float())
    if not torch.isfinite(filled).all():
        raise ValueError("flow: the result is not finite everywhere.")
    dense = filled.movedim(1, -1).contiguous().cpu().numpy()
    errors = None if log_error is None else expected_error(log_error, flows, masks)
    confidences = None if errors is None else confidence_of(errors)
    told = [None if x is None else x[:, 0].cpu().numpy() for x in (confidences, errors)]
    seconds = (time.perf_counter() - start) / len(group)
    height, width = flows.shape[-2:]
    return [
        Result(
            flow=dense[i],
            confidence=None if told[0] is None else told[0][i],
            expected_error=None if told[1] is None else told[1][i],
            info={
                "method": key.method,
                "device": key.device,
                "seconds": seconds,
                "iterations": model.iterations(height, width, **parameters),
                "residual": None,
                "status": "complete",
            },
        )
        for i in range(len(group))
    ]


def _compiled(model: Network, device: torch.device) -> bool:
    return model.samples and device.type == "cuda"


def _arrays(frame: Frame) -> tuple[np.ndarray[Any, Any], ...]:
    """Image (H, W, 3) in [0, 1], mask (H, W, 1) and given field (H, W, C), 0 where nothing is given."""
    known = frame.mask[..., None]
    image = checks.check_image(frame.image, frame.mask.shape)
    return image, np.where(known, frame.truth, 0).astype(np.float32), known
