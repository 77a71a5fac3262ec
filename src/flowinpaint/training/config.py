"""Configuration of a training run: nested tables, from a TOML file, `--set` options or a checkpoint."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from flowinpaint.checks import Limit, check_number
from flowinpaint.config_parsing import build, check_ranges, flattened
from flowinpaint.data.generator.config import LayeredConfig
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io.text import checking_content, parse_toml, read_toml
from flowinpaint.masks import MaskMix
from flowinpaint.networks.registry import ModelConfig, config_class
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig

Precision = Literal["auto", "float32", "bfloat16"]
Curve = Literal["halving", "cosine", "trapezoid"]
Kernels = Literal["adam", "muon"]
FieldLoss = Literal["epe", "log"]
GENERATED = "layered"
CONFIGS = Path(__file__).parent / "configs"
FREE_TABLES = ("schedule", "validation", "run")
FREE_KEYS = ("data.bank", "data.root", "data.workers")
"""Keys that a resumed run may change: its length, its reports, and the location of its data."""


@dataclass(frozen=True)
class DataConfig:
    """Source, size and number of the samples in a batch."""

    source: str = GENERATED
    """"layered" for generated scenes, or the name of a data set on disk."""
    size: tuple[int, int] = (384, 384)
    """Height and width."""
    batch: int = 16
    """Samples of one step, over all processes."""
    seed: int = 0
    """Determines the initial weights, the samples and their masks."""
    bank: str = ""
    """A bank of pictures for generated scenes; procedural textures if empty."""
    root: str = ""
    """The folder of a data set on disk."""
    split: str = ""
    render: str = ""
    """Split and render pass of a data set; its first if empty."""
    distinct: int = 0
    """Number of different samples, repeated with new masks; 0 for all that the source has."""
    workers: int = -1
    """Number of processes that read from disk; -1: as many as the CPU has cores for (`batches.reading_processes`)."""
    layered: LayeredConfig = field(default_factory=LayeredConfig)

    def __post_init__(self) -> None:
        check_ranges(self, batch=(1, 2**16), workers=(-1, 2**10), distinct=(0, 2**40), seed=(0, 2**62), size=(2, 2**14))
        if self.source != GENERATED and not self.root:
            raise InputError(f"root must be the folder of the data for source {self.source!r}, got ''")

    @property
    def unused(self) -> list[str]:
        """The keys that are set but have no effect with this source."""
        idle = ("root", "split", "render") if self.source == GENERATED else ("bank",)
        return [name for name in idle if getattr(self, name)]


@dataclass(frozen=True)
class OptimiserConfig:
    """Loss, optimiser (Adam or Muon), gradient clipping and averaging of the weights."""

    weights: str = ""
    """Initial weights of a network with the same layers: a file or the name of a method; new weights if empty."""
    loss: FieldLoss = "epe"
    """"epe": the mean endpoint error; "log": the mean over samples of its logarithm, so that all samples count equally,
    regardless of their motion and density."""
    error_weight: float = 0.1
    """Weight of the loss that trains the expected error of a model with `confidence`."""
    lr: float = 1e-4
    kernels: Kernels = "adam"
    """Optimiser of the convolution kernels; biases and λ always use Adam."""
    muon_lr: float = 2e-3
    momentum: float = 0.95
    """Muon's highest learning rate, and the share of the averaged gradient that a step keeps."""
    weight_decay: float = 0.0
    """Decay of the convolution kernels per step, in learning rates. Muon's steps never get smaller: without decay
    kernels grow without bound until activations exceed the range of half precision."""
    l2: float = 0.0
    """Weight of half the squared kernels in the loss; the paper calls it weight decay for its baselines."""
    revive_every: int = 0
    """Steps between re-initialisations of dead channels, in the first half of a run; 0 for never."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no limit."""
    ema: float = 0.999
    """Share of the averaged weights that a step keeps, smaller in the first steps; 0 for no average."""
    precision: Precision = "auto"
    """Precision of the network; the diffusion is in float32. "auto": bfloat16 on CUDA, float32 on the CPU."""

    def __post_init__(self) -> None:
        for name in ("lr", "muon_lr", "eps"):
            check_number(name, getattr(self, name), Limit.POSITIVE)
        for name, value in (("ema", self.ema), ("momentum", self.momentum), *(("betas", beta) for beta in self.betas)):
            check_number(name, value, Limit.PART)
        check_ranges(
            self, clip=(0, inf), weight_decay=(0, inf), l2=(0, inf), error_weight=(0, inf), revive_every=(0, inf)
        )


@dataclass(frozen=True)
class ScheduleConfig:
    """Length of a run, and the curve of the learning rate, as a factor of the optimiser's lr."""

    curve: Curve = "halving"
    steps: int = 900_000
    minutes: float = 0.0
    """Training time instead of a number of steps; the curve then follows the share of the time. 0: use `steps`."""
    warmup: int = 0
    """Steps in which the learning rate rises to lr."""
    halve_after: int = 300_000
    halve_every: int = 100_000
    """Curve "halving": the rate is halved after the first number of steps, then each time after the second."""
    floor: float = 0.01
    """Curves "cosine" and "trapezoid": the final factor."""
    decay: float = 0.3
    """Curve "trapezoid": the share of the run, at its end, in which the rate falls; before that it is constant, and the
    run can be extended."""

    def __post_init__(self) -> None:
        check_ranges(self, steps=(1, inf), minutes=(0, inf), warmup=(0, inf), halve_after=(0, inf))
        check_ranges(self, halve_every=(1, inf), floor=(0, 1), decay=(0, 1))

    def share_done(self, step: int, seconds: float) -> float:
        """The share of the run, from 0 to 1, that is done after this many steps and seconds of training."""
        return min(1.0, seconds / (60 * self.minutes) if self.minutes else step / self.steps)

    def rate_factor(self, step: int, share: float) -> float:
        """The factor of the learning rate in a step, counted from 0, when `share` of the run is done.

        A run limited by minutes follows the curve of a run of `steps` steps at the same share.
        """
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.curve == "cosine":
            return rise * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2)
        if self.curve == "trapezoid":
            left = min(1.0, (1 - share) / self.decay) if self.decay else 1.0
            return rise * (self.floor + (1 - self.floor) * left)
        place = share * self.steps if self.minutes else step
        halvings = max(0, math.floor((place - self.halve_after) / self.halve_every) + 1)
        return rise * 0.5**halvings


@dataclass(frozen=True)
class ValidationConfig:
    """Validation of the averaged weights, at intervals and at the end."""

    every: int = 5000
    """Steps between validations; 0 for a single one at the end."""
    root: str = ""
    """Folder of frames with ground truth, as for `flowinpaint evaluate`; R compares with laplace-beltrami."""
    datasets: tuple[str, ...] = ()
    """Data sets of the root to use; all if empty."""
    densities: tuple[float, ...] = (0.01, 0.05, 0.1)
    heldout: int = 8
    """Number of generated scenes that training never sees."""

    def __post_init__(self) -> None:
        check_ranges(self, every=(0, inf), heldout=(0, inf))
        if not self.densities or not all(0 < density <= 1 for density in self.densities):
            raise InputError(f"densities must be shares above 0 and up to 1, got {list(self.densities)}")


@dataclass(frozen=True)
class RunConfig:
    """Settings that do not influence the result."""

    log_every: int = 100
    checkpoint_every: int = 1000
    nan_limit: int = 10
    """Consecutive steps that may be skipped as not finite before the run stops."""
    compile: bool = True
    """On CUDA: compile the network and the generator."""
    graph: bool = True
    """On CUDA with one process: record a whole step as a graph and replay it."""
    segment: int = 0
    """Steps between the diffusion iterates kept for the backward pass; the others are recomputed. 0 keeps all."""

    def __post_init__(self) -> None:
        check_ranges(self, segment=(0, inf), log_every=(1, inf), checkpoint_every=(1, inf), nan_limit=(1, inf))


@dataclass(frozen=True)
class TrainingConfig:
    """A complete run. The defaults are the paper's, except for the data."""

    model: Annotated[ModelConfig, config_class] = field(default_factory=NeuroexplicitConfig)
    """The network; its key `kind` names one of `networks.registry.kinds()`."""
    data: DataConfig = field(default_factory=DataConfig)
    masks: MaskMix = field(default_factory=MaskMix)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.model, NeuroexplicitConfig):
            for name in ("revive_every", "loss"):
                value, default = getattr(self.optimiser, name), getattr(OptimiserConfig, name)
                if value != default:
                    raise InputError(
                        f"optimiser.{name} must be {default!r} with a model of kind {self.model.kind!r}, got {value!r}"
                    )


@contextmanager
def of_table(table: str, **keys: str) -> Iterator[None]:
    """Let an InputError that starts with an argument name the table's key instead; keys: key by argument."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{table}." + re.sub(r"^\w+", lambda name: keys.get(name[0], name[0]), str(error))) from error


def config_names() -> list[str]:
    """The names of the configurations in the package."""
    return sorted(path.stem for path in CONFIGS.glob("*.toml"))


def find_config(name_or_path: str | Path) -> Path:
    """The file of a configuration: one of the package by its name, or a TOML file."""
    path, names = Path(name_or_path), config_names()
    if str(path) in names:
        return CONFIGS / f"{path}.toml"
    if not path.exists():
        near = get_close_matches(path.stem, names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise MissingFileError(f"{path}: there is no such file; pass a TOML file or one of {', '.join(names)}{hint}")
    return path


def read_config(name_or_path: str | Path, settings: Sequence[str] = ()) -> TrainingConfig:
    """The configuration of a name or in a TOML file, changed by settings of the form table.key=value."""
    path = find_config(name_or_path)
    tables = read_toml(path)
    with checking_content(path):
        config = build(TrainingConfig, tables)
    return apply_settings(tables, settings) if settings else config


def apply_settings(tables: dict[str, Any], settings: Sequence[str]) -> TrainingConfig:
    """The configuration of these tables, changed by settings of the form table.key=value."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        *parents, last = key.strip().split(".")
        if not (equals and parents and last and text.strip()):
            raise InputError(f"--set must be TABLE.KEY=VALUE, for example optimiser.lr=1e-4, got {setting!r}")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise InputError(f"--set {setting}: {parent} must be a table, got a value")
        table[last] = _value(text.strip())
    try:
        return build(TrainingConfig, tables)
    except InputError as error:
        raise InputError(f"--set: {error}" if settings else str(error)) from error


def check_same_run(before: TrainingConfig, now: TrainingConfig) -> None:
    """Raise InputError if a resumed run differs from the saved one in data, model or optimiser."""
    old, new = flattened(asdict(before), "."), flattened(asdict(now), ".")
    for key in new:
        free = key.split(".")[0] in FREE_TABLES or key in FREE_KEYS
        if not free and old.get(key) != new[key]:
            raise InputError(
                f"{key} must be {old.get(key)!r} as in the run to resume, got {new[key]!r}; use the same, or a new run "
                "folder"
            )


def _value(text: str) -> Any:
    """The text as a TOML value, or else as a string, so that names need no quotes on a command line."""
    try:
        tables = parse_toml(f"value = {text}", "--set")
    except FileFormatError:
        return text
    return tables["value"] if len(tables) == 1 else text
