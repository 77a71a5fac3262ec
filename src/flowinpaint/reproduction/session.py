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
from flowinpaint.reproduction.networks import Callbacks, NetworkOptions, Networks, TrainedNetwork
from flowinpaint.reproduction.records import Records
from flowinpaint.reproduction.runs import Column, Means, RunOptions, run_columns
from flowinpaint.training.config import DataConfig
from flowinpaint.training.diagnosis import NotFiniteError
from flowinpaint.viz.colours import Field

MOST_ROWS = 4
"""Frames in the figure of samples, from as many data sets as possible."""


@dataclass
class Session:
    """Inputs of all tables and figures, and the methods to compare.

    chosen: the user's methods, None for all. times: files of inference times of other machines.
    missing: the reason why a method or network is left out, by its name.
    """

    out: Path
    scale: Scale
    frame_options: FrameOptions
    network_options: NetworkOptions
    run_options: RunOptions
    records: Records
    chosen: tuple[str, ...] | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    times: tuple[Path, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def networks(self) -> Networks:
        """The networks of this reproduction."""
        device = torch.device(self.run_options.device)
        return Networks(self.out / "networks", self.scale, self.network_options, device, self.callbacks)

    @cached_property
    def square(self) -> FrameSet:
        """The frames of Table 1, Table 2 and the figures."""
        return square_frames(self.frame_options, self.scale, self._training_data)

    @cached_property
    def wide(self) -> FrameSet:
        """The frames of Table 3."""
        return wide_frames(self.frame_options, self.scale, self._training_data)

    def among(self, names: Iterable[str] = tuple(METHODS)) -> list[ComparedMethod]:
        """The methods of these names that the user chose."""
        return [METHODS[name] for name in names if self.chosen is None or name in self.chosen]

    def obstacle(self, name: str) -> str:
        """The reason why a method cannot run here, "" if it can."""
        method = find_method(name)
        if method is not None and (clause := method.not_installed()):
            return f"it {clause}"
        on_gpu = torch.device(self.run_options.device).type == "cuda"
        if name == PD and not (on_gpu or self.scale.rehearsal or PD in (self.chosen or ())):
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
        parameters = self.scale.sampling_of(network.spec.family)
        return Column(name, density, str(network.weights), network.hash, parameters, compute=network.here)

    def network(self, name: str, train: bool = True) -> TrainedNetwork | None:
        """A network, trained now if necessary; None if training is not allowed or failed."""
        if not (train and self.network_options.train):
            found = self.networks.find(name)
            if found is None and train:
                self.missing[name] = "it is not trained"
            return found
        try:
            return self.networks.get(name)
        except NotFiniteError as error:
            self.missing[name] = f"its training failed: {str(error).rstrip('.')}"
            self.callbacks.note_once(f"{name} is left out: {self.missing[name]}.")
            return None

    def means(self, frames: FrameSet, columns: Iterable[Column | None]) -> Means:
        """The means of columns over frames. Columns without a known run are noted; InputError if all are."""
        there = [column for column in columns if column is not None]
        found = Means(
            run_columns(frames, there, self.records, self.run_options, self.callbacks, self._keep_sampled_field)
        )
        for name in self.missing.keys() & set(found.columns):
            del self.missing[name]  # another machine ran it
        if not found.columns:
            reasons = "".join(f"; {name}: {reason}" for name, reason in self.missing.items())
            raise InputError(f"PART: nothing of it can be measured here{reasons}.")
        for name, reason in self.missing.items():
            self.callbacks.note_once(f"{name} is left out: {reason}.")
        return found

    def table(self, frames: FrameSet, names: Iterable[str] = tuple(METHODS)) -> Means:
        """The means of methods at the paper's densities, each with the network for the density."""
        return self.means(frames, [self.column(method, d) for method in self.among(names) for d in DENSITIES])

    def _keep_sampled_field(self, key: RunKey, field: Field) -> None:
        """Keep a field of a frame that the figure of samples shows."""
        shown = self.square.spread(MOST_ROWS).samples
        if key.case == MIDDLE and any((s.dataset, s.name) == (key.dataset, key.sample) for s in shown):
            self.records.keep_field(key, field)

    @cached_property
    def _training_data(self) -> DataConfig:
        """The training data of our networks."""
        return self.networks.config(NETWORKS[network_at(OURS, MIDDLE)]).data
