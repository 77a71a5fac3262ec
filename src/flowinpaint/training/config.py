"""What a training run is: nested tables of numbers and names, as a configuration file has them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.errors import InputError
from flowinpaint.masks import MaskMix
from flowinpaint.networks.registry import ModelConfig
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig

Precision = Literal["auto", "float32", "bfloat16"]
Curve = Literal["halving", "cosine", "trapezoid"]
Kernels = Literal["adam", "muon"]
FieldLoss = Literal["epe", "log"]
GENERATED = "layered"


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from, and how many of what size make a batch."""

    source: str = GENERATED
    """"layered" for generated scenes, or the name of a data set on disk."""
    size: tuple[int, int] = (384, 384)
    """Height and width."""
    batch: int = 16
    """Samples of one step, of all processes together."""
    seed: int = 0
    """Decides the first weights, the samples and their masks."""
    bank: str = ""
    """A bank of pictures for generated scenes; without one they show procedural textures."""
    root: str = ""
    """The folder of a data set on disk."""
    split: str = ""
    render: str = ""
    """Which part and which pass of a data set; without them its first."""
    distinct: int = 0
    """How many different samples there are, again and again, with new masks; 0 for as many as the source has."""
    workers: int = 4
    """Processes that read from disk."""
    layered: LayeredConfig = field(default_factory=LayeredConfig)

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("batch", self.batch, 1, 2**16),
            ("workers", self.workers, 0, 2**10),
            ("distinct", self.distinct, 0, 2**40),
            ("seed", self.seed, 0, 2**62),
        ):
            if not least <= value <= most:
                raise InputError(f"{name}: {value} was given; a number from {least} to {most} is taken.")
        if not 2 <= min(self.size) <= max(self.size) <= 2**14:
            raise InputError(f"size: {list(self.size)} was given; a height and a width from 2 to {2**14} are taken.")
        if self.source != GENERATED and not self.root:
            raise InputError(f"root: nothing was given; with source {self.source!r} the folder of the data is taken.")

    @property
    def unused(self) -> list[str]:
        """The keys that were set and mean nothing with this source."""
        idle = ("root", "split", "render") if self.source == GENERATED else ("bank",)
        return [name for name in idle if getattr(self, name)]


@dataclass(frozen=True)
class OptimiserConfig:
    """What is made small, and how: Adam or Muon, the clipping of gradients, and the average of the weights."""

    weights: str = ""
    """Weights to begin with, of a network of the same layers: a file, or the name of a method; new ones without it."""
    loss: FieldLoss = "epe"
    """"epe": the mean endpoint error; "log": the mean over samples of its logarithm, so that each sample counts alike
    whatever its motion and density."""
    error_weight: float = 0.1
    """Of the loss by which a model with `confidence` learns to foresee its errors."""
    lr: float = 1e-4
    kernels: Kernels = "adam"
    """What steps the kernels of convolutions take. Biases and λ always take Adam's."""
    muon_lr: float = 2e-3
    momentum: float = 0.95
    """Muon's learning rate at its highest, and how much of the averaged gradient a step keeps."""
    weight_decay: float = 0.0
    """How much of itself each kernel of a convolution loses in a step, in learning rates. Muon's steps never get
    smaller: without it kernels grow without end, and what they make passes the range of half precision."""
    l2: float = 0.0
    """Of half the squared kernels, added to the loss: what the paper's baselines call weight decay."""
    revive_every: int = 0
    """Steps between two looks for channels of the network that are dead, in the first half of a run; 0 for none."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: float = 1.0
    """Largest norm of the gradient; 0 for any."""
    ema: float = 0.999
    """Share of the averaged weights that a step keeps, less in the first steps; 0 for no average."""
    precision: Precision = "auto"
    """Of the network; the diffusion is in float32. "auto": bfloat16 on CUDA, float32 on the CPU."""

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("muon_lr", self.muon_lr), ("eps", self.eps)):
            if not 0 < value < math.inf:
                raise InputError(f"{name}: {value} was given; a number above 0 is taken.")
        for name, value in (("ema", self.ema), ("momentum", self.momentum), *(("betas", beta) for beta in self.betas)):
            if not 0 <= value < 1:
                raise InputError(f"{name}: {value} was given; a number from 0, below 1, is taken.")
        _at_least("clip", self.clip, 0)
        _at_least("weight_decay", self.weight_decay, 0)
        _at_least("l2", self.l2, 0)
        _at_least("error_weight", self.error_weight, 0)
        _at_least("revive_every", self.revive_every, 0)


@dataclass(frozen=True)
class ScheduleConfig:
    """How long to train, and the learning rate on the way, as a share of the optimiser's lr."""

    curve: Curve = "halving"
    steps: int = 900_000
    minutes: float = 0.0
    """Training time instead of a number of steps; the curve then follows the share of the time. 0: steps count."""
    warmup: int = 0
    """Steps in which the rate rises to lr."""
    halve_after: int = 300_000
    halve_every: int = 100_000
    """The curve "halving": the rate is halved at the first of these, and then every so many steps."""
    floor: float = 0.01
    """The curves "cosine" and "trapezoid": where the rate ends."""
    decay: float = 0.3
    """The curve "trapezoid": the share of the run, at its end, in which the rate falls; before that it stays, and the
    run may be made longer."""

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1)
        _at_least("minutes", self.minutes, 0)
        _at_least("warmup", self.warmup, 0)
        _at_least("halve_after", self.halve_after, 0)
        _at_least("halve_every", self.halve_every, 1)
        for name, value in (("floor", self.floor), ("decay", self.decay)):
            if not 0 <= value <= 1:
                raise InputError(f"{name}: {value} was given; a share from 0 to 1 is taken.")


@dataclass(frozen=True)
class ValidationConfig:
    """What the averaged weights are tried on, now and then and at the end."""

    every: int = 5000
    """Steps between two validations; 0 for only one, at the end."""
    root: str = ""
    """Frames with ground truth, as `flowinpaint evaluate` takes them; R compares with laplace-beltrami."""
    datasets: tuple[str, ...] = ()
    """Only these data sets of the root; all if empty."""
    densities: tuple[float, ...] = (0.01, 0.05, 0.1)
    heldout: int = 8
    """Generated scenes that training never sees; 0 for none."""

    def __post_init__(self) -> None:
        _at_least("every", self.every, 0)
        _at_least("heldout", self.heldout, 0)
        if not self.densities or not all(0 < density <= 1 for density in self.densities):
            raise InputError(f"densities: {list(self.densities)} was given; shares above 0 and up to 1 are taken.")


@dataclass(frozen=True)
class RunConfig:
    """What has no influence on what is learned."""

    log_every: int = 100
    checkpoint_every: int = 1000
    nan_limit: int = 10
    """Steps in a row that are skipped as not finite before the run stops."""
    compile: bool = True
    """On CUDA: compile the network and the generator."""
    graph: bool = True
    """On CUDA with one process: record a whole step once and replay it."""
    segment: int = 0
    """Steps between the iterates of the diffusion that are kept for the way back; the others are computed again. 0: all
    are kept."""

    def __post_init__(self) -> None:
        _at_least("segment", self.segment, 0)
        for name in ("log_every", "checkpoint_every", "nan_limit"):
            _at_least(name, getattr(self, name), 1)


@dataclass(frozen=True)
class TrainingConfig:
    """A whole run. The defaults are the paper's, but for the data."""

    model: ModelConfig = field(default_factory=NeuroexplicitConfig)
    """Its `kind` says which network: "neuroexplicit", "flownets", "wgain" or "pd"."""
    data: DataConfig = field(default_factory=DataConfig)
    masks: MaskMix = field(default_factory=MaskMix)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.optimiser.revive_every and not isinstance(self.model, NeuroexplicitConfig):
            raise InputError(
                f"optimiser.revive_every: {self.optimiser.revive_every} was given; 0 is taken with a model of kind "
                f"{self.model.kind!r}."
            )


@contextmanager
def of_table(table: str, **keys: str) -> Iterator[None]:
    """Let an InputError that names an argument name the key of a table instead, by default the one of its name."""
    try:
        yield
    except InputError as error:
        argument = str(error).split()[0].rstrip(":")
        raise InputError(f"{table}.{keys.get(argument, argument)}{str(error).removeprefix(argument)}") from error


def _at_least(name: str, value: float, least: int) -> None:
    if not least <= value < math.inf:
        raise InputError(f"{name}: {value} was given; a number from {least} is taken.")
