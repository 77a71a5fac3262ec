import pytest

from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_METHODS, PAPER_TABLES
from flowinpaint.methods.builtin import BUILTIN


@pytest.mark.parametrize("table", PAPER_TABLES, ids=lambda table: f"{table.title} {table.figure}")
def test_tables_are_whole_and_errors_of_the_explicit_methods_fall_with_the_density(table: object) -> None:
    found = next(other for other in PAPER_TABLES if other is table)
    assert set(PAPER_METHODS.values()) <= found.values.keys()
    for method in PAPER_METHODS:
        row = [found.value(method, density) for density in PAPER_DENSITIES]
        assert row == sorted(row, key=lambda value: -(value or 0))
    assert found.value("harmonic", 0.05) is None


def test_the_papers_claims_hold_in_its_figures() -> None:
    sintel, things, kitti, outliers = PAPER_TABLES
    for density in PAPER_DENSITIES:
        for table in (sintel, things):
            assert min(table.values, key=lambda name: table.value(name, density) or 9) == "Ours"
        best = min(row[PAPER_DENSITIES.index(density)] for row in outliers.values.values())
        assert outliers.value("neuroexplicit-paper", density) == best
    assert kitti.value("WGAIN", 0.05) == 7.0


def test_its_methods_are_methods_here() -> None:
    assert set(PAPER_METHODS) <= set(BUILTIN)


def test_data_sets_are_known_by_their_names() -> None:
    sintel, _, kitti, _ = PAPER_TABLES
    assert [name for name in ("MPI-Sintel", "sintel-final", "KITTI2015") if sintel.is_of(name)] == [
        "MPI-Sintel",
        "sintel-final",
    ]
    assert [name for name in ("KITTI2015", "kitti-15", "KITTI2012", "MPI-Sintel") if kitti.is_of(name)] == [
        "KITTI2015",
        "kitti-15",
    ]
