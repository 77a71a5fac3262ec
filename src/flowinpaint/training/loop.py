"""Training loop: steps, log, validations, checkpoints, and a clean stop.

flowinpaint train fast -o runs/fast
torchrun --nproc_per_node=8 -m flowinpaint train fast -o runs/fast
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from flowinpaint.api import load_model
from flowinpaint.errors import InputError
from flowinpaint.interrupts import SIGNALS, note_signal
from flowinpaint.networks.network import Network
from flowinpaint.networks.registry import build_network
from flowinpaint.training.batches import open_source
from flowinpaint.training.checkpoint import Checkpoint, RunFolder, newest_that, open_run, restore
from flowinpaint.training.config import TrainingConfig, check_same_run
from flowinpaint.training.dead_channels import REVIVED_UNTIL
from flowinpaint.training.distributed import World
from flowinpaint.training.recorder import Recorder
from flowinpaint.training.step import TrainingStep
from flowinpaint.training.validation import Scores

NAMED = 3
"""Samples or tensors that a diagnosis names; it only counts the others."""


class NotFiniteError(RuntimeError):
    """A run was stopped because its steps were no longer finite."""


@dataclass
class Progress:
    """State of a run, for a progress display."""

    step: int
    seconds: float
    """Training time, without start-up, compilation and validation."""
    share: float
    pace: float | None = None
    """Seconds per step since the last line of the log."""
    loss: float | None = None
    skipped: int = 0
    scores: Scores | None = None


@dataclass(frozen=True)
class Outcome:
    """Last step of a run, whether it was stopped before its end, and the last validation."""

    step: int
    interrupted: bool
    scores: Scores | None


@dataclass(frozen=True)
class Listener:
    """Callbacks for notes and progress; by default they do nothing."""

    note: Callable[[str], None] = lambda sentence: None
    progress: Callable[[Progress], None] = lambda progress: None


def train(
    config: TrainingConfig, out: Path, world: World, *, resume: bool = False, listener: Listener | None = None
) -> Outcome:
    """Train a configuration in a run folder, from the start or from its newest checkpoint.

    Only the first process of a world writes. SIGINT, SIGTERM and SIGHUP end the run after the current step, with a
    checkpoint.
    """
    listener = listener or Listener()
    with ExitStack() as stack:
        folder = stack.enter_context(open_run(out, resume)) if world.first else RunFolder(out)
        world.agree(0.0)  # wait until the first process has checked the folder
        saved = None
        if resume:

            def resumed(checkpoint: Checkpoint) -> tuple[Checkpoint, TrainingStep]:
                check_same_run(checkpoint.config, config)
                return checkpoint, build_step(config, world, checkpoint)

            (saved, training), faults = newest_that(folder.checkpoints, resumed)
            for fault in faults:
                listener.note(f"{fault}. Resuming from an older checkpoint.")
        else:
            training = build_step(config, world)
        for key in config.data.unused:
            listener.note(f"data.{key} is not used: data.source is {config.data.source!r}.")
        recorder = None
        if world.first:
            recorder = stack.enter_context(Recorder(folder, training, saved, listener.note))
        if not training.ready and config.run.compile:
            listener.note("Compiling the step for this GPU takes a minute or two, and less the next time.")
        return _run(training, saved, recorder, stack.enter_context(stop_signals()), listener)


def build_step(config: TrainingConfig, world: World, saved: Checkpoint | None = None) -> TrainingStep:
    """The step of a configuration, new or from a checkpoint."""
    step = saved.step if saved else 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.data.seed)
        model = build_network(config.model)
    if config.optimiser.weights and not saved:
        _load_weights(model, config.optimiser.weights)
    compiled = world.device.type == "cuda" and config.run.compile
    training = TrainingStep(model, open_source(config.data, world, step, compiled), config, world, step)
    if saved:
        restore(training.state(), saved.tensors)
    return training


def _load_weights(model: Network, name_or_path: str) -> None:
    """Load the weights of a file or method; the models may differ in settings that have no weights, such as steps."""
    tensors, own = load_model(name_or_path, "cpu").state_dict(), model.state_dict()
    if differing := sorted(tensors.keys() ^ own.keys()) or [k for k in own if own[k].shape != tensors[k].shape]:
        raise InputError(
            f"optimiser.weights must have the layers of [model], got a difference at {differing[0]} in {name_or_path}"
        )
    model.load_state_dict(tensors)


def _run(
    training: TrainingStep,
    saved: Checkpoint | None,
    recorder: Recorder | None,
    stopping: Callable[[], bool],
    listener: Listener,
) -> Outcome:
    config, world = training.config, training.world
    at = Progress(saved.step, saved.seconds, 0.0) if saved else Progress(0, 0.0, 0.0)
    at.share = config.schedule.share_done(at.step, at.seconds)
    begun: float | None = None
    """Start of the run on the clock, as if there were no breaks, start-up and validations."""

    def seconds() -> float:
        return at.seconds if begun is None else time.perf_counter() - begun

    stopped = False
    mark = (at.step, at.seconds)
    if at.share >= 1:
        listener.note(f"Nothing left to do: the run has finished {at.step} steps in {at.seconds:.0f} s.")
    while at.share < 1 and not stopped:
        every = config.optimiser.revive_every
        if every and at.share < REVIVED_UNTIL and at.step % every == 0 and (count := training.revive(at.step)):
            listener.note(f"Step {at.step}: re-initialised {count} dead channels of the network.")
        if training.ready and begun is None:
            begun = time.perf_counter() - at.seconds
        rate = config.optimiser.lr * config.schedule.rate_factor(at.step, at.share)
        training.run(rate)
        at.step += 1
        # The clocks of the other processes include their wait for the first.
        stop, at.seconds = world.agree(float(stopping()), seconds() if world.first else 0.0)
        at.share, stopped = config.schedule.share_done(at.step, at.seconds), stop > 0
        at.pace = (at.seconds - mark[1]) / (at.step - mark[0]) or None
        if _due(at, config.run.log_every):
            statistics = training.optimiser.read_statistics()
            at.loss, at.skipped = statistics.loss, statistics.skipped
            if recorder:
                recorder.write_line(at, statistics, rate)
            if statistics.skipped_in_row >= config.run.nan_limit:
                cause = diagnose(training, statistics.last_bad_sample)
                raise NotFiniteError(f"The last {statistics.skipped_in_row} steps were not finite. {cause}")
            mark = (at.step, seconds())
        if recorder and _due(at, config.validation.every):
            paused = time.perf_counter()
            at.scores = recorder.validate(at)
            if begun is not None:
                begun += time.perf_counter() - paused
        if recorder and (stopped or _due(at, config.run.checkpoint_every)):
            recorder.save(at)
        listener.progress(at)
    if recorder and at.share >= 1:
        at.scores = recorder.finish(at)
    return Outcome(at.step, at.share < 1, at.scores)


def _due(at: Progress, every: int) -> bool:
    """True at every `every`-th step and at the end of the run; every: 0 for the end only."""
    return at.share >= 1 or (every > 0 and at.step % every == 0)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn SIGNALS into a flag, which the yielded function reads; a second signal has its usual effect."""
    received = False
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield lambda: received
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}  # as after nohup

    def restore_handlers() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received = True
        note_signal(number)
        restore_handlers()

    for number in before:
        signal.signal(number, receive)
    try:
        yield lambda: received
    finally:
        restore_handlers()


def diagnose(training: TrainingStep, first: int) -> str:
    """The samples of the joint batch starting at `first` that are not finite, and the stage where this begins.

    The batch is repeated in parts, each stage checked.
    """
    local, batch, device = len(training.samples), training.config.data.batch, training.samples.device
    starts = range(first, first + batch, local)
    faults = [_fault(training, torch.arange(start, start + local, device=device)) for start in starts]
    found = "; ".join(filter(None, faults)) or "the batch alone is finite when repeated"
    return f"Step {first // batch}, samples {first} to {first + batch - 1}: {found}"


def _fault(training: TrainingStep, samples: Tensor) -> str:
    """The first stage that is not finite for these samples, "" without any."""
    batch = training.source.again(samples)
    task = training.task_of(samples, batch)
    inputs = (*batch, task.mask, task.given)
    for name, x in zip(("image", "flow", "valid", "mask", "given vectors"), inputs, strict=True):
        if bad := _bad_samples(samples, x):
            return f"the input {name} is not finite in sample {bad}"
    training.optimiser.forget_gradients()
    if bad := _bad_tensors(training.parameters):
        return f"the weights {bad} are not finite"
    output = training.predict(task, alone=True)
    prediction = output if isinstance(output, Tensor) else output[0]
    if bad := _bad_samples(samples, prediction):
        return f"the prediction is not finite in sample {bad}"
    loss = training.objective.loss(output, task)
    if not torch.isfinite(loss):
        return f"the loss is {loss.item()}, from a prediction up to {prediction.abs().max().item():.1e}"
    loss.backward()  # type: ignore[no-untyped-call]
    if bad := _bad_tensors({name: p.grad for name, p in training.parameters.items() if p.grad is not None}):
        return f"the gradients of {bad} are not finite, while the loss is {loss.item():.3g}"
    return ""


def _bad_samples(samples: Tensor, x: Tensor) -> str:
    """The samples (B,) for which x (B, ...) is not finite; all samples if x is a single non-finite number."""
    parts = torch.isfinite(x).expand(len(samples)) if x.ndim == 0 else torch.isfinite(x)
    return _some([str(n) for n in samples[~parts.reshape(len(samples), -1).all(1)].tolist()])


def _bad_tensors(tensors: Mapping[str, Tensor]) -> str:
    return _some([name for name, x in tensors.items() if not torch.isfinite(x).all()])


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
