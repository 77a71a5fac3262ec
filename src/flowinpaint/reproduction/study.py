"""What the paper compares: the networks to train, and the methods of its tables with the network of each density."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flowinpaint.errors import InputError
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_METHODS, PAPER_NETWORKS
from flowinpaint.methods.eed import TUNED_ALPHA, TUNED_LAMBDA

CONFIGS = Path(__file__).parent / "configs"
FAMILIES = {"ours": "neuroexplicit", "flownets": "flownets", "wgain": "wgain", "pd": "pd"}
"""Networks of one kind, and the configuration that they are trained by."""
OURS, PD = "ours", "pd"
DENSITIES = PAPER_DENSITIES
MIDDLE = 0.05
"""The density of the figures' networks."""
SAMPLE_COUNTS = (196, 1_964, 9_820, 19_640)
"""Distinct training samples in the left half of the paper's Figure 3."""
TESTED_DENSITIES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.15, 0.20)
"""Those of the right half."""
ABLATION_DENSITIES = (0.01, 0.10)
"""The range that one network of Table 2 learns, in place of a network for each density."""


@dataclass(frozen=True)
class StudyNetwork:
    """A network to train: its family's configuration, changed by settings of the form table.key=value."""

    name: str
    family: str
    settings: tuple[str, ...] = ()

    @property
    def config(self) -> Path:
        """The configuration file."""
        return CONFIGS / f"{FAMILIES[self.family]}.toml"


@dataclass(frozen=True)
class Ablation:
    """A network of Table 2: what its column is called, and what is changed in the full one."""

    name: str
    label: str
    settings: tuple[str, ...] = ()


FULL = "full"
ABLATIONS = (
    Ablation(FULL, "Full"),
    Ablation("minus-mu", "-μ", ("model.learn_eigenvalues=false",)),
    Ablation("minus-v", "-v", ("model.learn_eigenvectors=false",)),
    Ablation("minus-alpha", "-α", ("model.learn_alpha=false",)),
    Ablation("plus-beta", "+β", ("model.learn_beta=true",)),
    Ablation("plus-w", "+W", ("model.learn_kernels=true",)),
    Ablation("decoder-2", "decoder 2", ("model.decoder_kernel=2",)),
    Ablation("first-guess", "first guess", ("model.flow_aware=true",)),
)
"""The paper's, and two of ours: a decoder without holes, and a network that also sees a first guess of the flow."""


@dataclass(frozen=True)
class Contender:
    """A method of a table. paper: what the paper calls it, "" if it is none of the paper's; family: of its networks."""

    name: str
    label: str
    paper: str = ""
    family: str = ""


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("eed", "EED", PAPER_METHODS["eed"]),
        Contender("amle", "AMLE", PAPER_METHODS["amle"]),
        Contender("laplace-beltrami", "LB", PAPER_METHODS["laplace-beltrami"]),
        *(Contender(family, name, name, family) for family, name in PAPER_NETWORKS.items()),
        Contender("neuroexplicit", "neuroexplicit"),
        Contender("neuroexplicit-paper", "neuroexplicit-paper"),
    )
}
"""In the order of the paper's Table 1, and last those whose weights come with the package."""


def percent_label(density: float) -> str:
    """The density in a network's name: 01, 05, 10."""
    return f"{round(100 * density):02}"


def network_at(family: str, density: float, samples: int | None = None) -> str:
    """The name of the family's network for a density, trained on so many distinct samples if a number is given.

    Of "pd" there is one for all densities: it never sees a mask in training.
    """
    place = family if family == PD else f"{family}-{percent_label(density)}"
    return place if samples is None else f"{place}-n{samples}"


def explicit_parameters(method: str, density: float) -> dict[str, float | str]:
    """The parameters of a method without a network, tuned for a density.

    Those of `eed` are the ones that the paper's grid search found for the density; `amle` and `laplace-beltrami` have
    their authors' choice for Sintel, in the paper as here, and those are the defaults.
    """
    if method != "eed":
        return {}
    return {"lam": TUNED_LAMBDA, "alpha": TUNED_ALPHA[density]}


def _given(low: float, high: float) -> str:
    return f"masks.density=[{low}, {high}]"


def _for_densities(family: str) -> list[StudyNetwork]:
    if family == PD:
        return [StudyNetwork(PD, PD)]
    return [StudyNetwork(network_at(family, d), family, (_given(d, d),)) for d in DENSITIES]


def _for_sample_counts(family: str) -> list[StudyNetwork]:
    given = () if family == PD else (_given(MIDDLE, MIDDLE),)
    return [StudyNetwork(network_at(family, MIDDLE, n), family, (*given, f"data.distinct={n}")) for n in SAMPLE_COUNTS]


NETWORKS = {
    network.name: network
    for network in (
        *(network for family in FAMILIES for network in _for_densities(family)),
        *(StudyNetwork(a.name, OURS, (_given(*ABLATION_DENSITIES), *a.settings)) for a in ABLATIONS),
        *(network for family in FAMILIES for network in _for_sample_counts(family)),
    )
}
"""All networks, by name."""


def check_networks(names: list[str], argument: str = "--only") -> list[StudyNetwork]:
    """The networks of these names; InputError for any other name."""
    if unknown := [name for name in names if name not in NETWORKS]:
        raise InputError(f"{argument}: {unknown[0]!r} was given; taken are {', '.join(NETWORKS)}.")
    return [NETWORKS[name] for name in names]


def check_contenders(names: list[str], argument: str = "--methods") -> tuple[str, ...]:
    """These names, each that of a contender; InputError for any other name."""
    if unknown := [name for name in names if name not in CONTENDERS]:
        raise InputError(f"{argument}: {unknown[0]!r} was given; taken are {', '.join(CONTENDERS)}.")
    return tuple(names)
