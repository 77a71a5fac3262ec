from dataclasses import replace

from finished_evaluations import made_up
from flowinpaint.reproduction.curves import Curves, figure_data, networks_by_samples, trend_table
from flowinpaint.reproduction.experiment import SAMPLE_COUNTS, TESTED_DENSITIES, Scale
from flowinpaint.reproduction.runs import ColumnRecord, Means, means_of
from tiny_reproductions import MakeSession

FALLING = tuple(1 / (1 + 10 * density) for density in TESTED_DENSITIES)


def result(column: str, case: float, epe: float | None) -> ColumnRecord:
    return column, made_up(column, case, "A", "one", epe)


def means(**values: tuple[float | None, ...]) -> Means:
    """Means at the tested densities."""
    return means_of(result(m, d, v) for m, own in values.items() for d, v in zip(TESTED_DENSITIES, own, strict=True))


def test_curves_run_through_the_places() -> None:
    found = Curves(means(ours=FALLING), {0.01: "1 %", 0.02: "2 %"}, "density", "given")
    assert [(row["density"], row["epe"]) for row in found.rows] == [(0.01, FALLING[0]), (0.02, FALLING[1])]
    assert found.tables == [
        "### A",
        f"| given | Ours |\n|---|--:|\n| 1 % | {FALLING[0]:.3f} |\n| 2 % | {FALLING[1]:.3f} |",
    ]
    assert Curves(means(ours=FALLING), {0.5: "50 %"}, "density", "given").rows[0]["epe"] is None


def test_what_the_error_does_is_compared_with_the_papers_text() -> None:
    rising = FALLING[::-1]
    found = means(ours=FALLING, flownets=FALLING, wgain=rising, pd=FALLING, eed=(None,) * 8)
    lines = [line.rstrip(" |").split(" | ")[-2:] for line in trend_table(found).splitlines()[2:]]
    assert [change for change, _ in lines] == ["falls", "falls", "rises", "falls", "–"]
    assert [agrees for _, agrees in lines] == ["yes", "no: there it rises", "yes", "–", "–"]


def test_a_network_that_saw_no_sample_twice_counts_for_more_samples_too(
    make_session: MakeSession, scale: Scale
) -> None:
    scale = replace(
        scale, settings=(*scale.settings, "data.batch=200", "data.size=[16, 16]")
    )  # in its one step some of 196 come again
    session = make_session(scale=scale, methods=("flownets", "eed"))
    report = figure_data(session)
    assert {path.name for path in (session.out / "networks").iterdir()} == {"flownets-05-n196", "flownets-05-n1964"}
    assert len({row["epe"] for row in report.rows if row["method"] == "eed"}) == 1
    values = {row["samples"]: row["epe"] for row in report.rows if row["method"] == "flownets"}
    assert list(values) == list(SAMPLE_COUNTS)
    assert values[19_640] == values[9_820] == values[1_964] != values[196]
    text = "\n".join(report.paragraphs)
    assert "each would have been the same: flownets-05-n1964." in text
    assert "FlowNetS with 9,820 samples is its network of 1,964." in text
    session.network("flownets-05-n19640")
    found = networks_by_samples(session, "flownets")
    assert found == {196: 196, 1_964: 1_964, 9_820: 1_964, 19_640: 19_640}
