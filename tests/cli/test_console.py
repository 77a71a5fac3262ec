import re
from types import SimpleNamespace

import pytest

from flowinpaint.cli import console
from flowinpaint.cli.console import solver_bar
from flowinpaint.result import Progress


def test_a_long_fill_tells_its_share_and_the_time_left_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter((0.0, 10.0, 40.0, 50.0, 75.0))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with solver_bar() as report:
        for share in (0.1, 0.25, 0.5, 0.75):
            report("weights/pd.safetensors", Progress(1, 2, 3, share=share))
    told = re.findall(r"Filling: (.*)", capsys.readouterr().err)
    assert told == ["25%  0:02:00 left", "75%  0:00:25 left"]  # a line in half a minute


def test_a_solver_that_does_not_know_its_share_tells_nothing_there(capsys: pytest.CaptureFixture[str]) -> None:
    with solver_bar() as report:
        report("eed", Progress(1, 2, 3, residual=0.1))
    assert capsys.readouterr().err == ""
