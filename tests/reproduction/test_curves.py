from finished_evaluations import made_up
from flowinpaint.reproduction.curves import Curves, curves_of, trend, trend_table
from flowinpaint.reproduction.means import Means
from flowinpaint.reproduction.measuring import Outcome
from flowinpaint.reproduction.study import MIDDLE, SAMPLE_COUNTS, TESTED_DENSITIES

FALLING = tuple(1 / (1 + 10 * density) for density in TESTED_DENSITIES)


def curves(**values: tuple[float | None, ...]) -> Curves:
    return Curves(TESTED_DENSITIES, {(method, "A"): own for method, own in values.items()})


def outcome(column: str, case: float, epe: float) -> Outcome:
    return Outcome(column, case, "A", "one", made_up(column, case, "A", "one", epe))


def test_curves_run_through_the_densities() -> None:
    means = Means([outcome("ours", density, 2 * density) for density in TESTED_DENSITIES[:-1]])
    found = curves_of(dict.fromkeys(TESTED_DENSITIES, means), TESTED_DENSITIES)
    assert found.values == {("ours", "A"): (*(2 * density for density in TESTED_DENSITIES[:-1]), None)}
    assert found.at("A", 0) == {"Ours": 0.02}


def test_curves_run_through_the_numbers_of_samples() -> None:
    means = {n: Means([outcome("ours", MIDDLE, n / 1000), outcome("eed", MIDDLE, 0.5)]) for n in SAMPLE_COUNTS}
    found = curves_of(means, SAMPLE_COUNTS)
    assert found.values["ours", "A"] == (0.196, 1.964, 9.82, 19.64)
    assert found.values["eed", "A"] == (0.5,) * 4
    assert (found.methods, found.datasets) == (["ours", "eed"], ["A"])


def test_what_the_error_does_is_compared_with_the_papers_text() -> None:
    rising = FALLING[::-1]
    found = curves(ours=FALLING, flownets=FALLING, wgain=rising, pd=FALLING, eed=(None,) * 8)
    assert [trend(found, method, "A") for method in found.methods] == ["falls", "falls", "rises", "falls", ""]
    lines = trend_table(found).splitlines()[2:]
    assert [line.split(" | ")[-1].rstrip(" |") for line in lines] == ["yes", "no: there it rises", "yes", "–", "–"]
