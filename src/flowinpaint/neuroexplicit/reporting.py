"""Progress of a fill: a backend that reports the finished share after each step of `method.fill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flowinpaint.neuroexplicit.config import START_STEPS, per_level
from flowinpaint.neuroexplicit.method import Backend
from flowinpaint.progress import Tell, part_of
from flowinpaint.result import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from flowinpaint.diffusion.data_term import DataTerm
    from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
    from flowinpaint.neuroexplicit.method import Operator
    from flowinpaint.result import ProgressCallback

NETWORK_STEPS = 500
"""Cost of the network at a pixel, in steps of diffusion: on the CPU about three quarters of the flagship's fill."""


class ConfiguredBackend(Backend, Protocol):
    """A backend of one model."""

    config: NeuroexplicitConfig


class Reporting:
    """The steps of another backend. On CUDA, whose launches return early, a share counts launches."""

    def __init__(self, backend: Backend, config: NeuroexplicitConfig, progress: ProgressCallback) -> None:
        self._backend, self._config, self._progress = backend, config, progress
        self.pull, self.refine, self.edge_weights = backend.pull, backend.refine, backend.edge_weights
        self._level, self._levels, self._steps, self._guessed = 1, 1, 0, False
        self._cost, self._whole = 0.0, 1.0

    def push(self, data: DataTerm, levels: int) -> list[DataTerm]:
        """The data term of every level; their sizes determine the cost of all steps."""
        given = self._backend.push(data, levels)
        config, pixels = self._config, [_pixels(level) for level in reversed(given)]
        steps = per_level(config.steps, levels)
        if config.flow_aware:
            steps = [a + b for a, b in zip(steps, per_level(config.guess_steps, levels), strict=True)]
        self._levels = levels
        self._whole = NETWORK_STEPS * pixels[-1] + sum(n * size for n, size in zip(steps, pixels, strict=True))
        if config.start == "pull":
            self._whole += START_STEPS * pixels[0]
        return given

    def network(self, image: Tensor, guess: Tensor | None, data: DataTerm, tell: Tell | None = None) -> list[Tensor]:
        """The maps of the network."""
        start, end = self._cost, self._cost + NETWORK_STEPS * _pixels(data)
        maps = self._backend.network(image, guess, data, part_of(self._tell, start, end))
        self._tell(end)
        self._guessed = True
        return maps

    def diffuse(self, u: Tensor, data: DataTerm, operator: Operator, steps: int) -> Tensor:
        """One FSI cycle; those after the network count as iterations and levels."""
        v = self._backend.diffuse(u, data, operator, steps)
        if self._guessed:
            self._steps += steps
        self._tell(self._cost + steps * _pixels(data))
        if self._guessed:
            self._level = min(self._levels, self._level + 1)
        return v

    def _tell(self, cost: float) -> None:
        self._cost = cost
        self._progress(Progress(self._level, self._levels, self._steps, share=min(1.0, cost / self._whole)))


def reported(backend: ConfiguredBackend, progress: ProgressCallback | None) -> Backend:
    """The backend itself without `progress`, otherwise one that reports its steps."""
    return backend if progress is None else Reporting(backend, backend.config, progress)


def _pixels(data: DataTerm) -> int:
    return data.f.shape[-2] * data.f.shape[-1]
