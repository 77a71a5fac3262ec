"""Train the assessor: generate examples in processes, then fit both networks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from safetensors.torch import save
from torch import Tensor

from flowinpaint.data.bank import read_bank
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.data.generator.render import LayeredFlow
from flowinpaint.io.files import write_bytes
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.registry import get_method
from flowinpaint.robust.assessor import Assessor, PointNetwork
from flowinpaint.robust.cross_fit import FillField
from flowinpaint.robust.training.examples import SIZE, Examples, examples_of_scene, join
from flowinpaint.robust.training.losses import alone_loss, verdict_loss

METHODS = (DEFAULT_METHOD, "laplace-beltrami", "harmonic")
"""Methods that cross-fit the scenes: usually the first, sometimes another."""
_OTHER_EVERY = 8
SCENES = LayeredConfig(magnitude=8.0, magnitude_spread=1.0, driving=0.35)
"""The scenes have faster motion than those that train the methods: there matchers fail."""
_FIRST_SCENES, _FIRST_STEPS = 100, 1500
"""The first network needs no more scenes and steps than these."""
_STANDARD = 256
"""Inputs from which mean and deviation of the features are computed."""

Say = Callable[[str], None]
Arrays = dict[str, npt.NDArray[Any]]
Loss = Callable[[PointNetwork, Examples, torch.Generator], Tensor]


@dataclass(frozen=True)
class Settings:
    """Settings of a training; rate: the largest learning rate of Adam, which falls to zero along a cosine.

    scenes: largest number of scenes; minutes: longest time to generate them. bank: a picture bank; procedural pictures
    without one. jobs: processes. device: that of the fit, which needs some gigabytes of memory there.
    """

    scenes: int = 1000
    minutes: float = 60.0
    steps: int = 10_000
    batch: int = 12
    rate: float = 2e-3
    seed: int = 0
    bank: str = ""
    jobs: int = os.cpu_count() or 1
    device: str = "cpu"


def train(settings: Settings, say: Say = print) -> Assessor:
    """The trained assessor; the examples depend on the settings alone."""
    torch.manual_seed(settings.seed)
    assessor = Assessor()
    # Compile the loops once, before many processes do it at the same time.
    for weight in (None, torch.ones(1, 1, 64, 64)):
        fill_field(DEFAULT_METHOD)(torch.rand(1, 3, 64, 64), torch.rand(1, 2, 64, 64), torch.ones(1, 1, 64, 64), weight)
    first = generate(settings, min(_FIRST_SCENES, settings.scenes), settings.minutes / 8, None, say)
    fit(assessor.alone, first, settings, min(_FIRST_STEPS, settings.steps), alone_loss, say)
    del first
    weights = {name: value.numpy() for name, value in assessor.state_dict().items()}
    second = generate(settings, settings.scenes, settings.minutes * 7 / 8, weights, say)
    fit(assessor.verdict, second, settings, settings.steps, verdict_loss, say)
    return assessor.eval()


def generate(settings: Settings, scenes: int, minutes: float, weights: Arrays | None, say: Say) -> Examples:
    """The examples of scenes; weights: of an assessor whose first network is trained, None for its own examples."""
    end = time.monotonic() + 60 * minutes
    parts: list[Examples] = []
    with ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool:
        for found in _in_order(pool, partial(_scene, settings, weights), scenes, 2 * settings.jobs):
            parts.append(found)
            late = time.monotonic() > end
            if len(parts) % 20 == 0 or late:
                say(f"{len(parts)} of {scenes} scenes, {sum(map(len, parts))} inputs.")
            if late:
                pool.shutdown(cancel_futures=True)
                break
    return join(parts)


def _in_order(pool: ProcessPoolExecutor, work: Callable[[int], Arrays], count: int, ahead: int) -> Iterator[Examples]:
    """Results of work(0), work(1), …, of which at most `ahead` are computed or wait."""
    numbers = iter(range(count))
    waiting = [pool.submit(work, number) for number in islice(numbers, ahead)]
    while waiting:
        found = waiting.pop(0).result()
        waiting.extend(pool.submit(work, number) for number in islice(numbers, 1))
        yield Examples(**{name: torch.from_numpy(value) for name, value in found.items()})


def _scene(settings: Settings, weights: Arrays | None, number: int) -> Arrays:
    """The examples of one scene, as arrays: tensors would need a file descriptor each to leave the process."""
    generator, assessor = _tools(settings)
    fill = None
    if weights is not None:
        assessor.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        other = number % _OTHER_EVERY == 0
        fill = fill_field(METHODS[1 + number // _OTHER_EVERY % 2] if other else METHODS[0])
    with torch.inference_mode():
        found = join(list(examples_of_scene(generator, number, settings.seed, fill, assessor)))
        return {f.name: getattr(found, f.name).numpy() for f in fields(found)}


@lru_cache(maxsize=1)
def _tools(settings: Settings) -> tuple[LayeredFlow, Assessor]:
    torch.set_num_threads(1)
    bank = read_bank(settings.bank) if settings.bank else None
    return LayeredFlow(SCENES, size=SIZE, bank=bank, seed=settings.seed), Assessor().eval()


def fill_field(method: str) -> FillField:
    """The fill of a method on the CPU, for a cross-fit."""
    prepared = get_method(method)
    return lambda image, f, mask, weight: prepared.fill(image, f, mask, weight=weight)


def fit(network: PointNetwork, examples: Examples, settings: Settings, steps: int, loss: Loss, say: Say) -> None:
    """Fit a network, in place, by Adam."""
    device = torch.device(settings.device)
    random = torch.Generator().manual_seed(settings.seed)
    some = examples.at(torch.randint(len(examples), (_STANDARD,), generator=random))
    network.standardise(some.own.flatten(0, 1), some.pair.flatten(0, 2))
    network.to(device)
    examples = examples.to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.rate, total_steps=steps, pct_start=0.05)
    mean = torch.zeros((), device=device)
    for step in range(steps):
        chosen = torch.randint(len(examples), (settings.batch,), generator=random)
        value = loss(network, examples.at(chosen.to(device)), random)
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        if bool(torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0).isfinite()):
            optimiser.step()
        schedule.step()
        mean += (value.detach().nan_to_num() - mean) / min(step + 1, 200)
        if (step + 1) % max(1, steps // 10) == 0:
            say(f"step {step + 1} of {steps}, loss {float(mean):.4f}")
    network.to("cpu")


def save_assessor(assessor: Assessor, path: Path) -> None:
    """Write the weights to a .safetensors file."""
    write_bytes(path, save({name: value.contiguous() for name, value in assessor.state_dict().items()}))
