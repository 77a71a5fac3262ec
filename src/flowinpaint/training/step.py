"""Training step that never waits for the device: samples, masks, forward, backward, clipping, Adam, averaging.

All state that changes between steps is in tensors that the step itself updates, so on CUDA a whole step is recorded
once as a graph and then replayed.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from flowinpaint.data import Batch
from flowinpaint.networks.network import Network
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training.batches import Source, Task, draw_given
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.dead_channels import activities, batches_to_look_at, revive
from flowinpaint.training.distributed import World
from flowinpaint.training.objectives import Objective, objective_of
from flowinpaint.training.optimiser import Optimiser

WARM_UP = 3
"""Steps before the recording, in which kernels are compiled and selected."""
AHEAD = 2
"""Steps that may wait in the device's queue: enough to keep it busy, few enough for accurate times."""


class TrainingStep:
    """The network, its optimiser and its averaged weights, and the step that updates them."""

    def __init__(self, model: Network, source: Source, config: TrainingConfig, world: World, step: int = 0) -> None:
        self.config, self.world, self.source = config, world, source
        device = world.device
        self.model = model.to(device)
        if isinstance(self.model, Neuroexplicit):
            self.model.segment = config.run.segment or None
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.objective = objective_of(config, world)
        self._draw_given = draw_given
        self.optimiser = Optimiser(self.model, self.average, config.optimiser)
        self.parameters = self.optimiser.parameters
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            if config.run.compile:
                self._draw_given = torch.compile(draw_given, dynamic=False)
                for owner in (self.model, self.objective, self.optimiser):
                    owner.compile_parts()
        self.network: Callable[[Task], Any] = partial(self.objective.apply, self.model)
        if world.size > 1:
            self.network = DistributedDataParallel(_Applied(self.model, self.objective))
        self.bf16 = config.optimiser.precision == "bfloat16" or (
            config.optimiser.precision == "auto" and device.type == "cuda"
        )
        local = world.share(config.data.batch)
        first = step * config.data.batch + world.rank * local
        self.samples = first + torch.arange(local, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._recordable = device.type == "cuda" and world.size == 1 and config.run.graph
        self._cold = WARM_UP + self._recordable if device.type == "cuda" else 0
        self._queue: deque[torch.cuda.Event] = deque()

    @property
    def ready(self) -> bool:
        """True when everything is compiled and recorded, so that steps have their final speed."""
        return self._cold == 0

    def run(self, rate: float) -> None:
        """Do one step with a learning rate."""
        self.optimiser.rate.fill_(rate)
        self.objective.set_rate(rate)
        self.source.prepare()
        if self._graph is not None:
            self._graph.replay()
        else:
            with _fastest_convolutions():
                if self._recordable:
                    self._warm_up_or_record()
                else:
                    self.step()
        self.optimiser.note_change()
        self._cold = max(0, self._cold - 1)
        self._keep_pace()

    def step(self) -> None:
        """Do the step itself, entirely on the device."""
        self.train_on(self.make_task(self.samples))
        self.samples += self.config.data.batch

    @torch.no_grad()
    def make_task(self, samples: Tensor) -> Task:
        """The task of the step with these sample numbers (B,)."""
        batch = self.source.batch(samples)
        return Task(batch, *self._draw_given(samples, self.config.data.seed, self.config.masks, batch), samples)

    def task_of(self, samples: Tensor, batch: Batch) -> Task:
        """The task for a batch of these sample numbers (B,), outside a step."""
        return Task(batch, *draw_given(samples, self.config.data.seed, self.config.masks, batch), samples)

    def train_on(self, task: Task) -> None:
        """Do a step on a given task, without generating a batch or advancing the sample numbers."""
        self.optimiser.forget_gradients()
        loss = self.objective.loss(self.predict(task), task)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            first = self.samples[0] - self.world.rank * len(self.samples)
            self.optimiser.advance(self.world.mean(loss.detach()), first, constrain=self.model.constrain_)

    def predict(self, task: Task, alone: bool = False) -> Any:
        """The network's output for a task; alone: without the other processes."""
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bf16):
            return self.objective.apply(self.model, task) if alone else self.network(task)

    def revive(self, step: int) -> int:
        """Re-initialise the channels that are dead on the next batches; return their number. Call before a step."""
        assert isinstance(self.model, Neuroexplicit) and isinstance(self.average, Neuroexplicit)
        data, totals = self.config.data, dict[str, Tensor]()
        for k in range(batches_to_look_at(data)):
            samples = self.samples + k * data.batch
            for name, mean in activities(self.model, self.task_of(samples, self.source.again(samples))).items():
                totals[name] = totals.get(name, 0) + mean
        joint = {name: self.world.mean(total) for name, total in totals.items()}
        count = revive([self.model, self.average], joint, data.seed + step)
        self.optimiser.note_change()
        return count

    def state(self) -> dict[str, Tensor]:
        """Everything a step depends on except the sample numbers, by name; the tensors themselves, not copies."""
        tensors = {f"average.{name}": value for name, value in self.average.state_dict().items()}
        return tensors | self.optimiser.state() | self.objective.state()

    def _warm_up_or_record(self) -> None:
        if self._cold > 1:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.current_stream().wait_stream(stream)
            return
        graph = torch.cuda.CUDAGraph()
        # Only this thread is recorded, because another one may be pinning memory for batches from disk.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step()
        self._graph = graph
        graph.replay()

    def _keep_pace(self) -> None:
        """Wait until at most AHEAD steps are in the device's queue."""
        if self.world.device.type != "cuda":
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._queue.append(event)
        if len(self._queue) > AHEAD:
            self._queue.popleft().synchronize()


class _Applied(nn.Module):
    """A model whose `forward` is its objective's `apply`, as DistributedDataParallel requires."""

    def __init__(self, model: Network, objective: Objective) -> None:
        super().__init__()
        self.model, self._objective = model, objective

    def forward(self, task: Task) -> Any:
        return self._objective.apply(self.model, task)


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN benchmark its algorithms for each size, which pays off for crops of one size but not in validation."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
