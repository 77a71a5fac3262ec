import re
from types import SimpleNamespace

import pytest

from flowinpaint.cli import console
from flowinpaint.cli.console import print_table, solver_bar
from flowinpaint.result import Progress
from flowinpaint.text_tables import TextTable


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


def test_tables_fold_long_names_and_keep_headings_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["(1.383)", "12.101", "0.106", "10.84", "1.59", "0.84", "0.50", "3"]
    headings = ["method", "R", "EPE", "EPE unknown", "Fl %", "> 1 px", "> 3 px", "seconds", "failed"]
    title = "5 % given, made-up, masks drawn; R is the EPE relative to laplace-beltrami"
    print_table(TextTable(title, headings, [["some/where/bad.py:undecorated", *numbers]]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert text.startswith(title)
    assert text.count("failed") == 1
    (row,) = (line.split() for line in lines if "12.101" in line)
    assert row[1:] == numbers
    width = len(row[0])
    assert "".join(line[: width + 1].strip() for line in lines[-3:]) == "some/where/bad.py:undecorated"
    print_table(TextTable(title, headings, [["eed", *(f"{number}00000" for number in numbers)]]))
    assert "12.10100000" in capsys.readouterr().out  # wider than 80 instead of cut


def test_text_from_files_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("Error:", "red", "bad.json: got \x1b[2J" + "x" * 10_000)
    told = capsys.readouterr().err
    assert "\x1b[2J" not in told
    assert len(told) < 3000
