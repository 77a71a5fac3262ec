import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.evaluation.records import Measurement, Record, RunKey, open_store
from flowinpaint.evaluation.uncertainty import UncertaintyQuality

KEY = RunKey("A", "one", 0.05, 0, "fixed", 0, "eed", {"lam": 1e-4}, "cpu", "abc", "", "1.0")
MEASURED = Measurement(0.5, 0.55, 1.0, 4.0, 1.5, 0.1, 12, 1e-7, "converged", 1)
QUALITY = UncertaintyQuality(1.0, 1.0, 0.5, 0.5, [1.0, math.nan], [1.0], [1.0])


def test_records_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = Record(KEY, MEASURED, notes=["a note – with more than ASCII"])
    with open_store(path) as store:
        assert store.find(KEY) is None
        store.add(record)
        assert store.find(KEY) == record
        assert path.read_bytes().endswith(b"\n")  # at once, not when the store is closed
    with open_store(path) as store:
        assert store.find(KEY) == record
    with open_store(path, fresh=True) as store:
        assert store.find(KEY) is None


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "B"},
        {"sample": "two"},
        {"density": 0.1},
        {"density": None, "mask": "lidar"},
        {"seed": 1},
        {"mask": "random"},
        {"crop": 8},
        {"method": "nearest"},
        {"parameters": {"lam": 2e-4}},
        {"device": "cuda"},
        {"inputs": "abd"},
        {"weights": "w"},
        {"version": "1.1"},
        {"second": "abc"},
    ],
    ids=lambda change: " and ".join(change),
)
def test_every_part_of_the_key_counts(change: dict[str, object]) -> None:
    with open_store(None) as store:
        store.add(Record(KEY, MEASURED))
        assert store.find(replace(KEY, **change)) is None  # type: ignore[arg-type]


def test_the_case_is_the_density_the_pattern_or_the_input(tmp_path: Path) -> None:
    lidar, holes, sift = (replace(KEY, density=None, mask=name) for name in ("lidar", "holes", "sift"))
    assert (KEY.case, lidar.case, sift.case) == (0.05, "lidar", "sift")
    with open_store(tmp_path / "r.jsonl") as store:
        store.add(Record(lidar, MEASURED))
    with open_store(tmp_path / "r.jsonl") as store:
        assert store.find(lidar) is not None
        assert store.find(holes) is None


def test_records_of_versions_with_fewer_figures_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with open_store(path) as store:
        store.add(Record(KEY, MEASURED))
    later = [f', "{name}": null' for name in ("given", "noise", "wrong", "inlier_auc")]
    for text in [*later, ', "second": ""']:
        assert text in path.read_text()
        path.write_text(path.read_text().replace(text, ""))
    with open_store(path) as store:
        assert store.find(KEY) == Record(KEY, MEASURED)


def test_the_order_of_parameters_does_not_count() -> None:
    with open_store(None) as store:
        store.add(Record(replace(KEY, parameters={"a": 1, "b": 2}), MEASURED))
        assert store.find(replace(KEY, parameters={"b": 2, "a": 1})) is not None


def test_failures_are_not_found_so_that_they_are_tried_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "r.jsonl") as store:
        store.add(Record(KEY, error="it broke"))
        assert store.find(KEY) is None
        store.add(Record(KEY, MEASURED))
    with open_store(tmp_path / "r.jsonl") as store:
        assert store.find(KEY) == Record(KEY, MEASURED)


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_torn_last_line_is_lost_and_harms_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    first, second, third = (replace(KEY, sample=name) for name in ("1", "2", "3"))
    with open_store(path) as store:
        store.add(Record(first, MEASURED))
        store.add(Record(second, MEASURED))
    path.write_bytes(path.read_bytes()[:-cut])
    with open_store(path) as store:
        store.add(Record(third, MEASURED))
    with open_store(path) as store:
        assert [store.find(key) is not None for key in (first, second, third)] == [True, False, True]


def test_lines_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"old": 1}\n[]\n3\n\nnot json\n{"key": {}, "measured": null, "error": "", "notes": []}\n')
    with (
        pytest.warns(UserWarning, match=r"r\.jsonl: line 1: .*no such key.*; this line was ignored .* 4 other lines"),
        open_store(path) as store,
    ):
        store.add(Record(KEY, MEASURED))
    with pytest.warns(UserWarning, match="line 1"), open_store(path) as store:
        assert store.find(KEY) is not None


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="no file locks on this system")
    with (
        open_store(tmp_path / "r.jsonl") as store,
        pytest.raises(InputError, match=r"r\.jsonl: must not be in use by another run"),
        open_store(tmp_path / "r.jsonl", fresh=True),
    ):
        pass
    with open_store(tmp_path / "r.jsonl") as store:
        store.add(Record(KEY, MEASURED))


@pytest.mark.parametrize("old", ['"epe": 0.5', '"measured": {', '"seed": 0'])
def test_a_damaged_line_is_told_and_only_its_run_is_repeated(tmp_path: Path, old: str) -> None:
    path = tmp_path / "r.jsonl"
    keys = [replace(KEY, sample=name) for name in "123"]
    with open_store(path) as store:
        for key in keys:
            store.add(Record(key, MEASURED))
    lines = path.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace(old, old[: old.index(":")] + ": [" + ("], " if old.endswith("{") else "]"), 1)
    path.write_text("".join(lines))
    with pytest.warns(UserWarning, match=r"r\.jsonl: line 2.*; this line was ignored and its run is repeated"):  # noqa: SIM117
        with open_store(path) as store:
            assert [store.find(key) is not None for key in keys] == [True, False, True]
    assert path.read_text() == "".join(lines)


def test_a_file_that_is_no_file_of_records_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for data, fault in ((b"[]\n" * 5000, "line 1: the content must be a table"), (b"x" * 2**21, "line 1 must have at")):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=rf"r\.jsonl: {fault}"), open_store(path):
            pass
        assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epe": math.nan}, "measured.epe must be a finite number, got nan"),
        ({"noise": math.inf}, "measured.noise must be a finite number, got inf"),
        ({"uncertainty": QUALITY}, "measured.uncertainty.curve must be a finite number, got nan"),
    ],
)
def test_a_number_that_is_not_finite_is_an_error_that_can_be_read(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    wanted = Record(KEY, error=sentence, notes=["a note"])
    with open_store(tmp_path / "r.jsonl") as store:
        assert store.add(Record(KEY, replace(MEASURED, **change), notes=["a note"])) == wanted
        assert list(store) == [wanted]
    with open_store(tmp_path / "r.jsonl") as store:
        assert list(store) == [wanted]


def test_parameters_of_a_key_are_finite() -> None:
    with pytest.raises(InputError, match=r"parameters\.lam must be a finite number, got nan"):
        replace(KEY, parameters={"lam": math.nan})
