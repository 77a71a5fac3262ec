"""What is counted while a run goes on, on the device: whether steps were finite, and what came out of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from flowinpaint.training.config import OptimiserConfig

EMA_RISE = 10.0
"""The average keeps at most (1 + n) / (EMA_RISE + n) in its n-th step, so that it soon forgets the first weights."""
_NORM_EPSILON = 1e-6
"""Beside the norm that a gradient is divided by, as in PyTorch's clipping."""


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


class Verdict(NamedTuple):
    """What a step is to do, each ()."""

    good: Tensor
    """Whether it counts: loss and gradient are finite."""
    shrinkage: Tensor
    """What the gradient is divided by, so that it is clipped."""
    first_share: Tensor
    second_share: Tensor
    """How much of the gradients' averages is there already: 1 - βᵗ."""
    gain: Tensor
    """Share of the new weights in their average."""


class Counters:
    """Sums since the last look, and counts of the whole run."""

    def __init__(self, device: torch.device) -> None:
        # In two tensors, so that counting is one operation on each of them.
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.counts = torch.zeros(5, dtype=torch.int64, device=device)
        self._judge = judge

    def compile_parts(self) -> None:
        """Compile, in place, the judgement of a step."""
        self._judge = torch.compile(judge, dynamic=False)

    def judge(self, loss: Tensor, norm: Tensor, first: Tensor, options: OptimiserConfig) -> Verdict:
        """Count a step with a loss (), a norm () of its gradient and a first sample (), and say what it is to do."""
        return self._judge(self.sums, self.counts, loss, norm, first, options)

    def state(self) -> dict[str, Tensor]:
        """All of them by name; the tensors themselves, not copies."""
        return dict(zip(("loss_sum", "norm_sum"), self.sums.unbind(), strict=True)) | dict(
            zip(
                ("counted", "updates", "skipped", "skipped_in_row", "last_bad_sample"),
                self.counts.unbind(),
                strict=True,
            )
        )

    def read(self) -> Tally:
        """Wait for the device, take what was summed up since the last time, and start the sums afresh."""
        loss_sum, norm_sum = self.sums.tolist()
        counted, _, skipped, in_row, last_bad_sample = self.counts.tolist()
        self.sums.zero_()
        self.counts[0].zero_()
        return Tally(
            loss=loss_sum / counted if counted else None,
            grad_norm=norm_sum / counted if counted else None,
            skipped=skipped,
            skipped_in_row=in_row,
            last_bad_sample=last_bad_sample,
        )


def judge(sums: Tensor, counts: Tensor, loss: Tensor, norm: Tensor, first: Tensor, options: OptimiserConfig) -> Verdict:
    """The verdict on a step; sums (2,) and counts (5,) as in `Counters.state` are brought up to date in place."""
    good = torch.isfinite(norm) & torch.isfinite(loss)
    sums += torch.where(good, torch.stack([loss, norm]), 0.0)
    counted, updates, skipped, in_row, last_bad = counts.unbind()
    updates = updates + good
    bad_row = torch.where(good, 0, in_row + 1)
    counts.copy_(torch.stack([counted + good, updates, skipped + ~good, bad_row, torch.where(good, last_bad, first)]))
    shrinkage = ((norm + _NORM_EPSILON) / options.clip).clamp(min=1) if options.clip else torch.ones_like(norm)
    kept = torch.clamp((1 + updates) / (EMA_RISE + updates), max=options.ema)
    first_share, second_share = (1 - torch.pow(beta, updates.double()) for beta in options.betas)
    return Verdict(good, shrinkage, first_share.float(), second_share.float(), torch.where(good, 1 - kept, 0.0))
