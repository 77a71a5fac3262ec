"""Targets: the tables and figures by the names that the command line takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowinpaint.reproduction.cost import figure_cost
from flowinpaint.reproduction.curves import figure_data, figure_density
from flowinpaint.reproduction.experiment import NETWORKS, PD, check_names
from flowinpaint.reproduction.frames import FrameSet, SceneSample
from flowinpaint.reproduction.page import Page
from flowinpaint.reproduction.samples import figure_samples
from flowinpaint.reproduction.session import Session
from flowinpaint.reproduction.tables import table1, table2, table3

NETWORKS_PART, ALL = "networks", "all"
PAGES: dict[str, Callable[[Session], Page]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "figure-data": figure_data,
    "figure-density": figure_density,
    "figure-cost": figure_cost,
    "figure-samples": figure_samples,
}
PARTS = (NETWORKS_PART, *PAGES, ALL)


def check_parts(names: Sequence[str]) -> list[str]:
    """The parts to make, each once; "all" stands for every one."""
    checked = check_names("PART", names, PARTS)
    return [NETWORKS_PART, *PAGES] if ALL in names else list(checked)


def check_frames(session: Session, names: Sequence[str]) -> None:
    """Find the frames of the parts before anything is trained, and note where generated ones replace others."""
    needed: list[tuple[str, FrameSet]] = []
    if any(name in PAGES and name not in ("table3", "figure-cost") for name in names):
        needed.append(("" if session.frame_options.scenes else "No frames were named", session.square))
    if "table3" in names:
        needed.append(("None of KITTI's frames were named for Table 3", session.wide))
    for reason, frames in needed:
        generated = all(isinstance(sample, SceneSample) for sample in frames.samples)
        if generated and reason and not session.scale.rehearsal:
            session.callbacks.note_once(f"{reason}: using {len(frames.samples)} generated ones.")


def train_networks(session: Session, only: Sequence[str] | None = None) -> list[str]:
    """Train the missing networks, of all or of some, and return the names of the finished ones."""
    finished = []
    for name in NETWORKS if only is None else only:
        family = NETWORKS[name].family
        obstacle = session.obstacle(family) if family == PD else ""
        if only is None and (obstacle or not session.among([family])):
            session.callbacks.note_once(f"{name} is not trained: {obstacle or 'its method is none of --methods'}.")
        elif session.network(name) is not None:
            finished.append(name)
    return finished
