"""A reproduction at work: what was asked for, what it runs on, and what its parts share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch

from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_method
from flowinpaint.evaluation.records import RunKey
from flowinpaint.methods.registry import find_method
from flowinpaint.reproduction.audience import Audience
from flowinpaint.reproduction.fields import FIELDS, FieldStore
from flowinpaint.reproduction.frames import FrameChoice, FrameSet, square_frames, wide_frames
from flowinpaint.reproduction.ledger import Ledger
from flowinpaint.reproduction.means import Means
from flowinpaint.reproduction.measuring import Entrant, Machine, Outcome, measure
from flowinpaint.reproduction.networks import NetworkShelf, Trained
from flowinpaint.reproduction.scale import Scale
from flowinpaint.reproduction.study import (
    CONTENDERS,
    DENSITIES,
    MIDDLE,
    NETWORKS,
    OURS,
    PD,
    Contender,
    explicit_parameters,
    network_at,
)
from flowinpaint.training.config import DataConfig
from flowinpaint.training.diagnosis import NotFiniteError
from flowinpaint.viz.colours import Field

MOST_ROWS = 4
"""Frames that the figure of samples shows, of as many data sets as can be."""


@dataclass
class Session:
    """methods: names of the contenders that count, None for all. records, times: files of other machines.

    left_out: why a contender or network has no place in what is written, by its name.
    """

    out: Path
    scale: Scale
    choice: FrameChoice
    machine: Machine
    shelf: NetworkShelf
    ledger: Ledger
    audience: Audience = field(default_factory=Audience)
    methods: tuple[str, ...] | None = None
    records: tuple[Path, ...] = ()
    times: tuple[Path, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    @cached_property
    def square(self) -> FrameSet:
        """The frames of Table 1, Table 2 and the figures."""
        return square_frames(self.choice, self.scale, self._training_data())

    @cached_property
    def wide(self) -> FrameSet:
        """The frames of Table 3."""
        return wide_frames(self.choice, self.scale, self._training_data())

    @cached_property
    def fields(self) -> FieldStore:
        """Filled fields of the frames that the figure of samples shows."""
        return FieldStore(self.out / FIELDS, tuple(path.parent / FIELDS for path in self.records))

    @property
    def on_gpu(self) -> bool:
        """Whether runs are made on a GPU."""
        return torch.device(self.machine.device).type == "cuda"

    def contenders(self, names: Iterable[str] = tuple(CONTENDERS)) -> list[Contender]:
        """Those of the names that the user has not excluded."""
        return [CONTENDERS[name] for name in names if self.methods is None or name in self.methods]

    def obstacle(self, name: str) -> str:
        """Why a contender cannot be run here, in a phrase; "" if it can."""
        method = find_method(name)
        if method is not None and (clause := method.not_installed()):
            return f"it {clause}"
        if name == PD and not (self.on_gpu or self.scale.rehearsal or (self.methods and PD in self.methods)):
            return "on a CPU a frame takes hours; --methods with 'pd' in it runs it all the same"
        return ""

    def entrant(
        self, contender: Contender, density: float, *, tuned: float | None = None, samples: int | None = None
    ) -> Entrant | None:
        """A contender at a density, with the network or the parameters for another density if `tuned` names one.

        samples: how many distinct ones its network was trained on. None if it has no network.
        """
        obstacle = self.obstacle(contender.name)
        trained_for = density if tuned is None else tuned
        if obstacle:
            self.left_out[contender.name] = obstacle
        if not contender.family:
            weights = "" if obstacle else check_method(contender.name)
            parameters = explicit_parameters(contender.name, trained_for)
            return Entrant(contender.name, density, contender.name, weights, parameters, compute=not obstacle)
        found = self.network(network_at(contender.family, trained_for, samples), train=not obstacle)
        if found is None:
            return None
        entrant = self.entrant_of(found, contender.name, density)
        return replace(entrant, compute=entrant.compute and not obstacle)

    def entrant_of(self, found: Trained, column: str, density: float) -> Entrant:
        """A network at a density; where its weights are not here, it has only the runs that are known."""
        if not found.here:
            self.left_out.setdefault(column, "its weights are not here, and no run of it is known")
        parameters = self.scale.sampling_of(found.network.family)
        return Entrant(column, density, str(found.weights), found.hash, parameters, compute=found.here)

    def network(self, name: str, train: bool = True) -> Trained | None:
        """A network that is there, or that is trained now; None if it may not be or its training failed."""
        if not (train and self.shelf.orders.train):
            found = self.shelf.find(name)
            if found is None and train:
                self.left_out[name] = "it is not trained"
            return found
        try:
            return self.shelf.get(name)
        except NotFiniteError as error:
            self.left_out[name] = f"its training failed: {str(error).rstrip('.')}"
            self.tell_once(f"{name} is left out: {self.left_out[name]}.")
            return None

    def measure(self, frames: FrameSet, entrants: Iterable[Entrant | None]) -> list[Outcome]:
        """What becomes of frames; a contender or network of which nothing is known is left out with a note."""
        there = [entrant for entrant in entrants if entrant is not None]
        outcomes = measure(frames, there, self.ledger, self.machine, self.audience, self._keep_field)
        known = {outcome.column for outcome in outcomes}
        for name in [name for name in self.left_out if name in known]:
            del self.left_out[name]  # another machine has run it
        for name in self.left_out if outcomes else ():
            self.tell_once(f"{name} is left out: {self.left_out[name]}.")
        return outcomes

    def means(self, frames: FrameSet, entrants: Iterable[Entrant | None]) -> Means:
        """The means of what becomes of frames; InputError if nothing does."""
        found = Means(self.measure(frames, entrants))
        if not found.columns:
            reasons = "".join(f"; {name}: {reason}" for name, reason in self.left_out.items())
            raise InputError(f"PART: nothing of it can be measured here{reasons}.")
        return found

    def table(self, frames: FrameSet, names: Iterable[str] = tuple(CONTENDERS)) -> Means:
        """The means of contenders at the paper's densities, each with the network for the density."""
        chosen = self.contenders(names)
        return self.means(frames, [self.entrant(c, d) for c in chosen for d in DENSITIES])

    def tell_once(self, sentence: str) -> None:
        """Say a sentence unless it was said before."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.audience.note(sentence)

    def _keep_field(self, key: RunKey, field: Field) -> None:
        """Keep a field of a frame that the figure of samples shows."""
        shown = self.square.spread(MOST_ROWS).samples
        if key.case == MIDDLE and any((s.dataset, s.name) == (key.dataset, key.sample) for s in shown):
            self.fields.keep(key, field)

    def _training_data(self) -> DataConfig:
        """The data that our networks are trained on."""
        return self.shelf.config(NETWORKS[network_at(OURS, MIDDLE)]).data
