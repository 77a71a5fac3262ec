"""Parameters and inference times of the networks, measured once on a machine and kept in a file."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.data.folder import stable_seed
from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.evaluation.speed import Timing, repeat
from flowinpaint.evaluation.speed_cells import given_at
from flowinpaint.evaluation.speed_floor import timed
from flowinpaint.io import atomic_path
from flowinpaint.methods.registry import get_method
from flowinpaint.networks.registry import ModelConfig, build_network
from flowinpaint.reproduction.networks import device_name
from flowinpaint.version import __version__

TIMES = "times.json"
_SHORT = {"sampling_steps": 2, "resampling_steps": 1}
"""Of a network that samples, for the call that only warms up."""
_FEW, _MORE = 2, 6
"""Sampling steps of the two calls by which a long sampling is timed."""
LONGEST = 120.0
"""Seconds of a sampling that is timed as a whole."""


@dataclass(frozen=True)
class InferenceTime:
    """How long a network takes for one frame of size×size; `model` is a hash of its configuration and parameters.

    share: of a call's iterations that were run for it; below 1 the time of the others is reckoned from theirs.
    """

    name: str
    model: str
    size: int
    density: float
    device: str
    machine: str
    torch: str
    version: str
    milliseconds: float
    calls: int
    share: float = 1.0

    def is_of(self, other: InferenceTime) -> bool:
        """Whether both are of the same measurement, whatever came out."""
        return _key(self) == _key(other)


def count_parameters(config: ModelConfig) -> int:
    """The learned numbers of a network."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_network(config).parameters())


def described(
    name: str,
    method: ModelConfig | str,
    parameters: dict[str, float | str],
    size: int,
    density: float,
    device: torch.device,
) -> InferenceTime:
    """A measurement that is still to be made, of a network or of a method without one."""
    model = f"{stable_seed(str(method), str(sorted(parameters.items()))):016x}"
    about = (str(device), device_name(device), torch.__version__, __version__)
    return InferenceTime(name, model, size, density, *about, milliseconds=float("nan"), calls=0)


class CallTime(NamedTuple):
    """Seconds of a call, a median of so many, and the share of its iterations that were run."""

    seconds: float
    calls: int
    share: float = 1.0


def measure_time(
    method: ModelConfig | str,
    parameters: dict[str, float | str],
    size: int,
    density: float,
    device: torch.device,
    repeats: int,
) -> CallTime:
    """Time calls with tensors on the device in and out; weights do not matter, and are new ones.

    A network that samples takes thousands of evaluations to a call, so one call is timed, and if it would take longer
    than LONGEST, a part of it (`sampler_time`).
    """
    image, flow, mask = given_at(size, size, density, seed=0).on(device)
    values: dict[str, Any] = dict(parameters)
    if isinstance(method, str):
        return _median(repeat(partial(get_method(method).fill, image, flow, mask, **values), device, repeats))
    try:
        return _network_time(method, (image, flow, mask), values, repeats)
    finally:
        gc.collect()


def _network_time(
    config: ModelConfig, inputs: tuple[Tensor, Tensor, Tensor], values: dict[str, Any], repeats: int
) -> CallTime:
    """Time a network on image, mask and field (1, ·, H, W)."""
    torch.manual_seed(0)
    device = inputs[0].device
    with device:  # where a large one is made much faster
        model = build_network(config).to(device).eval()
    complete = torch.inference_mode()(partial(model.complete, *inputs, None))
    if not isinstance(config, PDConfig):
        return _median(repeat(partial(complete, **values), device, repeats))
    complete(**_SHORT)
    iterations = partial(model.iterations, *inputs[0].shape[-2:])
    return sampler_time(lambda **own: timed(partial(complete, **own), device), iterations, values)


def sampler_time(
    seconds: Callable[..., float], iterations: Callable[..., int], values: dict[str, Any], longest: float = LONGEST
) -> CallTime:
    """The time of a sampling with these parameters: of one call, or reckoned from two with few sampling steps.

    seconds, iterations: of a call with parameters. All iterations do the same work, so a call takes a time for each of
    them and a time for itself, which two calls tell.
    """
    few, more = ({**values, "sampling_steps": steps} for steps in (_FEW, _MORE))
    whole, run = iterations(**values), iterations(**few) + iterations(**more)
    if run < whole:
        first, second = seconds(**few), seconds(**more)
        each = (second - first) / (iterations(**more) - iterations(**few))
        reckoned = second + each * (whole - iterations(**more))
        if reckoned > longest:
            return CallTime(reckoned, 1, run / whole)
    return CallTime(seconds(**values), 1)


def read_times(path: Path) -> list[InferenceTime]:
    """The times in a file that a reproduction has left, here or on another machine."""
    if not path.is_file():
        raise MissingFileError(f"--times: {path}: there is no such file; the {TIMES} of a reproduction is taken.")
    try:
        return [InferenceTime(**values) for values in json.loads(path.read_text(encoding="utf-8"))["times"]]
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"--times: {path}: is not what a reproduction writes.") from error


def write_times(path: Path, times: Sequence[InferenceTime]) -> None:
    """Write a file that `read_times` takes, whole or not at all."""
    with atomic_path(path) as temporary:
        text = json.dumps({"times": [asdict(time) for time in times]}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")


def _key(time: InferenceTime) -> tuple[Any, ...]:
    return tuple(value for name, value in asdict(time).items() if name not in ("milliseconds", "calls", "share"))


def _median(timing: Timing) -> CallTime:
    return CallTime(timing.median, len(timing.samples))
