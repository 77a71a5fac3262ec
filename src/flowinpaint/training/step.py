"""One training step that never waits for the device: samples, masks, forward, backward, clipping, Adam, averaging.

Everything that changes from step to step is a tensor that the step itself advances, so on CUDA a whole step is recorded
once as a graph and then replayed.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from flowinpaint.data.batch import Batch
from flowinpaint.draws import Draws
from flowinpaint.neural.neuroexplicit import Neuroexplicit
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.distributed import World
from flowinpaint.training.source import Source

LOSS_EPSILON = 1e-6
"""Beside the squared error under the root, whose slope is infinite at 0."""
MASK_SEED = 7919
"""Added to the seed: masks must not repeat the numbers that their scenes were drawn from."""
EMA_RISE = 10.0
"""The average keeps at most (1 + n) / (EMA_RISE + n) in its n-th step, so that it soon forgets the first weights."""
WARM_UP = 3
"""Steps before the recording, in which kernels are compiled and chosen."""
AHEAD = 2
"""Steps that may wait in the device's queue: it never idles, and the clock tells the truth."""


def epe_loss(prediction: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """The endpoint error of (B, C, H, W) over each sample's valid pixels (B, 1, H, W), then over samples."""
    squared = (prediction - truth).square().sum(1, keepdim=True)
    error = torch.sqrt(squared + LOSS_EPSILON) * valid
    return (error.sum((1, 2, 3)) / valid.sum((1, 2, 3)).clamp(min=1)).mean()


@dataclass
class Tally:
    """What happened since the last look: means over the steps that counted, and the steps that did not."""

    loss: float | None
    grad_norm: float | None
    skipped: int
    """Steps of the whole run that were not finite."""
    skipped_in_row: int
    last_bad_sample: int
    """The first sample of the latest joint batch that was skipped; 0 if there was none."""


class TrainingStep:
    """The network, its optimiser, its averaged weights and its counters, and the step that advances them all."""

    def __init__(
        self, model: Neuroexplicit, source: Source, config: TrainingConfig, world: World, step: int = 0
    ) -> None:
        self.config, self.world, self.source = config, world, source
        device = world.device
        self.model = model.to(device)
        self.model.segment = config.run.segment or None
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")
            if config.run.compile:
                self.model.compile_parts()
        self.network: nn.Module = self.model
        if world.size > 1:
            self.network = DistributedDataParallel(self.model)
        self.bf16 = config.optimiser.precision == "bfloat16" or (
            config.optimiser.precision == "auto" and device.type == "cuda"
        )
        self.parameters = dict(self.model.named_parameters())
        self.averages: list[Tensor] = [self.average.get_parameter(name) for name in self.parameters]
        self.rate = torch.zeros((), device=device)
        self.optimiser = self._adam()

        local = world.share(config.data.batch)
        first = step * config.data.batch + world.rank * local
        self.samples = first + torch.arange(local, device=device)
        self.counters = {
            name: torch.zeros((), dtype=dtype, device=device)
            for name, dtype in {
                "loss_sum": torch.float64,
                "norm_sum": torch.float64,
                "counted": torch.int64,
                "updates": torch.int64,
                "skipped": torch.int64,
                "skipped_in_row": torch.int64,
                "last_bad_sample": torch.int64,
            }.items()
        }
        self._graph: torch.cuda.CUDAGraph | None = None
        self._recordable = device.type == "cuda" and world.size == 1 and config.run.graph
        self._cold = WARM_UP + self._recordable if device.type == "cuda" else 0
        self._queue: deque[torch.cuda.Event] = deque()

    @property
    def ready(self) -> bool:
        """Whether everything is compiled and recorded, so that the next steps are as fast as all to come."""
        return self._cold == 0

    def run(self, rate: float) -> None:
        """Do one step with a learning rate."""
        self.rate.fill_(rate)
        self.source.prepare()
        if self._graph is not None:
            self._graph.replay()
        else:
            with _fastest_convolutions():
                if self._recordable:
                    self._warm_up_or_record()
                else:
                    self.step()
        self._cold = max(0, self._cold - 1)
        self._keep_pace()

    def step(self) -> None:
        """The step itself, all of it on the device."""
        with torch.no_grad():
            batch = self.source.batch(self.samples)
            mask = self.draw_mask(self.samples, batch)
        for parameter in self.parameters.values():
            parameter.grad = None
        loss = epe_loss(self.predict(batch, mask), batch.flow, batch.valid)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self._update(self.world.mean(loss.detach()))
            self.samples += self.config.data.batch

    def draw_mask(self, samples: Tensor, batch: Batch) -> Tensor:
        """Which pixels of a batch are given, (B, 1, H, W)."""
        draws = Draws(samples, self.config.data.seed + MASK_SEED)
        return self.config.masks.draw(draws, batch.image, batch.flow, batch.valid)

    def predict(self, batch: Batch, mask: Tensor, network: nn.Module | None = None) -> Tensor:
        """The network's dense field (B, C, H, W) from the vectors of the mask."""
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bf16):
            prediction: Tensor = (network or self.network)(batch.image, mask, batch.flow)
        return prediction

    def read_tally(self) -> Tally:
        """Wait for the device, take what was summed up since the last time, and start the sums afresh."""
        values = {name: counter.item() for name, counter in self.counters.items()}
        for name in ("loss_sum", "norm_sum", "counted"):
            self.counters[name].zero_()
        count = values["counted"]
        return Tally(
            loss=values["loss_sum"] / count if count else None,
            grad_norm=values["norm_sum"] / count if count else None,
            skipped=int(values["skipped"]),
            skipped_in_row=int(values["skipped_in_row"]),
            last_bad_sample=int(values["last_bad_sample"]),
        )

    def state(self) -> dict[str, Tensor]:
        """All that a step depends on beside the sample numbers, by name; the tensors themselves, not copies."""
        tensors = {f"average.{name}": value for name, value in self.average.state_dict().items()}
        for name, parameter in self.parameters.items():
            tensors[f"weights.{name}"] = parameter.detach()
            tensors |= {f"adam.{key}.{name}": value for key, value in self.optimiser.state[parameter].items()}
        return tensors | {f"counters.{name}": counter for name, counter in self.counters.items()}

    def _adam(self) -> torch.optim.Adam:
        options = self.config.optimiser
        adam = torch.optim.Adam(
            self.parameters.values(),
            lr=self.rate,
            betas=options.betas,
            eps=options.eps,
            fused=True,
            capturable=self.world.device.type == "cuda",
        )
        for parameter in self.parameters.values():  # Adam would make it in the first step, too late to load into
            adam.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        # Fused Adam leaves weights, moments and its step count alone where this is 1: how GradScaler skips a step.
        self.found_inf = torch.zeros((), device=self.world.device)
        adam.found_inf = self.found_inf  # type: ignore[attr-defined]
        return adam

    def _update(self, loss: Tensor) -> None:
        """Clip, take Adam's step and average, unless loss or gradient are not finite; count either way."""
        options, counters = self.config.optimiser, self.counters
        norm = get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        good = torch.isfinite(norm) & torch.isfinite(loss)
        if options.clip:
            clip_grads_with_norm_(self.parameters.values(), options.clip, norm)
        self.found_inf.copy_(~good)
        self.optimiser.step()
        self.model.constrain_()

        counters["updates"] += good
        updates = counters["updates"].float()
        kept = torch.clamp((1 + updates) / (EMA_RISE + updates), max=options.ema)
        gain = torch.where(good, 1 - kept, torch.zeros_like(kept))
        weights: list[Tensor] = [p.detach() for p in self.parameters.values()]
        change = list(torch._foreach_sub(weights, self.averages))
        torch._foreach_mul_(change, gain)
        torch._foreach_add_(self.averages, change)

        counters["loss_sum"] += torch.where(good, loss, torch.zeros_like(loss))
        counters["norm_sum"] += torch.where(good, norm, torch.zeros_like(norm))
        counters["counted"] += good
        counters["skipped"] += ~good
        counters["skipped_in_row"].add_(1).mul_(~good)
        first = self.samples[0] - self.world.rank * len(self.samples)
        counters["last_bad_sample"].copy_(torch.where(good, counters["last_bad_sample"], first))

    def _warm_up_or_record(self) -> None:
        if self._cold > 1:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.current_stream().wait_stream(stream)
            return
        graph = torch.cuda.CUDAGraph()
        # Only this thread is recorded: another one may be pinning memory for batches from disk.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.step()
        self._graph = graph
        graph.replay()

    def _keep_pace(self) -> None:
        """Wait until no more than AHEAD steps are in the device's queue."""
        if self.world.device.type != "cuda":
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._queue.append(event)
        if len(self._queue) > AHEAD:
            self._queue.popleft().synchronize()


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms at each size: worth it for crops of one size, not for frames of a validation."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
