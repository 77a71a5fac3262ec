"""The experiment: networks to train, methods to compare, and the scale of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_METHODS, PAPER_NETWORKS
from flowinpaint.methods.eed import TUNED_ALPHA, TUNED_LAMBDA

Size = tuple[int, int]
Settings = tuple[str, ...]
"""Changes to a training configuration, each of the form table.key=value."""

CONFIGS = Path(__file__).parent / "configs"
FAMILIES = {"ours": "neuroexplicit", "flownets": "flownets", "wgain": "wgain", "pd": "pd"}
"""Kinds of networks, and the configuration file of each."""
OURS, PD, EED = "ours", "pd", "eed"
DENSITIES = PAPER_DENSITIES
MIDDLE = 0.05
"""Training density of the networks in the figures."""
SAMPLE_COUNTS = (196, 1_964, 9_820, 19_640)
"""Distinct training samples in the left half of the paper's Figure 3."""
TESTED_DENSITIES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20)
"""Densities in the right half of the paper's Figure 3."""

FULL = "full"
_ABLATIONS: dict[str, tuple[str, Settings]] = {
    FULL: ("Full", ()),
    "minus-mu": ("-μ", ("model.learn_eigenvalues=false",)),
    "minus-v": ("-v", ("model.learn_eigenvectors=false",)),
    "minus-alpha": ("-α", ("model.learn_alpha=false",)),
    "plus-beta": ("+β", ("model.learn_beta=true",)),
    "plus-w": ("+W", ("model.learn_kernels=true",)),
    "decoder-2": ("decoder 2", ("model.decoder_kernel=2",)),
    "first-guess": ("first guess", ("model.flow_aware=true",)),
}
"""Labels and settings of the networks of Table 2. The last two are not in the paper: a decoder without holes, and a
network that also sees a first guess of the flow."""
ABLATIONS = {name: label for name, (label, _) in _ABLATIONS.items()}
_ABLATION_DENSITIES = "masks.density=[0.01, 0.1]"
"""One network of Table 2 covers the range."""


@dataclass(frozen=True)
class NetworkSpec:
    """A network to train: the configuration of its family, changed by settings."""

    name: str
    family: str
    settings: Settings = ()

    @property
    def config(self) -> Path:
        """The configuration file."""
        return CONFIGS / f"{FAMILIES[self.family]}.toml"


SHIPPED = ("neuroexplicit", "neuroexplicit-paper")
METHODS = {
    **{name: PAPER_METHODS[name] for name in (EED, "amle", "laplace-beltrami")},
    **PAPER_NETWORKS,
    **{name: name for name in SHIPPED},
}
"""Labels of the compared methods: the paper's names, in the order of its Table 1, and the methods shipped with the
package that are not in the paper."""


def label(name: str) -> str:
    """The label of a method in tables and figures."""
    return METHODS.get(name, name)


def network_at(family: str, density: float, samples: int | None = None) -> str:
    """The name of a family's network for a density, and for a number of distinct training samples.

    "pd" has one network for all densities, because its training uses no masks.
    """
    name = family if family == PD else f"{family}-{round(100 * density):02}"
    return name if samples is None else f"{name}-n{samples}"


def networks_at(methods: Iterable[str], *densities: float) -> list[str]:
    """The names of the networks of methods for some densities."""
    return [network_at(family, density) for family in methods if family in FAMILIES for density in densities]


def explicit_parameters(method: str, density: float) -> dict[str, float | str]:
    """Parameters of a method without a network, tuned for a density.

    `eed` uses the results of the paper's grid search. `amle` and `laplace-beltrami` use their authors' choice for
    Sintel, as in the paper; these are the defaults.
    """
    return {"lam": TUNED_LAMBDA, "alpha": TUNED_ALPHA[density]} if method == EED else {}


def _network(family: str, density: float, samples: int | None = None) -> NetworkSpec:
    masks = () if family == PD else (f"masks.density=[{density}, {density}]",)
    distinct = () if samples is None else (f"data.distinct={samples}",)
    return NetworkSpec(network_at(family, density, samples), family, (*masks, *distinct))


NETWORKS = {
    network.name: network
    for network in (
        *(_network(family, density) for family in FAMILIES for density in DENSITIES),
        *(NetworkSpec(name, OURS, (_ABLATION_DENSITIES, *own)) for name, (_, own) in _ABLATIONS.items()),
        *(_network(family, MIDDLE, samples) for family in FAMILIES for samples in SAMPLE_COUNTS),
    )
}
"""All networks, in the order of training."""


def check_names(option: str, names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The names, each once; InputError unless all are known."""
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"{option} must be one of {', '.join(known)}, got {unknown[0]!r}")
    return tuple(dict.fromkeys(names))


def budget_of(minutes: float | None = None, steps: int | None = None) -> Settings:
    """The settings of a training budget for every network, in minutes or steps; empty without either."""
    if minutes is not None and not 0 < minutes < float("inf"):
        raise InputError(f"--minutes must be a number above 0, got {minutes:g}")
    if steps is not None and steps < 1:
        raise InputError(f"--steps must be at least 1, got {steps}")
    if minutes is not None and steps is not None:
        raise InputError("exactly one of --minutes and --steps must be above 0")
    if steps is not None:
        return ("schedule.minutes=0", f"schedule.steps={steps}")
    return () if minutes is None else (f"schedule.minutes={minutes}",)


def budget_text(minutes: float, steps: int) -> str:
    """A training budget in words."""
    return f"{minutes:g} minutes" if minutes else f"{steps} steps"


@dataclass(frozen=True)
class Scale:
    """Sizes and counts of a reproduction.

    rehearsal: the results are meaningless. crop: side of the central part of a frame, used by all parts but Table 3.
    frames: at most this many per data set, 0 for all. budget: per network. Users can override both.
    scenes, wide_scenes: generated frames that replace missing data sets, of crop×crop and wide_size.
    settings: for all networks; family_settings: for those of a family.
    sampling: parameters with which "pd" fills, empty for the paper's. repeats: timed calls.
    """

    rehearsal: bool = False
    crop: int = 384
    frames: int = 0
    budget: Settings = ("schedule.minutes=3.0",)
    scenes: int = 16
    wide_scenes: int = 8
    wide_size: Size = (375, 1242)
    settings: Settings = ()
    family_settings: Mapping[str, Settings] = field(default_factory=dict)
    sampling: Mapping[str, float | str] = field(default_factory=dict)
    repeats: int = 10

    def settings_of(self, network: NetworkSpec) -> Settings:
        """The changes of this scale to a network's configuration."""
        return (*self.settings, *self.family_settings.get(network.family, ()))

    def sampling_of(self, family: str) -> dict[str, float | str]:
        """Fill parameters of the networks of a family."""
        return dict(self.sampling) if family == PD else {}


PAPER_SCALE = Scale()
QUICK_SCALE = Scale(
    rehearsal=True,
    crop=64,
    frames=2,
    budget=budget_of(steps=4),
    scenes=2,
    wide_scenes=1,
    wide_size=(64, 160),
    settings=("data.size=[64, 64]", "data.batch=2", "schedule.warmup=1", "validation.heldout=0", "run.log_every=2"),
    family_settings={
        OURS: ("model.width=8", "model.steps=[2, 3, 4, 5]"),
        "flownets": ("model.width=8",),
        "wgain": ("model.width=4",),
        PD: tuple(
            f"model.{part}.{setting}"
            for part in ("base", "fine")
            for setting in ("widths=[8, 16]", "blocks=1", "attention=[0, 0]")
        ),
    },
    sampling={"sampling_steps": 4, "resampling_steps": 2},
    repeats=2,
)
