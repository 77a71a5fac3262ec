import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from flowinpaint.api import inpaint
from flowinpaint.baselines.pd.module import PD
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.evaluation import runner
from flowinpaint.evaluation.records import Record
from flowinpaint.networks.output import Filled
from flowinpaint.reproduction import runs
from flowinpaint.reproduction.networks import NetworkOptions
from flowinpaint.reproduction.runs import Column, ColumnRecord, RunOptions, means_of, read_records
from flowinpaint.reproduction.session import Session
from flowinpaint.result import Result

MakeSession = Callable[..., Session]


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that `inpaint` is called with."""
    calls: list[str] = []

    def told(image: Any, flow: Any, mask: Any, method: str, *others: Any, **parameters: Any) -> Result:
        calls.append(method)
        return inpaint(image, flow, mask, method, *others, **parameters)

    monkeypatch.setattr(runner, "inpaint", told)
    return calls


def measured(session: Session, names: Sequence[str] = ("ours", "laplace-beltrami")) -> list[ColumnRecord]:
    columns = [session.column(name, 0.05) for name in names]
    return fill(session, *(column for column in columns if column is not None))


def fill(session: Session, *columns: Column) -> list[ColumnRecord]:
    return session.run(session.square, columns)


def errors(results: list[ColumnRecord]) -> dict[tuple[str, str], float]:
    return {(name, run.key.sample): run.measured.epe for name, run in results if run.measured is not None}


def test_a_second_call_fills_nothing(make_session: MakeSession, filled: list[str]) -> None:
    first = measured(make_session())
    assert len(first) == len(filled) == 4
    assert errors(measured(make_session())) == errors(first)
    assert len(filled) == 4


def test_a_changed_file_of_weights_is_filled_again_and_nothing_else(
    make_session: MakeSession, filled: list[str]
) -> None:
    session = make_session()
    before = errors(measured(session))
    other = session.networks.get("ours-10")
    shutil.copy(other.weights, session.networks.get("ours-05").weights)
    filled.clear()
    after = errors(measured(make_session()))
    assert len(filled) == 2
    assert all(name.endswith("ours-05/model.safetensors") for name in filled)
    assert [place for place in after if after[place] != before[place]] == [("ours", "0000"), ("ours", "0001")]


def test_a_folder_that_was_moved_is_not_filled_again(
    make_session: MakeSession, filled: list[str], tmp_path: Path
) -> None:
    measured(make_session())
    filled.clear()
    make_session(out=tmp_path / "elsewhere")  # closes the first
    shutil.rmtree(tmp_path / "elsewhere")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert len(measured(make_session(out=tmp_path / "moved"))) == 4
    assert filled == []


def test_runs_of_another_machine_are_taken_whatever_their_device_and_path(
    make_session: MakeSession, filled: list[str], tmp_path: Path
) -> None:
    there = measured(make_session())
    other = tmp_path / "records-of-a-gpu.jsonl"

    def write(**change: object) -> None:
        records = []
        for _, run in there:
            key = replace(run.key, device="cuda")
            if key.weights:
                key = replace(key, method="/somewhere/else/model.safetensors")
            assert run.measured is not None
            measurement = replace(run.measured, epe=123.0)
            records.append(Record(replace(key, **change), measurement))  # type: ignore[arg-type]
        other.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))

    def here() -> list[ColumnRecord]:
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        filled.clear()
        orders = NetworkOptions(models=tmp_path / "out" / "networks")
        return measured(make_session(orders, out=tmp_path / "here", records=(other,)))

    write()
    results = here()
    assert filled == []
    assert set(errors(results).values()) == {123.0}
    assert {run.key.device for _, run in results} == {"cuda"}
    assert means_of(results).devices == ["cuda"]
    for change in (
        {"version": "0.0.1"},
        {"seed": 1},
        {"crop": 16},
        {"inputs": "other"},
        {"parameters": {"seed": 1}},
        {"density": 0.1},
    ):
        write(**change)
        assert 123.0 not in errors(here()).values(), change
        assert len(filled) == 4
    write(weights="other")
    here()
    assert len(filled) == 4  # a hash also for a method without weights is of none


def test_batches_make_what_single_calls_make(make_session: MakeSession, filled: list[str], tmp_path: Path) -> None:
    names = ("ours", "flownets", "laplace-beltrami")
    single = errors(measured(make_session(), names))
    filled.clear()
    models = NetworkOptions(models=tmp_path / "out" / "networks")
    batched = measured(make_session(models, RunOptions("cpu", batch=2), out=tmp_path / "batched"), names)
    assert set(filled) == {"laplace-beltrami"}
    for place, epe in errors(batched).items():
        np.testing.assert_allclose(epe, single[place], rtol=1e-4)
    assert len(batched) == len(single) == 6
    own = [run.measured for name, run in batched if name == "ours"]
    assert own[0] is not None
    assert own[1] is not None
    assert own[0].seconds == own[1].seconds  # of one call
    assert own[0].seconds
    odd = measured(make_session(models, RunOptions("cpu", batch=5), out=tmp_path / "larger"), names)
    assert errors(odd) == pytest.approx(errors(batched), rel=1e-4)


def test_a_compiled_network_always_gets_as_many_frames(
    make_session: MakeSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = errors(measured(make_session(run_options=RunOptions("cpu", batch=2)), ["pd"]))
    counts: list[int] = []
    complete = PD.complete

    def told(model: PD, image: Tensor, *others: Any, **parameters: Any) -> Filled:
        counts.append(len(image))
        return complete(model, image, *others, **parameters)

    monkeypatch.setattr(PD, "complete", told)
    monkeypatch.setattr(PD, "compile_parts", lambda self: None)
    monkeypatch.setattr(runs, "_compiled", lambda model, device: True)
    models = NetworkOptions(models=tmp_path / "out" / "networks")
    padded = measured(make_session(models, RunOptions("cpu", batch=5), out=tmp_path / "padded"), ["pd"])
    assert counts == [5]
    assert errors(padded) == pytest.approx(plain, rel=1e-3)


def test_what_may_not_be_computed_is_only_looked_up(make_session: MakeSession, filled: list[str]) -> None:
    session = make_session()
    column = Column("laplace-beltrami", 0.05, "laplace-beltrami", compute=False)
    assert fill(session, column) == []
    measured(session, ["laplace-beltrami"])
    assert len(fill(session, column)) == 2


def test_a_run_that_fails_is_told_and_tried_again(make_session: MakeSession, filled: list[str]) -> None:
    session = make_session()
    column = Column("eed", 0.05, "eed", parameters={"lam": -1.0})
    for _ in range(2):
        means = means_of(fill(session, column))
        mean = means["eed", "generated", 0.05]
        assert (mean.epe, mean.frames, mean.failures) == (None, 2, 2)
        assert "lam" in mean.error and "-1.0" in mean.error
        assert list(means) == [("eed", "generated", 0.05)]
    assert len(filled) == 4


def test_a_batch_that_fails_is_told_for_each_of_its_frames(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(run_options=RunOptions("cpu", batch=2))

    def full(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(runs, "fill_together", full)
    results = measured(session, ["ours"])
    assert [run.error for _, run in results] == ["RuntimeError: out of memory"] * 2
    monkeypatch.undo()
    session.networks.get("ours-05").weights.write_bytes(b"nothing")
    results = measured(session, ["ours"])
    assert all(": truncated" in run.error for _, run in results)
    assert len(results) == 2


def test_means_are_over_the_frames_of_a_data_set(make_session: MakeSession) -> None:
    results = measured(make_session())
    means = means_of(results)
    own = [epe for (column, _), epe in errors(results).items() if column == "ours"]
    assert means.value("ours", "generated", 0.05) == pytest.approx(sum(own) / 2)
    assert means.value("ours", "generated", 0.1) is None
    assert (means.columns, means.datasets) == (["ours", "laplace-beltrami"], ["generated"])


def test_files_of_records_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"--records must be .*no.jsonl does not exist"):
        read_records(tmp_path / "no.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"key": 1}\n')
    with pytest.raises(FileFormatError, match=r"--records: .*bad.jsonl: line 1: .* must be the record"):
        read_records(tmp_path / "bad.jsonl")


def test_without_anything_to_measure_it_says_why(make_session: MakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(methods=("amle",))
    monkeypatch.setattr(Session, "obstacle", lambda self, name: "it needs numba, the extra 'fast'")
    with pytest.raises(InputError, match=r"^PART cannot be measured here; amle: it needs numba"):
        session.table(session.square)


def test_who_is_left_out_is_told_once_and_comes_back_with_runs_of_others(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    session = make_session(methods=("eed", "laplace-beltrami"), note=told.append)
    monkeypatch.setattr(Session, "obstacle", lambda self, name: "it is slow" if name == "eed" else "")
    for _ in range(2):
        assert session.table(session.square).columns == ["laplace-beltrami"]
    assert told == ["eed is left out: it is slow."]
    assert session.missing == {"eed": "it is slow"}
    monkeypatch.undo()
    session.missing.clear()
    assert session.table(session.square).columns == ["eed", "laplace-beltrami"]
    monkeypatch.setattr(Session, "obstacle", lambda self, name: "it is slow" if name == "eed" else "")
    assert session.table(session.square).columns == ["eed", "laplace-beltrami"]  # what is known counts
    assert session.missing == {}
