"""The parts of a reproduction, by the names that the command line knows them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.reproduction.cost import figure_cost
from flowinpaint.reproduction.curves import figure_data, figure_density
from flowinpaint.reproduction.frames import FrameSet, SceneSample
from flowinpaint.reproduction.report import Report, write_report
from flowinpaint.reproduction.samples import figure_samples
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.study import NETWORKS, PD, StudyNetwork
from flowinpaint.reproduction.tables import table1, table2, table3

NETWORKS_PART, ALL = "networks", "all"
REPORTS: dict[str, Callable[[Session], Report]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "figure-data": figure_data,
    "figure-density": figure_density,
    "figure-cost": figure_cost,
    "figure-samples": figure_samples,
}
PARTS = (NETWORKS_PART, *REPORTS, ALL)


def check_parts(names: Sequence[str]) -> list[str]:
    """The parts to make, each once: "all" stands for every one."""
    if unknown := [name for name in names if name not in PARTS]:
        raise InputError(f"PART: {unknown[0]!r} was given; taken are {', '.join(PARTS)}.")
    return [NETWORKS_PART, *REPORTS] if ALL in names else list(dict.fromkeys(names))


def check_frames(session: Session, names: Sequence[str]) -> None:
    """Find the frames of these parts, so that what is wrong with them is known before anything is trained."""
    told = []
    if any(name in REPORTS and name not in ("table3", "figure-cost") for name in names):
        frames = session.square
        told += [] if session.choice.scenes else _stand_ins("No frames were named", frames)
    if "table3" in names:
        told += _stand_ins("None of KITTI's frames were named for Table 3", session.wide)
    for sentence in told if not session.scale.rehearsal else ():
        session.tell_once(sentence)


def _stand_ins(reason: str, frames: FrameSet) -> list[str]:
    """That generated frames are taken, where all are, for want of others."""
    if not all(isinstance(sample, SceneSample) for sample in frames.samples):
        return []
    return [f"{reason}: {len(frames.samples)} generated ones are taken."]


def train_networks(session: Session, only: Sequence[StudyNetwork] | None = None) -> list[str]:
    """Train the networks that are missing, of all or of some, and return the names of those that are there."""
    there = []
    for network in NETWORKS.values() if only is None else only:
        left_out = session.methods is not None and network.family not in session.methods
        obstacle = session.obstacle(network.family) if network.family == PD else ""
        if only is None and (left_out or obstacle):
            session.tell_once(f"{network.name} is not trained: {obstacle or 'its method is none of --methods'}.")
            continue
        if session.network(network.name) is not None:
            there.append(network.name)
    return there


def write_parts(session: Session, names: Sequence[str]) -> Iterator[tuple[str, list[Path]]]:
    """Make the reports of these names and write them, one after the other."""
    for name in names:
        session.left_out.clear()
        report = REPORTS[name](session)
        yield name, write_report(session.out, report, session.scale.rehearsal)
