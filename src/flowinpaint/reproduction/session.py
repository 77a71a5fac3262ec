"""Session of a reproduction: the compared methods on this machine, and the shared inputs of tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_method
from flowinpaint.evaluation.records import Record, RunKey
from flowinpaint.evaluation.runner import Job, complete, frame_key
from flowinpaint.methods.registry import find_method
from flowinpaint.reproduction.experiment import (
    ABLATIONS,
    DENSITIES,
    FAMILIES,
    METHODS,
    MIDDLE,
    NETWORKS,
    OURS,
    PD,
    Scale,
    explicit_parameters,
    network_at,
)
from flowinpaint.reproduction.frames import FrameOptions, FrameSet, SceneSample, square_frames, wide_frames
from flowinpaint.reproduction.networks import Callbacks, NetworkOptions, Networks, TrainedNetwork
from flowinpaint.reproduction.runs import Column, ColumnRecord, Means, Records, RunOptions, means_of, run_all
from flowinpaint.training.config import DataConfig
from flowinpaint.training.loop import NotFiniteError
from flowinpaint.viz.colours import Field

MOST_ROWS = 4
"""Frames in the figure of samples, from as many data sets as possible."""


@dataclass
class Session:
    """Inputs of all tables and figures, and the methods to compare.

    chosen: the user's methods, None for all. times: files of inference times from other machines.
    missing: the reason why a method or network is left out, by name.
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
        return Networks(
            self.out / "networks", self.scale, self.network_options, self.run_options.device, self.callbacks
        )

    @cached_property
    def square(self) -> FrameSet:
        """The frames of Table 1, Table 2 and the figures."""
        return square_frames(self.frame_options, self.scale, self._training_data)

    @cached_property
    def wide(self) -> FrameSet:
        """The frames of Table 3."""
        return wide_frames(self.frame_options, self.scale, self._training_data)

    def among(self, names: Iterable[str] = tuple(METHODS)) -> list[str]:
        """The methods of these names that the user chose."""
        return [name for name in names if self.chosen is None or name in self.chosen]

    def obstacle(self, name: str) -> str:
        """The reason why a method cannot run here, "" if it can."""
        method = find_method(name)
        if method is not None and (clause := method.not_installed()):
            return f"it {clause}"
        on_gpu = self.run_options.device.startswith("cuda")
        if name == PD and not (on_gpu or self.scale.rehearsal or PD in (self.chosen or ())):
            return "on a CPU a frame takes hours; name 'pd' in --methods to run it anyway"
        return ""

    def check_frames(self, parts: Collection[str]) -> None:
        """Find the frames of the parts before anything is trained, and note if generated frames replace others."""
        needed: list[tuple[str, FrameSet]] = []
        if set(parts) - {"networks", "table3", "figure-cost"}:
            needed.append(("" if self.frame_options.scenes else "No frames were named", self.square))
        if "table3" in parts:
            needed.append(("None of KITTI's frames were named for Table 3", self.wide))
        for reason, frames in needed:
            generated = all(isinstance(sample, SceneSample) for sample in frames.samples)
            if generated and reason and not self.scale.rehearsal:
                self.callbacks.note_once(f"{reason}: using {len(frames.samples)} generated ones.")

    def train(self, only: Collection[str] | None = None) -> list[str]:
        """Train the missing networks (only: among these names), and return the names of the finished ones."""
        finished = []
        for name in NETWORKS if only is None else only:
            family = NETWORKS[name].family
            obstacle = self.obstacle(family) if family == PD else ""
            if only is None and (obstacle or not self.among([family])):
                self.callbacks.note_once(f"{name} is not trained: {obstacle or 'its method is none of --methods'}.")
            elif self.network(name) is not None:
                finished.append(name)
        return finished

    def column(
        self, name: str, density: float, *, tuned: float | None = None, samples: int | None = None
    ) -> Column | None:
        """The column of a method, or of a network of Table 2, at a density; None if its network is missing.

        tuned: the density of its network or parameters, if different. samples: its network's distinct training samples.
        """
        obstacle = self.obstacle(name)
        tuned = density if tuned is None else tuned
        if obstacle:
            self.missing[name] = obstacle
        if name not in ABLATIONS and name not in FAMILIES:
            weights = "" if obstacle else check_method(name)
            return Column(name, density, name, weights, explicit_parameters(name, tuned), compute=not obstacle)
        trained = network_at(name, tuned, samples) if name in FAMILIES else name
        network = self.network(trained, train=not obstacle)
        if network is None:
            return None
        here = network.weights.is_file()
        if not here:  # it only has known records
            self.missing.setdefault(name, "its weights are not here, and no run of it is known")
        compute = here and not obstacle
        return Column(name, density, str(network.weights), network.hash, self.scale.sampling_of(name), compute)

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
        found = means_of(self.run(frames, [column for column in columns if column is not None]))
        for name in self.missing.keys() & set(found.columns):
            del self.missing[name]  # another machine ran it
        if not found:
            reasons = "".join(f"; {name}: {reason}" for name, reason in self.missing.items())
            raise InputError(f"PART cannot be measured here{reasons}")
        for name, reason in self.missing.items():
            self.callbacks.note_once(f"{name} is left out: {reason}.")
        return found

    def run(self, frames: FrameSet, columns: Sequence[Column]) -> list[ColumnRecord]:
        """The record of each column on each frame that has enough valid pixels for its density.

        Runs are done column by column, so that each network is loaded once. Each record is saved immediately.
        """
        options, cases = self.run_options, list(dict.fromkeys(column.case for column in columns))
        keys = {
            (sample, case): frame_key(sample, case, options.seed, options.device, frames.crop)
            for sample in frames.samples
            for case in sample.possible(cases)
        }
        wanted = [
            (column, sample, column.key(keys[sample, column.case]))
            for column in columns
            for sample in frames.samples
            if (sample, column.case) in keys
        ]
        find = self.records.find
        # By key, since two columns may need the same run.
        missing = {key.text: Job(s, (key,)) for column, s, key in wanted if column.compute and find(key) is None}
        made: dict[str, Record] = {}
        if jobs := list(missing.values()):
            run = partial(run_all, batch=options.batch, keep_field=self._keep_sampled_field)
            with self.callbacks.runs() as report:
                records = complete(self.records.store, jobs, options.jobs, report, run)
            self.records.know(records)
            made = {record.key.text: record for record in records}
        found = ((column.name, find(key) or made.get(key.text)) for column, _, key in wanted)
        return [(name, record) for name, record in found if record is not None]

    def table(self, frames: FrameSet, without: str = "") -> Means:
        """The means of all methods but one at the paper's densities, each with the network for the density."""
        names = [name for name in self.among() if name != without]
        return self.means(frames, [self.column(name, d) for name in names for d in DENSITIES])

    def _keep_sampled_field(self, key: RunKey, field: Field) -> None:
        """Save a field if the figure of samples shows its frame."""
        shown = self.square.spread(MOST_ROWS).samples
        if key.case == MIDDLE and any((s.dataset, s.name) == (key.dataset, key.sample) for s in shown):
            self.records.keep_field(key, field)

    @cached_property
    def _training_data(self) -> DataConfig:
        """The training data of our networks."""
        return self.networks.config(NETWORKS[network_at(OURS, MIDDLE)]).data
