from collections import Counter

import pytest

from flowinpaint.errors import InputError
from flowinpaint.evaluation.paper_figures import PAPER_ABLATIONS, PAPER_COSTS, PAPER_TABLES, paper_name
from flowinpaint.methods.eed import TUNED_ALPHA
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.reproduction.drawing import LOOKS
from flowinpaint.reproduction.experiment import (
    ABLATIONS,
    DENSITIES,
    FAMILIES,
    FULL,
    METHODS,
    MIDDLE,
    NETWORKS,
    QUICK_SCALE,
    SAMPLE_COUNTS,
    SHIPPED,
    budget_of,
    check_names,
    explicit_parameters,
    network_at,
)
from flowinpaint.training.config import read_config


def test_there_are_ten_networks_of_table_1_eight_ablations_and_sixteen_of_few_samples() -> None:
    families = Counter(network.family for network in NETWORKS.values())
    assert families == {"ours": 3 + len(ABLATIONS) + 4, "flownets": 3 + 4, "wgain": 3 + 4, "pd": 1 + 4}
    assert all(network.name == name for name, network in NETWORKS.items())
    assert {
        "ours-01",
        "ours-05",
        "ours-10",
        "pd",
        "full",
        "first-guess",
        "wgain-05-n9820",
        "pd-n196",
    } <= NETWORKS.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_settings_of_a_network_are_settings_of_its_configuration(name: str) -> None:
    network = NETWORKS[name]
    config = read_config(network.config, network.settings)
    assert config.model.kind == FAMILIES[network.family]
    if network.family != "pd" and name not in set(ABLATIONS):
        density = float(name.split("-")[1]) / 100
        assert config.masks.density == (density, density)
    assert config.data.distinct == (int(name.split("-n")[1]) if "-n" in name else 0)
    quick = read_config(network.config, [*network.settings, *QUICK_SCALE.settings_of(network), *budget_of(steps=3)])
    assert (quick.schedule.minutes, quick.schedule.steps, quick.data.size) == (0, 3, (64, 64))


def test_an_ablation_differs_from_the_full_network_in_what_it_says() -> None:
    models = {a: read_config(NETWORKS[a].config, NETWORKS[a].settings).model for a in ABLATIONS}
    full = models[FULL]
    assert isinstance(full, NeuroexplicitConfig)
    changed = {
        name: {field for field in vars(full) if getattr(full, field) != getattr(model, field)}
        for name, model in models.items()
    }
    assert changed == {
        "full": set(),
        "minus-mu": {"learn_eigenvalues"},
        "minus-v": {"learn_eigenvectors"},
        "minus-alpha": {"learn_alpha"},
        "plus-beta": {"learn_beta"},
        "plus-w": {"learn_kernels"},
        "decoder-2": {"decoder_kernel"},
        "first-guess": {"flow_aware"},
    }


def test_every_density_has_its_network_and_parameters() -> None:
    for family in FAMILIES:
        for density in DENSITIES:
            assert network_at(family, density) in NETWORKS
        for samples in SAMPLE_COUNTS:
            assert network_at(family, MIDDLE, samples) in NETWORKS
    assert network_at("pd", 0.01) == network_at("pd", 0.1) == "pd"
    assert [explicit_parameters("eed", d) for d in DENSITIES] == [
        {"lam": 1e-4, "alpha": alpha} for alpha in (0.42, 0.3, 0.1)
    ]
    assert set(TUNED_ALPHA) == set(DENSITIES)
    assert explicit_parameters("laplace-beltrami", 0.05) == {}


def test_every_contender_has_a_look_of_its_own_and_the_papers_names_are_in_its_tables() -> None:
    assert LOOKS.keys() == METHODS.keys()
    assert len({look.colour for look in LOOKS.values()}) == len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    sintel = PAPER_TABLES[0]
    assert {label for name, label in METHODS.items() if name not in SHIPPED} == sintel.values.keys()
    assert [paper_name(family) for family in FAMILIES] == list(PAPER_COSTS)


def test_the_papers_table_2_is_of_the_networks_of_its_table_1() -> None:
    for ablations, table in zip(PAPER_ABLATIONS, PAPER_TABLES[:2], strict=True):
        assert ablations.words == table.words
        assert ablations.values[FULL] == table.values["Ours"]
        assert ablations.values.keys() < set(ABLATIONS)
        for density in DENSITIES:
            # Learning less is never better in the paper, and learning more hardly worse.
            assert all((ablations.difference(n, density) or 0) >= 0 for n in ("minus-mu", "minus-v", "minus-alpha"))
            assert (ablations.difference("plus-beta", density) or 0) < 0
    assert PAPER_ABLATIONS[0].value("minus-mu", 0.01) == 0.89
    assert PAPER_ABLATIONS[0].value("full", 0.05) == 0.40
    assert PAPER_ABLATIONS[0].value("decoder-2", 0.05) is None


def test_other_names_are_told_with_those_that_are_taken() -> None:
    assert check_names("--only", ["pd", "full", "pd"], NETWORKS) == ("pd", "full")
    with pytest.raises(InputError, match=r"^--only must be one of ours-01, .*, got 'ours-07'"):
        check_names("--only", ["pd", "ours-07"], NETWORKS)
    with pytest.raises(InputError, match=r"^--methods must be one of eed, amle, .*, got 'nearest'"):
        check_names("--methods", ["nearest"], METHODS)


def test_a_budget_is_of_minutes_or_of_steps() -> None:
    assert budget_of(minutes=2.5) == ("schedule.minutes=2.5",)
    assert budget_of(steps=7) == ("schedule.minutes=0", "schedule.steps=7")
    assert budget_of() == ()
    with pytest.raises(InputError, match="--minutes and --steps"):
        budget_of(1.0, 5)
