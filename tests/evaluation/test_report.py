import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.evaluation import Record, evaluate, summarise
from flowinpaint.evaluation.report import (
    as_csv,
    as_json,
    as_markdown,
    dataset_tables,
    kinds_of_notes,
    left_out,
    masks_text,
    overall_tables,
    partial_methods,
    percent,
    short_names,
    write_reports,
)
from flowinpaint.evaluation.summary import Score
from frame_folder import make_root

SETTINGS = {"seed": 0}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Two methods on two data sets; one run failed, one left a note with the letters that separate cells."""
    found = evaluate(make_root(tmp_path_factory.mktemp("frames") / "root"), ["nearest", "harmonic"], [0.1, 0.3])
    found[0] = Record(found[0].key, error="it broke, badly")
    found[1] = replace(found[1], notes=['one | "two", three'])
    return found


@pytest.fixture(scope="module")
def scores(records: list[Record]) -> list[Score]:
    return summarise(records, "harmonic")


def test_tables_are_by_density_and_in_the_order_of_r(scores: list[Score]) -> None:
    tables = overall_tables(scores, "harmonic")
    assert [table.title.split(",")[0] for table in tables] == ["10 % given", "30 % given"]
    for table, density in zip(tables, (0.1, 0.3), strict=True):
        ratios = {s.method: s.ratio for s in scores if s.case == density and s.dataset is None}
        assert table.headings[:3] == ["method", "R", "EPE"]
        found = {row[0]: row[1].strip("()") for row in table.rows}
        assert found == {m: f"{r:.3f}" for m, r in ratios.items()}
        assert list(found.values()) == sorted(found.values(), key=float)
    assert tables[0].headings[-1] == "failed"
    assert [row[-1] for row in tables[0].rows if row[0] == "nearest"] == ["1"]
    assert "failed" not in tables[1].headings
    assert len(dataset_tables(scores)) == 4


def test_titles_say_whether_masks_were_files_or_drawn_and_what_a_pattern_gives(tmp_path: Path) -> None:
    root = make_root(tmp_path / "frames")
    fi.write_mask(root / "A" / "one" / "mask_20.png", np.eye(20, 30, k=9, dtype=np.bool_))
    records = evaluate(root, ["nearest"], [0.1, 0.2, 0.3], patterns=["grid"])
    scores = summarise(records, "nearest")
    titles = [table.title.partition(";")[0] for table in overall_tables(scores, "nearest")]
    (share,) = [s.given for s in scores if s.case == "grid" and s.dataset is None and s.given is not None]
    assert share == np.mean([r.measured.given for r in records if r.key.case == "grid" and r.measured is not None])
    assert titles == [
        "10 % given, 2 data sets, masks from files",
        "20 % given, 2 data sets, masks of 3 of 4 samples drawn, the rest from files",
        "30 % given, 2 data sets, masks drawn",
        f"grid, {100 * share:.2g} % given, 2 data sets, masks drawn",
    ]
    by_set = {table.title.partition(", masks")[0] for table in dataset_tables(scores)}
    assert {"A, 10 % given", "B, 30 % given"} <= by_set
    assert masks_text([s for s in scores if (s.dataset, s.case) == ("B", 0.2)]) == "masks drawn"


def test_samples_that_a_case_could_not_be_drawn_for_are_named(tmp_path: Path) -> None:
    root = make_root(tmp_path / "frames")
    whole = np.ones((20, 30, 2), np.float32)
    fi.write_flow(root / "A" / "one" / "flow.flo", whole)
    records = evaluate(root, ["nearest"], [0.1, 0.9])
    sentence = "90 %: left out, because fewer of their pixels are valid: A/two, B/one, B/three."
    assert left_out(records, SETTINGS) == [sentence]
    assert sentence in as_markdown(records, summarise(records, "nearest"), "nearest", SETTINGS)
    assert left_out([r for r in records if r.key.case == 0.1], SETTINGS) == []


def test_cases_and_samples_without_any_record_are_named_too(records: list[Record]) -> None:
    samples = [f"{dataset}/{sample}" for dataset in "ABC" for sample in ("one", "two", "three")]
    asked = {"densities": [0.1], "inputs": ["sift", "given"], "samples": samples, "methods": ["nearest+second"]}
    less = [r for r in records if r.key.case == 0.1 and r.key.sample != "three"]
    second = [replace(r, key=replace(r.key, method="nearest+second")) for r in less if r.key.sample == "two"]
    six = "A/one, A/two, A/three, B/one, B/two, B/three and 3 more."
    assert left_out(less, asked)[1:] == [
        f"sift: left out, because they lack image2.png or a truth of two channels: {six}",
        f"given: left out, because they lack given.flo, .png, .pfm or .npy: {six}",
        "nearest+second: left out, because they lack image2.png: A/one, A/two, B/one.",
    ]
    assert left_out(less, asked)[0].endswith("valid: A/three, B/two, B/three, C/one, C/two, C/three.")
    assert left_out(less + second, asked)[3].endswith("image2.png: A/one, B/one.")


def test_missing_figures_are_dashes_and_come_last(records: list[Record]) -> None:
    failed = [Record(r.key, error="no") if r.key.method == "nearest" else r for r in records]
    rows = overall_tables(summarise(failed, "harmonic"), "harmonic")[0].rows
    assert rows[1][:3] == ["nearest", "–", "–"]


def test_methods_with_fewer_samples_are_marked_and_come_last(records: list[Record]) -> None:
    scores = summarise(records, "nearest")  # one run of nearest failed, at 10 %
    partial, whole = overall_tables(scores, "nearest")
    assert not any("(" in row[1] for row in whole.rows)
    assert [row[0] for row in partial.rows] == ["harmonic", "nearest"]
    assert partial.rows[1][1] == "(1.000)"
    sentence = "R in parentheses is over fewer samples than the others: nearest."
    assert partial_methods(scores) == [sentence]
    assert sentence in as_markdown(records, scores, "nearest", SETTINGS)
    assert partial_methods([s for s in scores if s.case == 0.3]) == []


def test_notes_that_differ_in_numbers_are_of_one_kind(records: list[Record]) -> None:
    notes = ["off by 0.5 px", "off by 1e-3 px", "too slow"]
    noted = [replace(record, notes=[note]) for record, note in zip(records[4:10:2], notes, strict=True)]
    texts = kinds_of_notes([*noted, *records[:1]])
    assert [text.rpartition(": ")[2] for text in texts] == ["off by 0.5 px", "too slow"]


def test_the_csv_has_a_line_per_run_that_reads_back(records: list[Record]) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert len(rows) == len(records) == 16
    for row, record in zip(rows, records, strict=True):
        assert (row["dataset"], row["method"]) == (record.key.dataset, record.key.method)
        assert row["epe"] == ("" if record.measured is None else str(record.measured.epe))
        assert row["error"] == record.error
    assert rows[1]["notes"] == 'one | "two", three'


def test_the_json_holds_versions_settings_and_everything_measured(records: list[Record], scores: list[Score]) -> None:
    content = json.loads(json.dumps(as_json(records, scores, "harmonic", SETTINGS), allow_nan=False))
    assert len(content["records"]) == len(records)
    assert content["records"][2]["key"]["sample"] == "one"
    assert content["settings"] == SETTINGS
    assert content["reference"] == "harmonic"
    assert {"flowinpaint", "torch", "numpy", "device", "device_name"} <= content["machine"].keys()
    assert len(content["scores"]) == len(scores)


def test_the_markdown_has_r_in_bold_and_the_failures(records: list[Record], scores: list[Score]) -> None:
    changed = [replace(r, key=replace(r.key, parameters={"lam": 1e-4})) for r in records]
    text = as_markdown(changed, scores, "harmonic", SETTINGS)
    ratio = next(s.ratio for s in scores if (s.method, s.dataset, s.case) == ("nearest", "B", 0.3))
    assert f"| nearest | **{ratio:.3f}** |" in text
    assert "A/one, 10 %, nearest FAILED: it broke, badly" in text
    assert "- nearest, 30 %: lam=0.0001" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} <= {9, 10, 11}


def test_three_files_are_written_and_replaced(records: list[Record], scores: list[Score], tmp_path: Path) -> None:
    (tmp_path / "results.md").write_text("old")
    written = write_reports(tmp_path, records, scores, "harmonic", SETTINGS)
    assert {p.name for p in tmp_path.iterdir()} == {"results.json", "results.csv", "results.md"}
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert (tmp_path / "results.md").read_text().startswith("# Evaluation")


def test_files_are_called_by_their_names_or_by_their_folders_too() -> None:
    assert short_names(["eed", "/far/away/mine.safetensors"]) == {
        "eed": "eed",
        "/far/away/mine.safetensors": "mine.safetensors",
    }
    runs = ["runs/a/model.safetensors", "runs/b/model.safetensors", "c/other.safetensors"]
    assert list(short_names(runs).values()) == ["a/model.safetensors", "b/model.safetensors", "other.safetensors"]
    runs = ["runs/a/model.safetensors", "runs/a/model.safetensors+robust", "eed+robust"]
    assert list(short_names(runs).values()) == ["model.safetensors", "model.safetensors+robust", "eed+robust"]


def test_shares_have_two_figures() -> None:
    shares = (0.0000042, 0.0519, 0.5, 0.944, 0.996, 1)
    assert [percent(share) for share in shares] == ["0.00042", "5.2", "50", "94", "100", "100"]


def test_inputs_tell_the_share_of_wrong_vectors_and_how_they_were_judged(records: list[Record]) -> None:
    found = []
    for record in records[4:]:
        measured = record.measured and replace(record.measured, given=0.052, wrong=0.1)
        if measured is not None and record.key.method == "nearest":
            measured = replace(measured, inlier_auc=0.75)
        found.append(Record(replace(record.key, density=None, mask="sift"), measured))
    scores = summarise(found, "harmonic")
    (table,) = overall_tables(scores, "harmonic")
    assert table.title.startswith("sift, 5.2 % given, 10 % of them wrong, 2 data sets; R is")
    assert table.headings[-1] == "AUC"
    assert {row[0]: row[-1] for row in table.rows} == {"nearest": "0.750", "harmonic": "–"}
    assert dataset_tables(scores)[0].headings[-3:] == ["AUC", "samples", "failed"]
    text = as_markdown(found, scores, "harmonic", SETTINGS)
    assert "off by more than 3 px. AUC tells" in text
    row = next(csv.DictReader(io.StringIO(as_csv(found))))
    assert (row["mask"], row["wrong"], row["inlier_auc"]) == ("sift", "0.1", "0.75")
    assert "AUC" not in as_markdown(records, summarise(records, "harmonic"), "harmonic", SETTINGS)
