"""How large a reproduction is: the paper's size, or a rehearsal of everything in minutes on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowinpaint.errors import InputError
from flowinpaint.reproduction.study import OURS, PD, StudyNetwork

Size = tuple[int, int]
Settings = tuple[str, ...]


@dataclass(frozen=True)
class Budget:
    """How long each network is trained, the same for all: minutes, or if there are none, steps."""

    minutes: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        if bool(self.minutes) == bool(self.steps):
            raise InputError("--minutes and --steps: both or none were given; one of them, above 0, is taken.")

    @property
    def settings(self) -> Settings:
        """The budget as settings of a configuration."""
        if self.minutes:
            return (f"schedule.minutes={self.minutes}",)
        return ("schedule.minutes=0", f"schedule.steps={self.steps}")


def budget_text(minutes: float, steps: int) -> str:
    """What a schedule of so many minutes, or if there are none, steps, asks for."""
    return f"{minutes:g} minutes" if minutes else f"{steps} steps"


@dataclass(frozen=True)
class Scale:
    """Sizes and counts.

    rehearsal: nothing that comes out means anything. crop: the side of the middle part of a frame that is used, but in
    Table 3. frames: of a data set at most, 0 for all, and budget: of a network, unless the user says otherwise. scenes,
    wide_scenes: how many generated frames stand in for data sets that are not there, of crop×crop and of wide_size.
    settings: of all networks, family_settings: of those of a family, on top of their configuration. sampling:
    parameters of "pd" where a field is filled; none are the paper's. repeats: calls that are timed.
    """

    rehearsal: bool = False
    crop: int = 384
    frames: int = 0
    budget: Budget = field(default_factory=lambda: Budget(minutes=3.0))
    scenes: int = 16
    wide_scenes: int = 8
    wide_size: Size = (375, 1242)
    settings: Settings = ()
    family_settings: Mapping[str, Settings] = field(default_factory=dict)
    sampling: Mapping[str, float | str] = field(default_factory=dict)
    repeats: int = 10

    def settings_of(self, network: StudyNetwork) -> Settings:
        """What this scale changes in a network's configuration."""
        return (*self.settings, *self.family_settings.get(network.family, ()))

    def sampling_of(self, family: str) -> dict[str, float | str]:
        """Parameters with which the networks of a family fill."""
        return dict(self.sampling) if family == PD else {}


PAPER_SCALE = Scale()
QUICK_SCALE = Scale(
    rehearsal=True,
    crop=64,
    frames=2,
    budget=Budget(steps=4),
    scenes=2,
    wide_scenes=1,
    wide_size=(64, 160),
    settings=(
        "data.size=[64, 64]",
        "data.batch=2",
        "schedule.warmup=1",
        "validation.heldout=0",
        "run.log_every=2",
    ),
    family_settings={
        OURS: ("model.width=8", "model.steps=[2, 3, 4, 5]"),
        "flownets": ("model.width=8",),
        "wgain": ("model.width=4",),
        PD: (
            "model.base.widths=[8, 16]",
            "model.base.blocks=1",
            "model.base.attention=[0, 0]",
            "model.fine.widths=[8, 16]",
            "model.fine.blocks=1",
            "model.fine.attention=[0, 0]",
        ),
    },
    sampling={"sampling_steps": 4, "resampling_steps": 2},
    repeats=2,
)
