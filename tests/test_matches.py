"""Lists of matches: columns, separators, headers, and files that are not lists."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.io import matches as module

Writer = Callable[[str], Path]
MATCHES = "10 20 12.5 19 0.8 1\n40 60 41 62 0.7 2\n90 15 92 15.5 0.9 3\n35 80 34 81 0.2 4\n"
DISPLACEMENTS = "10 20 2.5 -1\n40 60 1 2\n90 15 2 .5\n35 80 -1 1\n"
VALUES = np.array([[2.5, -1], [1, 2], [2, 0.5], [-1, 1]])
POINTS = [[10, 20], [40, 60], [90, 15], [35, 80]]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    def write(text: str) -> Path:
        path = tmp_path / "matches.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (MATCHES, None),
        ("# DeepMatching\n\n" + MATCHES.replace("\n", "\r\n"), None),
        (MATCHES.replace(" ", ","), None),
        (MATCHES.replace(" ", " ; "), None),
        (MATCHES.replace(" ", "\t"), "x1 y1 x2 y2 _"),
        ("\ufeffX1,Y1,X2,Y2,score,index\n" + MATCHES.replace(" ", ","), None),
        (DISPLACEMENTS, "x,y,u,v"),
        ("x;y;u;v\n" + DISPLACEMENTS.replace(" ", ";"), None),
        ("x\ty\tdx\tdy\n" + DISPLACEMENTS.replace(" ", "\t"), None),
        ("# x y u v\n" + DISPLACEMENTS, None),
        (DISPLACEMENTS.replace(" ", ",").replace("\n", ",\n"), ["x", "y", "u", "v"]),
    ],
)
def test_every_way_of_writing_the_same_matches(write: Writer, text: str, columns: str | list[str] | None) -> None:
    points, values, noise, confidence = fi.read_matches(write(text), columns)
    assert np.array_equal(points, POINTS)
    assert np.allclose(values, VALUES)
    assert noise is None
    assert confidence is None


def test_values_of_other_kinds_with_noise_and_confidence(write: Writer) -> None:
    found = fi.read_matches(write("7,1.5,2.5,30,0.5,0.9\n8,3,4,nan,0.6,1\n"), "_,x,y,d,noise,confidence")
    assert np.array_equal(found.points, np.array([[1.5, 2.5], [3, 4]]))
    assert np.array_equal(found.values, np.array([[30], [np.nan]]), equal_nan=True)
    assert found.noise is not None
    assert found.confidence is not None
    assert np.array_equal(found.noise, [0.5, 0.6])
    assert np.array_equal(found.confidence, [0.9, 1])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5), min_size=1, max_size=20),
    st.sampled_from([" ", ",", ";", "\t", "  "]),
)
def test_numbers_come_back_exactly(write: Writer, rows: list[list[float]], separator: str) -> None:
    text = "".join(separator.join(map(repr, row)) + "\n" for row in rows)
    found = fi.read_matches(write(text), "x,y,u,v,w")
    assert np.array_equal(np.hstack([found.points, found.values]), rows)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_displacements_are_not_read_as_end_points(write: Writer, count: int) -> None:
    rng = np.random.default_rng(0)
    start, motion = rng.uniform(0, 400, (count, 2)), rng.normal(5, 3, (count, 2))
    wrong = write("\n".join(" ".join(map(str, row)) for row in np.hstack([start, motion])))
    with pytest.raises(fi.FileFormatError, match='pass columns="x,y,u,v"'):
        fi.read_matches(wrong)
    assert np.allclose(fi.read_matches(wrong, "x1,y1,x2,y2").values, motion - start)
    right = write("\n".join(" ".join(map(str, row)) for row in np.hstack([start, start + motion])))
    assert np.allclose(fi.read_matches(right).values, motion)


BAD = {
    "ragged": ("1 2 3 4\n1 2 3\n", None, "line 2 must have 4 columns, got 3"),
    "text": ("# c\n\n1 2 3 4\n1 2 3 abc\n", None, "line 4 must hold numbers, got 'abc'"),
    "empty cell": ("1,2,,4\n", None, "line 1 must hold numbers, got ''"),
    "decimal comma": ("1,5 2,5 3,5 4,5\n", None, "line 1 must hold numbers"),
    "only comments": ("# nothing\n\n", None, "at least one row of numbers, got none"),
    "only a header": ("x,y,u,v\n", None, "at least one row of numbers, got none"),
    "empty": ("", None, "must not be empty"),
    "three columns": ("1 2 3\n", None, 'pass columns="x,y,d"'),
    "fewer columns": ("1 2 3\n", "x,y,u,v", "must have the 4 columns x,y,u,v, got 3"),
    "unknown name": ("x,y,u,v,score\n1,2,3,4,5\n", None, "the meaning of 'score' is unknown"),
    "no place": ("a,b\n1,2\n", None, "the meaning of 'a' is unknown"),
    "no value": ("x,y,noise\n1,2,3\n", None, "they must have a value next to x and y"),
    "zero byte": ("1 2 3 4\n\0\n", None, "not a text file"),
    "long line": ("1 2 3 4 " + "5 " * 40000, None, "line 1 must have at most 65536 characters"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_an_error_that_names_the_line(write: Writer, case: str) -> None:
    text, columns, message = BAD[case]
    with pytest.raises(fi.FileFormatError, match=message):
        fi.read_matches(write(text), columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("x,y", "must have a value next to x and y"),
        ("x,u,v", "must have x and y, or x1, y1, x2 and y2"),
        ("x,y,x2,y2", "either x and y, or x1"),
        ("x,y,u,u", "different names"),
        ("x1,y1,x2,y2,score", "_ instead of score"),
        ("x,y,$", "must be names"),
    ],
)
def test_bad_columns_are_errors(write: Writer, columns: str, message: str) -> None:
    with pytest.raises(fi.InputError, match=message):
        fi.read_matches(write(MATCHES), columns)


def test_files_that_are_no_text_and_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.txt"
    path.write_bytes(b"1 2 3 4\n\xff\xfe\xfa\n")
    with pytest.raises(fi.FileFormatError, match="line 2 is not UTF-8"):
        fi.read_matches(path)
    with pytest.raises(fi.MissingFileError, match="there is no such file"):
        fi.read_matches(tmp_path / "other.txt")
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    path.write_text(MATCHES)
    with pytest.raises(fi.FileFormatError, match="at most 3 rows"):
        fi.read_matches(path)


def test_lines_that_end_in_cr_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"1 2 3 4\r5 6 7 8\r9 10 11 12\r")
    with pytest.raises(fi.FileFormatError, match=r"lines must end in LF or CR LF, got CR alone in line 1"):
        fi.read_matches(tmp_path / "m.txt")
