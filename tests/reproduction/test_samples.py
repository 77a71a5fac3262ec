import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from flowinpaint.api import inpaint
from flowinpaint.evaluation import runner
from flowinpaint.evaluation.records import RunKey
from flowinpaint.metrics import epe
from flowinpaint.reproduction.frames import FrameOptions
from flowinpaint.reproduction.networks import NetworkOptions
from flowinpaint.reproduction.runs import FIELDS, RunOptions
from flowinpaint.reproduction.samples import figure_samples
from flowinpaint.reproduction.session import Session
from flowinpaint.result import Result
from frame_folder import make_sample

MakeSession = Callable[..., Session]
METHODS = ("ours", "laplace-beltrami")


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []

    def told(image: Any, flow: Any, mask: Any, method: str, *others: Any, **parameters: Any) -> Result:
        calls.append(method)
        return inpaint(image, flow, mask, method, *others, **parameters)

    monkeypatch.setattr(runner, "inpaint", told)
    return calls


def test_a_frame_is_filled_once(make_session: MakeSession, filled: list[str]) -> None:
    session = make_session(methods=METHODS)
    report = figure_samples(session)
    assert [row["label"] for row in report.rows] == ["LB", "Ours"] * len(session.square.samples)
    frame = session.square.samples[0].load(0.05, crop=session.square.crop)
    field = inpaint(frame.image, frame.truth, frame.mask, "laplace-beltrami", "cpu").flow
    assert report.rows[0]["epe"] == pytest.approx(epe(field, frame.truth, frame.valid))
    filled.clear()
    assert figure_samples(make_session(methods=METHODS)).rows == report.rows
    assert filled == []


def test_the_svg_holds_the_png(make_session: MakeSession) -> None:
    report = figure_samples(make_session(methods=METHODS))
    files = report.pictures()
    match = re.search(rb"base64,([^\"]+)\"", files[".svg"])
    assert match is not None
    assert base64.b64decode(match[1]) == files[".png"]
    picture = cv2.imdecode(np.frombuffer(files[".png"], np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    height, width = picture.shape[:2]
    assert f'width="{width}" height="{height}"'.encode() in files[".svg"]


def test_fields_of_another_machine_are_taken(
    make_session: MakeSession, filled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = figure_samples(make_session(methods=METHODS)).rows
    filled.clear()
    there = tmp_path / "out"
    session = make_session(
        NetworkOptions(models=there / "networks"),
        out=tmp_path / "here",
        records=(there / "records.jsonl",),
        methods=METHODS,
    )
    monkeypatch.setattr(Session, "obstacle", lambda self, name: "it cannot be run here")
    assert figure_samples(session).rows == rows
    assert filled == []
    assert session.missing == {}


def test_what_a_table_has_sampled_is_not_sampled_again(make_session: MakeSession, filled: list[str]) -> None:
    session = make_session(run_options=RunOptions("cpu", batch=2), methods=("pd", "flownets"))
    means = session.table(session.square)
    frames = len(session.square.samples)
    assert [path.suffix for path in (session.out / FIELDS).iterdir()] == [".npy"] * frames
    report = figure_samples(session)
    assert [Path(name).parts[-2] for name in filled] == ["flownets-05"] * frames
    first = session.square.samples[0]
    frame = first.load(0.05, crop=session.square.crop)
    (field,) = (session.records.find_field(key) for key in _keys(session) if "pd" in Path(key.method).parts)
    assert field is not None
    assert np.array_equal(field[frame.mask], frame.truth[frame.mask])
    assert report.rows[1]["label"] == "PD"
    assert report.rows[1]["epe"] == pytest.approx(epe(field, frame.truth, frame.valid))
    assert means.value("pd", "generated", 0.05) is not None


def _keys(session: Session) -> list[RunKey]:
    """The keys of the runs on the first frame at 5 %."""
    first = session.square.samples[0]
    return [
        record.key for record in session.records.store if (record.key.sample, record.key.case) == (first.name, 0.05)
    ]


def test_a_method_that_fails_is_left_out(make_session: MakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(runner, "inpaint", failing)
    session = make_session(methods=METHODS)
    assert figure_samples(session).rows == []
    assert session.missing.keys() == set(METHODS)
    assert "out of memory" in session.missing["ours"]


def test_frames_of_several_data_sets_stand_below_each_other(tmp_path: Path, make_session: MakeSession) -> None:
    for name in ("A", "B"):
        for sample in ("one", "two"):
            make_sample(tmp_path / "frames" / name / sample)
    frames = FrameOptions(root=tmp_path / "frames")
    report = figure_samples(make_session(methods=("laplace-beltrami",), frames=frames))
    assert [row["frame"] for row in report.rows] == [
        f"rehearsal: {name}" for name in ("A one", "A two", "B one", "B two")
    ]
