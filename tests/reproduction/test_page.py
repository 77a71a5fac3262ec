import csv
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest

from flowinpaint.reproduction.drawing import Block, Row, draw_table, render, table_size
from flowinpaint.reproduction.page import Page, write_page
from flowinpaint.text_tables import number

BLOCKS = [
    Block(
        f"A title of a data set that is longer than its table is wide, number {i}",
        "given",
        ("EED", "Ours"),
        (Row("1 %", ("0.123", "–"), bold=frozenset({0})), Row("paper", ("1.0", "2.0"), quiet=True)),
        own=1,
    )
    for i in range(3)
]


def pictures(rehearsal: bool = False) -> dict[str, bytes]:
    return render(lambda figure: draw_table(figure, BLOCKS), table_size(BLOCKS), rehearsal, arranged=False)


def report(**change: object) -> Page:
    fields = {
        "rows": [{"a": 1, "b": None}, {"a": 2, "c": "x, y"}],
        "paragraphs": ["# Title", "word " * 60, "| a |\n|---|\n| 1 |"],
        "pictures": pictures,
        "alternative": "a picture",
    }
    return Page(**(fields | change))  # type: ignore[arg-type]


def test_a_report_is_four_files(tmp_path: Path) -> None:
    written = write_page(tmp_path / "out" / "table9", report(), rehearsal=False)
    assert [path.name for path in written] == ["table9.csv", "table9.md", "table9.png", "table9.svg"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in written}
    with written[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [row["a"] for row in rows] == ["1", "2"]
    assert rows[0]["b"] == ""
    assert rows[1]["c"] == "x, y"
    assert rows[0]["rehearsal"] == "no"
    text = written[1].read_text()
    assert text.startswith("# Title\n\n![a picture](table9.png)\n\nword word")
    assert max(map(len, text.splitlines())) <= 120
    picture = cv2.imread(str(written[2]))
    assert picture is not None
    assert len(np.unique(picture)) > 10
    root = ElementTree.fromstring(written[3].read_bytes())
    assert root.tag.endswith("svg")


def test_a_rehearsal_says_so_in_every_file(tmp_path: Path) -> None:
    write_page(tmp_path / "table9", report(pictures=lambda: pictures(rehearsal=True)), rehearsal=True)
    assert "This is a rehearsal" in (tmp_path / "table9.md").read_text()
    assert "yes" in (tmp_path / "table9.csv").read_text()
    assert "rehearsal" in (tmp_path / "table9.svg").read_text()
    assert "rehearsal" not in pictures()[".svg"].decode()
    plain, marked = pictures(), pictures(rehearsal=True)
    assert plain[".png"] != marked[".png"]


def test_what_cannot_be_drawn_leaves_everything_as_it_was(tmp_path: Path) -> None:
    write_page(tmp_path / "table9", report(), rehearsal=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken() -> dict[str, bytes]:
        raise RuntimeError("no ink")

    with pytest.raises(RuntimeError, match="no ink"):
        write_page(tmp_path / "table9", report(rows=[{"a": 3}], pictures=broken), rehearsal=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_disk_that_fills_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_page(tmp_path / "table9", report(), rehearsal=False)
    before = (tmp_path / "table9.csv").read_bytes()

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_page(tmp_path / "table9", report(rows=[{"a": 3}]), rehearsal=False)
    monkeypatch.undo()
    assert (tmp_path / "table9.csv").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 4


def test_without_pictures_text_is_written_and_old_pictures_go(tmp_path: Path) -> None:
    write_page(tmp_path / "table9", report(), rehearsal=False)
    written = write_page(tmp_path / "table9", report(pictures=dict), rehearsal=False)
    assert {path.name for path in tmp_path.iterdir()} == {"table9.csv", "table9.md"}
    assert len(written) == 2
    assert "it needs matplotlib, the extra `plots`" in (tmp_path / "table9.md").read_text()


def test_the_same_picture_is_the_same_file() -> None:
    assert pictures() == pictures()


def test_a_difference_that_reads_as_none_has_no_minus() -> None:
    assert [number(value, sign=True) for value in (-0.0004, -0.0006, 0.0004)] == ["+0.000", "-0.001", "+0.000"]
    assert (number(-0.0004), number(None)) == ("0.000", "–")
