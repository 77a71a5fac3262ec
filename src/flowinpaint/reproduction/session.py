"""A reproduction at work: the compared methods on this machine, and what all tables and figures share."""

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
from flowinpaint.reproduction.experiment import (
    DENSITIES,
    METHODS,
    MIDDLE,
    NETWORKS,
    OURS,
    PD,
    ComparedMethod,
    Scale,
    explicit_parameters,
    network_at,
)
from flowinpaint.reproduction.frames import FrameOptions, FrameSet, square_frames, wide_frames
from flowinpaint.reproduction.networks import Callbacks, Networks, TrainedNetwork
from flowinpaint.reproduction.records import FieldStore, Records
from flowinpaint.reproduction.runs import Column, Means, RunOptions, run_columns
from flowinpaint.training.config import DataConfig
from flowinpaint.training.loop import NotFiniteError
from flowinpaint.viz.colours import Field

MOST_ROWS = 4
"""Frames in the figure of samples, from as many data sets as possible."""


class Methods:
    """The compared methods: the chosen ones, the obstacles to running them here, and their networks.

    missing: the reason why a method or network is left out, by its name.
    """

    def __init__(
        self, networks: Networks, device: str, chosen: tuple[str, ...] | None = None, callbacks: Callbacks | None = None
    ) -> None:
        self.networks, self.chosen = networks, chosen
        self.missing: dict[str, str] = {}
        self._on_gpu = torch.device(device).type == "cuda"
        self._callbacks = callbacks or Callbacks()

    def among(self, names: Iterable[str] = tuple(METHODS)) -> list[ComparedMethod]:
        """The methods of these names that the user chose."""
        return [METHODS[name] for name in names if self.chosen is None or name in self.chosen]

    def obstacle(self, name: str) -> str:
        """The reason why a method cannot run here, "" if it can."""
        method = find_method(name)
        if method is not None and (clause := method.not_installed()):
            return f"it {clause}"
        if name == PD and not (self._on_gpu or self.networks.scale.rehearsal or PD in (self.chosen or ())):
            return "on a CPU a frame takes hours; name 'pd' in --methods to run it anyway"
        return ""

    def column(
        self, method: ComparedMethod, density: float, *, tuned: float | None = None, samples: int | None = None
    ) -> Column | None:
        """A method's column at a density; None if its network is missing.

        tuned: the density of its network or parameters, if another. samples: distinct training samples of its network.
        """
        obstacle = self.obstacle(method.name)
        tuned = density if tuned is None else tuned
        if obstacle:
            self.missing[method.name] = obstacle
        if not method.family:
            weights = "" if obstacle else check_method(method.name)
            parameters = explicit_parameters(method.name, tuned)
            return Column(method.name, density, method.name, weights, parameters, compute=not obstacle)
        network = self.network(network_at(method.family, tuned, samples), train=not obstacle)
        if network is None:
            return None
        column = self.network_column(network, method.name, density)
        return replace(column, compute=column.compute and not obstacle)

    def network_column(self, network: TrainedNetwork, name: str, density: float) -> Column:
        """A network's column at a density; without its weights here, it has known records only."""
        if not network.here:
            self.missing.setdefault(name, "its weights are not here, and no run of it is known")
        parameters = self.networks.scale.sampling_of(network.spec.family)
        return Column(name, density, str(network.weights), network.hash, parameters, compute=network.here)

    def network(self, name: str, train: bool = True) -> TrainedNetwork | None:
        """A network, trained now if necessary; None if training is not allowed or failed."""
        if not (train and self.networks.options.train):
            found = self.networks.find(name)
            if found is None and train:
                self.missing[name] = "it is not trained"
            return found
        try:
            return self.networks.get(name)
        except NotFiniteError as error:
            self.missing[name] = f"its training failed: {str(error).rstrip('.')}"
            self._callbacks.note_once(f"{name} is left out: {self.missing[name]}.")
            return None


@dataclass
class Session:
    """Inputs of all tables and figures. times: files of inference times of other machines."""

    out: Path
    scale: Scale
    frame_options: FrameOptions
    run_options: RunOptions
    methods: Methods
    records: Records
    fields: FieldStore
    callbacks: Callbacks = field(default_factory=Callbacks)
    times: tuple[Path, ...] = ()

    @cached_property
    def square(self) -> FrameSet:
        """The frames of Table 1, Table 2 and the figures."""
        return square_frames(self.frame_options, self.scale, self._training_data())

    @cached_property
    def wide(self) -> FrameSet:
        """The frames of Table 3."""
        return wide_frames(self.frame_options, self.scale, self._training_data())

    def means(self, frames: FrameSet, columns: Iterable[Column | None]) -> Means:
        """The means of columns over frames. Columns without a known run are noted; InputError if all are."""
        there = [column for column in columns if column is not None]
        found = Means(
            run_columns(frames, there, self.records, self.run_options, self.callbacks, self._keep_sampled_field)
        )
        missing = self.methods.missing
        for name in missing.keys() & set(found.columns):
            del missing[name]  # another machine ran it
        if not found.columns:
            reasons = "".join(f"; {name}: {reason}" for name, reason in missing.items())
            raise InputError(f"PART: nothing of it can be measured here{reasons}.")
        for name, reason in missing.items():
            self.callbacks.note_once(f"{name} is left out: {reason}.")
        return found

    def table(self, frames: FrameSet, names: Iterable[str] = tuple(METHODS)) -> Means:
        """The means of methods at the paper's densities, each with the network for the density."""
        chosen = self.methods.among(names)
        return self.means(frames, [self.methods.column(method, density) for method in chosen for density in DENSITIES])

    def _keep_sampled_field(self, key: RunKey, field: Field) -> None:
        """Keep a field of a frame that the figure of samples shows."""
        shown = self.square.spread(MOST_ROWS).samples
        if key.case == MIDDLE and any((s.dataset, s.name) == (key.dataset, key.sample) for s in shown):
            self.fields.keep(key, field)

    def _training_data(self) -> DataConfig:
        """The training data of our networks."""
        return self.methods.networks.config(NETWORKS[network_at(OURS, MIDDLE)]).data
