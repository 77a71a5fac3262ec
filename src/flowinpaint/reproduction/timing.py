"""Parameters and inference times of the methods, measured once per machine and saved in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.config_parsing import build
from flowinpaint.errors import MissingFileError
from flowinpaint.io.text import checking_content, read_json
from flowinpaint.methods.registry import get_method
from flowinpaint.networks.registry import ModelConfig, build_network
from flowinpaint.speed.cases import inputs_at
from flowinpaint.speed.measure import repeat
from flowinpaint.speed.roofline import timed
from flowinpaint.text_tables import write_text

TIMES = "times.json"
_WARM_UP: dict[str, Any] = {"sampling_steps": 2, "resampling_steps": 1}
"""Parameters of the first call of a network that samples."""
_FEW, _MORE = 2, 6
"""Sampling steps of the two short calls from which the time of a long sampling is extrapolated."""
LONGEST = 120.0
"""Samplings of at most this many seconds are timed as a whole."""


@dataclass(frozen=True)
class InferenceTime:
    """Time of a call on one frame of size×size. model: a hash of configuration and parameters.

    share: the fraction of the call's iterations that were run; below 1 the time is extrapolated.
    """

    name: str
    model: str
    size: int
    density: float
    device: str
    machine: str
    torch: str
    version: str
    milliseconds: float = 0.0
    calls: int = 0
    share: float = 1.0

    @property
    def planned(self) -> InferenceTime:
        """The same measurement without its result."""
        return replace(self, milliseconds=0.0, calls=0, share=1.0)


@dataclass(frozen=True)
class _Times:
    """The content of a file of times."""

    times: list[InferenceTime]


@cache
def count_parameters(config: ModelConfig) -> int:
    """The number of learned parameters of a network."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_network(config).parameters())


def measure_time(
    planned: InferenceTime, method: ModelConfig | str, parameters: dict[str, Any], repeats: int
) -> InferenceTime:
    """Time calls whose input and output are tensors on the device. Weights are random, which does not affect the time.

    A network that samples is timed by one call, or by a part of it (`sampler_time`).
    """
    device = torch.device(planned.device)
    image, flow, mask = inputs_at(planned.size, planned.size, planned.density, seed=0).on(device)
    call: Callable[..., object]
    if isinstance(method, str):
        call = partial(get_method(method).fill, image, flow, mask)
    else:
        torch.manual_seed(0)
        with device:  # much faster for large networks
            model = build_network(method).to(device).eval()
        call = torch.inference_mode()(partial(model.complete, image, flow, mask, None))
    calls, share = 1, 1.0
    if isinstance(method, PDConfig):
        call(**_WARM_UP)
        iterations = partial(model.iterations, *image.shape[-2:])
        seconds, share = sampler_time(lambda **own: timed(partial(call, **own), device), iterations, parameters)
    else:
        timing = repeat(partial(call, **parameters), device, repeats)
        seconds, calls = timing.median, len(timing.samples)
    return replace(planned, milliseconds=1000 * seconds, calls=calls, share=share)


def sampler_time(
    seconds: Callable[..., float], iterations: Callable[..., int], parameters: dict[str, Any], longest: float = LONGEST
) -> tuple[float, float]:
    """The seconds of a sampling, and the fraction of its iterations that were run.

    If it would exceed `longest` seconds, the time is extrapolated from two short samplings: all iterations do the same
    work, so the time of a call is linear in their number. seconds, iterations: functions of a call's parameters.
    """
    few, more = ({**parameters, "sampling_steps": steps} for steps in (_FEW, _MORE))
    whole, run = iterations(**parameters), iterations(**few) + iterations(**more)
    if run < whole:
        first, second = seconds(**few), seconds(**more)
        each = (second - first) / (iterations(**more) - iterations(**few))
        extrapolated = second + each * (whole - iterations(**more))
        if extrapolated > longest:
            return extrapolated, run / whole
    return seconds(**parameters), 1.0


def read_times(path: Path) -> list[InferenceTime]:
    """The times in a reproduction's file."""
    if not path.is_file():
        raise MissingFileError(f"--times must be the {TIMES} of a reproduction, but {path} does not exist")
    with checking_content(f"--times must be the {TIMES} of a reproduction, got {path}"):
        return build(_Times, read_json(path)).times


def write_times(path: Path, times: Sequence[InferenceTime]) -> None:
    """Write a file for `read_times`, atomically."""
    write_text(path, json.dumps({"times": [asdict(time) for time in times]}, indent=1) + "\n")
