"""The training loop: steps, and between them the log, validations, checkpoints, and an end in good order.

flowinpaint train configs/fast.toml -o runs/fast
torchrun --nproc_per_node=8 -m flowinpaint train configs/fast.toml -o runs/fast
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from flowinpaint.api import load_model
from flowinpaint.errors import InputError
from flowinpaint.networks.network import Network
from flowinpaint.networks.registry import build_network
from flowinpaint.training.checkpoint import Checkpoint, read_newest, restore
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.config_file import check_same_run
from flowinpaint.training.diagnosis import NotFiniteError, diagnose
from flowinpaint.training.distributed import World
from flowinpaint.training.recorder import Recorder
from flowinpaint.training.revival import REVIVED_UNTIL
from flowinpaint.training.run_folder import RunFolder, open_run
from flowinpaint.training.schedule import rate_factor, share_done
from flowinpaint.training.signals import stop_signals
from flowinpaint.training.source import open_source
from flowinpaint.training.step import TrainingStep
from flowinpaint.training.stopwatch import Stopwatch
from flowinpaint.training.validation import Scores


@dataclass
class Progress:
    """Where a run stands: what a display shows."""

    step: int
    seconds: float
    """Training time: without start-up, compilation and validation."""
    share: float
    pace: float | None = None
    """Seconds a step, since the last line of the log."""
    loss: float | None = None
    skipped: int = 0
    scores: Scores | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended: after which step, whether it was stopped before its end, and the last validation."""

    step: int
    interrupted: bool
    scores: Scores | None


@dataclass(frozen=True)
class Listener:
    """Whom a loop tells what it does; by default nobody."""

    note: Callable[[str], None] = lambda sentence: None
    progress: Callable[[Progress], None] = lambda progress: None


def train(
    config: TrainingConfig, out: Path, world: World, *, resume: bool = False, listener: Listener | None = None
) -> Outcome:
    """Train by a configuration in a run folder, from nothing or from the newest checkpoint there.

    Only the first process of a world writes. SIGINT and SIGTERM end the run after the step at hand, with a checkpoint.
    """
    listener = listener or Listener()
    with ExitStack() as stack:
        folder = stack.enter_context(open_run(out, resume)) if world.first else RunFolder(out)
        world.agree(0.0)  # the first process has made sure of the folder
        saved = _read_saved(folder, config, listener) if resume else None
        for key in config.data.unused:
            listener.note(f"data.{key} is not used: data.source is {config.data.source!r}.")
        training = build_step(config, world, saved)
        recorder = None
        if world.first:
            recorder = stack.enter_context(Recorder(config, folder, training, saved, listener.note))
        if not training.ready and config.run.compile:
            listener.note("Compiling the step for this GPU, which takes a minute or two, and less the next time.")
        return _run(training, saved, recorder, stack.enter_context(stop_signals()), listener)


def build_step(config: TrainingConfig, world: World, saved: Checkpoint | None = None) -> TrainingStep:
    """The step of a configuration, as new or as it was when saved."""
    step = saved.step if saved else 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.data.seed)
        model = build_network(config.model)
    if config.optimiser.weights and not saved:
        _take_weights(model, config.optimiser.weights)
    compiled = world.device.type == "cuda" and config.run.compile
    training = TrainingStep(model, open_source(config.data, world, step, compiled), config, world, step)
    if saved:
        restore(training.state(), saved.tensors)
    return training


def _take_weights(model: Network, name_or_path: str) -> None:
    """Begin with the weights of a file or of the package, whose model may differ in what has none, as its steps."""
    tensors, own = load_model(name_or_path, "cpu").state_dict(), model.state_dict()
    if differing := sorted(tensors.keys() ^ own.keys()) or [k for k in own if own[k].shape != tensors[k].shape]:
        raise InputError(f"optimiser.weights: {name_or_path} holds other layers than [model] has: {differing[0]}.")
    model.load_state_dict(tensors)


def _read_saved(folder: RunFolder, config: TrainingConfig, listener: Listener) -> Checkpoint:
    saved, faults = read_newest(folder.checkpoints)
    for fault in faults:
        listener.note(f"{fault} An older checkpoint is taken.")
    check_same_run(saved.config, config)
    return saved


def _run(
    training: TrainingStep,
    saved: Checkpoint | None,
    recorder: Recorder | None,
    stopping: Callable[[], bool],
    listener: Listener,
) -> Outcome:
    config, world = training.config, training.world
    at = Progress(saved.step, saved.seconds, 0.0) if saved else Progress(0, 0.0, 0.0)
    at.share = share_done(config.schedule, at.step, at.seconds)
    watch = Stopwatch(at.seconds)
    stopped = False
    mark = (at.step, at.seconds)
    if at.share >= 1:
        listener.note(f"Nothing is left to do: the run has {at.step} steps in {at.seconds:.0f} s behind it.")
    while at.share < 1 and not stopped:
        every = config.optimiser.revive_every
        if every and at.share < REVIVED_UNTIL and at.step % every == 0 and (count := training.revive(at.step)):
            listener.note(f"Step {at.step}: {count} dead channels of the network were given new kernels.")
        if training.ready:
            watch.start()
        rate = config.optimiser.lr * rate_factor(config.schedule, at.step, at.share)
        training.run(rate)
        at.step += 1
        seconds = watch.seconds if world.first else 0.0  # the others' watches also count how they wait for the first
        wish, at.seconds = world.agree(float(stopping()), seconds)
        at.share, stopped = share_done(config.schedule, at.step, at.seconds), wish > 0
        at.pace = (at.seconds - mark[1]) / (at.step - mark[0]) or None
        if _due(at, config.run.log_every):
            tally = training.read_tally()
            at.loss, at.skipped = tally.loss, tally.skipped
            if recorder:
                recorder.write_line(at, tally, rate)
            if tally.skipped_in_row >= config.run.nan_limit:
                cause = diagnose(training, tally.last_bad_sample)
                raise NotFiniteError(f"The last {tally.skipped_in_row} steps were not finite. {cause}.")
            mark = (at.step, watch.seconds)
        with watch.paused():
            if recorder and _due(at, config.validation.every):
                at.scores = recorder.validate(at)
        if recorder and (stopped or _due(at, config.run.checkpoint_every)):
            recorder.save(at)
        listener.progress(at)
    if recorder and at.share >= 1:
        at.scores = recorder.finish(at)
    return Outcome(at.step, at.share < 1, at.scores)


def _due(at: Progress, every: int) -> bool:
    """Whether something that is done every so many steps, and at the end of the run, is to be done now."""
    return at.share >= 1 or (every > 0 and at.step % every == 0)
