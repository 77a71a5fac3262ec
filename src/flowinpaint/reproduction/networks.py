"""Networks of a reproduction: found in their folders, or trained there."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from flowinpaint.config_parsing import build
from flowinpaint.data.folder import file_hash
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.evaluation.runner import Step
from flowinpaint.io import make_folder
from flowinpaint.io.text import read_json
from flowinpaint.machine import device_name
from flowinpaint.networks.weights import WEIGHTS_SUFFIX
from flowinpaint.reproduction.experiment import NETWORKS, NetworkSpec, Scale, Settings, budget_text
from flowinpaint.text_tables import write_text
from flowinpaint.training.checkpoint import RunFolder, list_checkpoints, read_newest
from flowinpaint.training.config import GENERATED, ScheduleConfig, TrainingConfig, check_same_run, read_config
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import Listener, train
from flowinpaint.version import __version__

ABOUT = "network.json"
RETIRED = ".old"
"""Suffix of the folder of a network whose training does not match the current options."""


class TrainingStopped(KeyboardInterrupt):
    """Ctrl-C or a signal ended the training of a network; a checkpoint is saved."""


@dataclass(frozen=True)
class Callbacks:
    """Receivers of progress; by default they do nothing.

    note: receives a sentence. training, runs: open a display of a network's training, and of runs on frames.
    """

    note: Callable[[str], None] = lambda sentence: None
    training: Callable[[TrainingConfig, World], AbstractContextManager[Listener]] = lambda config, world: nullcontext(
        Listener()
    )
    runs: Callable[[], AbstractContextManager[Callable[[Step], None]]] = lambda: nullcontext(lambda step: None)
    _noted: set[str] = field(default_factory=set)

    def note_once(self, sentence: str) -> None:
        """Note a sentence unless it was noted before."""
        if sentence not in self._noted:
            self._noted.add(sentence)
            self.note(sentence)


@dataclass(frozen=True)
class Training:
    """The training of a network, as stored in its network.json.

    weights, bank: hashes of the resulting weights file, and of the bank of pictures ("" without any).
    rehearsal: the network is a tiny one of --quick.
    """

    config: dict[str, Any]
    steps: int
    seconds: float
    device: str
    version: str
    weights: str
    bank: str = ""
    rehearsal: bool = False


@dataclass(frozen=True)
class TrainedNetwork:
    """A network: its weights file, the hash of that file, and its training if known.

    The file may be on another machine. Then only the records of its runs there are available.
    """

    spec: NetworkSpec
    weights: Path
    hash: str
    training: Training | None

    @property
    def without_repeats(self) -> bool:
        """True if training is known to have ended before it saw a generated sample a second time."""
        if self.training is None:
            return False
        data = self.training.config["data"]
        return bool(data["source"] == GENERATED and self.training.steps * data["batch"] <= data["distinct"])


@dataclass(frozen=True)
class NetworkOptions:
    """User options for networks. None or () means no requirement: a finished network may have any value.

    models: a folder with NAME.safetensors or NAME/model.safetensors to use instead of training. The .json file
    written with them is sufficient for a network whose runs are known.
    settings: changes to the configuration of all networks. train: False to train nothing.
    """

    budget: Settings = ()
    bank: str | None = None
    models: Path | None = None
    settings: Settings = ()
    train: bool = True

    def __post_init__(self) -> None:
        expected = f"a folder with files NAME{WEIGHTS_SUFFIX} or folders NAME of networks {', '.join(NETWORKS)}"
        if self.models is not None and not self.models.is_dir():
            raise InputError(f"--models must be {expected}, got {self.models}, which is not a folder")
        if self.models is not None and not any(path.stem in NETWORKS for path in self.models.iterdir()):
            raise InputError(f"--models must be {expected}, got {self.models}, which has none of them")
        if self.bank is not None and not Path(self.bank).is_file():
            raise MissingFileError(f"--bank must be a file, but {self.bank} does not exist")


@dataclass
class Networks:
    """The networks below a folder, by name."""

    folder: Path
    scale: Scale
    options: NetworkOptions
    device: str
    callbacks: Callbacks = field(default_factory=Callbacks)
    _configs: dict[str, TrainingConfig] = field(default_factory=dict)

    def config(self, spec: NetworkSpec) -> TrainingConfig:
        """The configuration for training a network with the current options."""
        if spec.name not in self._configs:
            options = self.options
            settings = [*spec.settings, *self.scale.settings_of(spec), *(options.budget or self.scale.budget)]
            if options.bank is not None:
                settings.append(f"data.bank={json.dumps(options.bank)}")
            self._configs[spec.name] = read_config(spec.config, [*settings, *options.settings])
        return self._configs[spec.name]

    def find(self, name: str) -> TrainedNetwork | None:
        """A finished network: one of the user's models, or one here that matches the options; None without either."""
        spec, models = NETWORKS[name], self.options.models
        if models is not None:
            single, run = models / f"{name}{WEIGHTS_SUFFIX}", RunFolder(models / name)
            for weights, about in ((single, single.with_suffix(".json")), (run.model, run.path / ABOUT)):
                training = _read_training(about)
                if training is not None and training.rehearsal and not self.scale.rehearsal:
                    raise InputError(f"--models must hold networks made without --quick, got the rehearsal {weights}")
                if weights.is_file():
                    return _network_in(weights, spec, training)
                if training is not None:
                    return TrainedNetwork(spec, weights, training.weights, training)
        run = RunFolder(self.folder / name)
        training = _read_training(run.path / ABOUT)
        if training is None or not run.model.is_file():
            return None
        found = _network_in(run.model, spec, training)
        return None if found.training is not None and self._mismatch(spec, training) else found

    def get(self, name: str) -> TrainedNetwork:
        """A network; if necessary it is trained, or its interrupted training resumed."""
        return self.find(name) or self._train(NETWORKS[name])

    def _mismatch(self, spec: NetworkSpec, training: Training) -> str:
        """The difference between a network's training and the options, "" if there is none."""
        try:
            before, wanted = build(TrainingConfig, training.config), self.config(spec)
            check_same_run(before, wanted)
        except InputError as error:
            return str(error)
        if self.options.budget and (difference := _budget_mismatch(before.schedule, wanted.schedule)):
            return difference
        if self.options.bank is not None and file_hash(Path(self.options.bank)) != training.bank:
            return "data.bank: another bank."
        return ""

    def _train(self, spec: NetworkSpec) -> TrainedNetwork:
        run, config = RunFolder(self.folder / spec.name), self.config(spec)
        callbacks, world = self.callbacks, World(torch.device(self.device))
        make_folder(self.folder)
        config, resume = self._resumed(spec, run, config)
        if not resume:
            self._retire(spec, run)
        if world.device.type == "cpu" and not self.scale.rehearsal:
            callbacks.note_once("On a CPU a step takes seconds to a minute: train on a GPU, or rehearse with --quick.")
        budget = budget_text(config.schedule.minutes, config.schedule.steps)
        callbacks.note(f"{'Resuming' if resume else 'Training'} {spec.name}: {budget}.")
        with callbacks.training(config, world) as listener:
            if self.scale.rehearsal:
                listener = Listener(progress=listener.progress)  # drops the notes
            try:
                outcome = train(config, run.path, world, resume=resume, listener=listener)
            finally:
                if world.device.type == "cuda":
                    torch.compiler.reset()  # PyTorch stops compiling the same code after a few networks
                    gc.collect()
                    torch.cuda.empty_cache()
        if outcome.interrupted:
            raise TrainingStopped(f"step {outcome.step} of {spec.name} is saved")
        training = Training(
            config=json.loads(json.dumps(asdict(config))),  # as a later run reads it
            steps=outcome.step,
            seconds=read_newest(run.checkpoints)[0].seconds,
            device=device_name(self.device),
            version=__version__,
            weights=file_hash(run.model),
            bank=file_hash(Path(config.data.bank)) if config.data.bank else "",
            rehearsal=self.scale.rehearsal,
        )
        write_text(run.path / ABOUT, json.dumps(asdict(training), indent=1) + "\n")
        shutil.rmtree(run.checkpoints)  # several times the size of the weights
        return TrainedNetwork(spec, run.model, training.weights, training)

    def _resumed(self, spec: NetworkSpec, run: RunFolder, config: TrainingConfig) -> tuple[TrainingConfig, bool]:
        """The configuration to train with, and whether to resume from the checkpoints of a run."""
        if not list_checkpoints(run.checkpoints):
            return config, False
        try:
            before = read_newest(run.checkpoints)[0].config
            check_same_run(before, config)
        except (InputError, FileFormatError) as error:
            self.callbacks.note(f"{spec.name} is trained again: {error}")
            return config, False
        if self.options.bank is None:
            config = replace(config, data=replace(config.data, bank=before.data.bank))
        if not self.options.budget:
            return replace(config, schedule=before.schedule), True
        return config, not _budget_mismatch(before.schedule, config.schedule)

    def _retire(self, spec: NetworkSpec, run: RunFolder) -> None:
        """Rename the folder of a network that does not match the options."""
        if not run.path.exists() or not any(run.path.iterdir()):
            return
        training = _read_training(run.path / ABOUT)
        reason = self._mismatch(spec, training) if training else "its training had other settings."
        old = run.path.with_name(run.path.name + RETIRED)
        if old.exists():
            shutil.rmtree(old)
        run.path.rename(old)
        self.callbacks.note(f"The other network in {run.path} is now in {old.name}: {reason}")


def _budget_mismatch(before: ScheduleConfig, now: ScheduleConfig) -> str:
    old, new = (budget_text(schedule.minutes, schedule.steps) for schedule in (before, now))
    return "" if old == new else f"schedule: its training was of {old}, not {new}."


def _network_in(weights: Path, spec: NetworkSpec, training: Training | None) -> TrainedNetwork:
    """The network in a file; its training is unknown if the weights differ, for example in a replaced file."""
    own = file_hash(weights)
    return TrainedNetwork(spec, weights, own, training if training is not None and training.weights == own else None)


def _read_training(path: Path) -> Training | None:
    try:
        return build(Training, read_json(path))
    except (OSError, FileFormatError, InputError):
        return None
