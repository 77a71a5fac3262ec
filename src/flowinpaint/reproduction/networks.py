"""The networks of a reproduction, each in a folder of its own: trained if it is missing, taken as it is if not."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from flowinpaint.config_parsing import build
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.machine import device_name
from flowinpaint.networks.weights import WEIGHTS_SUFFIX
from flowinpaint.reproduction.audience import Audience
from flowinpaint.reproduction.frames import hash_of
from flowinpaint.reproduction.scale import Budget, Scale, budget_text
from flowinpaint.reproduction.study import NETWORKS, StudyNetwork
from flowinpaint.training.checkpoint import list_checkpoints, read_newest
from flowinpaint.training.config import GENERATED, ScheduleConfig, TrainingConfig
from flowinpaint.training.config_file import as_tables, check_same_run, read_config
from flowinpaint.training.distributed import World
from flowinpaint.training.loop import Listener, Progress, train
from flowinpaint.training.run_folder import RunFolder
from flowinpaint.version import __version__

ABOUT = "network.json"
SET_ASIDE = ".old"
"""Behind the name of a network that was trained otherwise than is asked for now."""


class TrainingStopped(KeyboardInterrupt):
    """Ctrl-C, or a signal, has ended the training of a network, of which a checkpoint is kept."""


@dataclass(frozen=True)
class Training:
    """How a network came about: by which configuration, in how many steps and seconds, where, from which bank."""

    config: dict[str, Any]
    steps: int
    seconds: float
    device: str
    version: str
    weights: str
    """A hash of the file of weights that this belongs to."""
    bank: str = ""
    """A hash of the bank of pictures, "" without any."""
    rehearsal: bool = False
    """Whether it is a tiny one of a rehearsal."""


@dataclass(frozen=True)
class Trained:
    """A network: its file of weights, a hash of it, and how it came about if that is known.

    The file may be on another machine; then the network has what runs there have made.
    """

    network: StudyNetwork
    weights: Path
    hash: str
    training: Training | None

    @property
    def here(self) -> bool:
        """Whether the weights are on this machine."""
        return self.weights.is_file()

    @property
    def unlimited(self) -> bool:
        """Whether its training is known to have been over before the first of its generated samples came again."""
        if self.training is None:
            return False
        data = self.training.config["data"]
        return bool(data["source"] == GENERATED and self.training.steps * data["batch"] <= data["distinct"])


@dataclass(frozen=True)
class Orders:
    """What a user asks of networks; what is None is not asked for, and a network that is there may differ in it.

    models: a folder whose NAME.safetensors, or NAME/model.safetensors, are taken instead of training; what was written
    beside them is enough for a network whose runs are known. settings: of the form table.key=value, for all networks.
    train: False if nothing may be trained.
    """

    budget: Budget | None = None
    bank: str | None = None
    models: Path | None = None
    settings: tuple[str, ...] = ()
    train: bool = True

    def __post_init__(self) -> None:
        if self.models is not None:
            self._check_models(self.models)
        if self.bank is not None and not Path(self.bank).is_file():
            raise MissingFileError(f"--bank: {self.bank}: there is no such file.")

    @staticmethod
    def _check_models(folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(f"--models: {folder} is no folder; one with files NAME{WEIGHTS_SUFFIX} is taken.")
        if not any(path.stem in NETWORKS for path in folder.iterdir()):
            raise InputError(
                f"--models: {folder} holds no network of a reproduction; files NAME{WEIGHTS_SUFFIX} are taken, or "
                f"folders NAME, of {', '.join(NETWORKS)}."
            )


class NetworkShelf:
    """The networks below a folder, by name."""

    def __init__(
        self, folder: Path, scale: Scale, orders: Orders, device: torch.device, audience: Audience | None = None
    ) -> None:
        self.folder, self.scale, self.orders = folder, scale, orders
        self._world = World(device)
        self._audience = audience or Audience()
        self._warned = False

    def config(self, network: StudyNetwork) -> TrainingConfig:
        """What a network is trained by, if it is trained now."""
        orders = self.orders
        settings = [*network.settings, *self.scale.settings_of(network), *(orders.budget or self.scale.budget).settings]
        if orders.bank is not None:
            settings.append(f"data.bank={json.dumps(orders.bank)}")
        return read_config(network.config, [*settings, *orders.settings])

    def find(self, name: str) -> Trained | None:
        """A network that is there and is what was asked for; None if it would have to be trained."""
        network = NETWORKS[name]
        if (given := self._given(network)) is not None:
            return given
        run = self._run(name)
        training = _read_training(run.path / ABOUT)
        if not run.model.is_file():
            return None
        weights = hash_of(run.model)
        if training is None or training.weights != weights:
            # Without what this module leaves, or with another file put in place: whoever did that knows what it is.
            return None if training is None else Trained(network, run.model, weights, None)
        return None if self._objection(network, training) else Trained(network, run.model, weights, training)

    def get(self, name: str) -> Trained:
        """A network; it is trained if need be, or its interrupted training goes on."""
        return self.find(name) or self._train(NETWORKS[name])

    def _run(self, name: str) -> RunFolder:
        return RunFolder(self.folder / name)

    def _given(self, network: StudyNetwork) -> Trained | None:
        """The network in the user's folder of models, if it has it."""
        if self.orders.models is None:
            return None
        single = self.orders.models / f"{network.name}{WEIGHTS_SUFFIX}"
        run = RunFolder(self.orders.models / network.name)
        for weights, about in ((single, single.with_suffix(".json")), (run.model, run.path / ABOUT)):
            training = _read_training(about)
            if training is not None and training.rehearsal and not self.scale.rehearsal:
                raise InputError(f"--models: {weights} is of a rehearsal; networks made without --quick are taken.")
            if weights.is_file():
                own = hash_of(weights)
                return Trained(network, weights, own, training if training and training.weights == own else None)
            if training is not None:
                return Trained(network, weights, training.weights, training)
        return None

    def _objection(self, network: StudyNetwork, training: Training) -> str:
        """Why a network that was trained so is not what is asked for; "" if it is."""
        try:
            before = build(TrainingConfig, training.config)
            wanted = self.config(network)
            check_same_run(before, wanted)
        except InputError as error:
            return str(error)
        if self.orders.budget is not None and (objection := _other_budget(before.schedule, wanted.schedule)):
            return objection
        if self.orders.bank is not None and hash_of(Path(self.orders.bank)) != training.bank:
            return "data.bank: another bank was given."
        return ""

    def _train(self, network: StudyNetwork) -> Trained:
        run, config = self._run(network.name), self.config(network)
        make_folder(self.folder)
        resume = False
        if list_checkpoints(run.checkpoints):
            config, resume = self._resumed(network, run, config)
        if not resume:
            self._set_aside(network, run)
        goal = budget_text(config.schedule.minutes, config.schedule.steps)
        if self._world.device.type == "cpu" and not (self.scale.rehearsal or self._warned):
            self._warned = True
            self._audience.note("On a CPU a step takes seconds to a minute: train on a GPU, or rehearse with --quick.")
        self._audience.note(f"{'Going on with' if resume else 'Training'} {network.name}: {goal}.")
        last = Progress(0, 0.0, 0.0)
        with self._audience.training(config, self._world) as listener, _memory_returned(self._world.device):

            def progress(at: Progress) -> None:
                nonlocal last
                last = at
                listener.progress(at)

            note = (lambda sentence: None) if self.scale.rehearsal else listener.note
            outcome = train(config, run.path, self._world, resume=resume, listener=Listener(note, progress))
        if outcome.interrupted:
            raise TrainingStopped(f"step {outcome.step} of {network.name} is saved")
        seconds = last.seconds if last.step else read_newest(run.checkpoints)[0].seconds
        training = Training(
            config=json.loads(json.dumps(as_tables(config))),  # as it will be read
            steps=outcome.step,
            seconds=seconds,
            device=device_name(self._world.device),
            version=__version__,
            weights=hash_of(run.model),
            bank=hash_of(Path(config.data.bank)) if config.data.bank else "",
            rehearsal=self.scale.rehearsal,
        )
        with atomic_path(run.path / ABOUT) as temporary:
            temporary.write_text(json.dumps(asdict(training), indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(run.checkpoints)  # several times the size of the weights, and nothing goes on from them
        return Trained(network, run.model, training.weights, training)

    def _resumed(self, network: StudyNetwork, run: RunFolder, config: TrainingConfig) -> tuple[TrainingConfig, bool]:
        """The configuration to go on with from the checkpoints of a run, and whether that is what was asked for."""
        try:
            before = read_newest(run.checkpoints)[0].config
            check_same_run(before, config)
        except (InputError, FileFormatError) as error:
            self._audience.note(f"{network.name} is trained anew: {error}")
            return config, False
        if self.orders.bank is None:  # as it was begun
            config = replace(config, data=replace(config.data, bank=before.data.bank))
        if self.orders.budget is None:
            return replace(config, schedule=before.schedule), True
        return config, not _other_budget(before.schedule, config.schedule)

    def _set_aside(self, network: StudyNetwork, run: RunFolder) -> None:
        """Make place for a network, keeping what is there under another name."""
        if not run.path.exists() or not any(run.path.iterdir()):
            return
        training = _read_training(run.path / ABOUT)
        reason = self._objection(network, training) if training else "it was begun otherwise."
        old = run.path.with_name(run.path.name + SET_ASIDE)
        if old.exists():
            shutil.rmtree(old)
        run.path.rename(old)
        self._audience.note(f"{run.path} held another network, now {old.name}: {reason}")


def _other_budget(before: ScheduleConfig, now: ScheduleConfig) -> str:
    old, new = (budget_text(schedule.minutes, schedule.steps) for schedule in (before, now))
    return "" if old == new else f"schedule: it was made for {old}, and {new} are asked for."


def _read_training(path: Path) -> Training | None:
    try:
        return Training(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def _memory_returned(device: torch.device) -> Iterator[None]:
    """Give back what a training held, for the next one."""
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.compiler.reset()  # PyTorch compiles the same code for so many networks only, and then no more
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
