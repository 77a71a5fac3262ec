"""The loader of untrusted text: every damaged or hostile file is a FileFormatError with file and place."""

import io
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flowinpaint as fi
from flowinpaint.depth.colmap import read_colmap
from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.io.budget import reading
from flowinpaint.io.text import MOST_SHORT, json_lines, read_json, read_toml
from flowinpaint.training.config import apply_settings, read_config

JSON = {
    "not json": (b'{\n "a": 1,\n "b": }', r"line 3, column 7: must be JSON, got '}'"),
    "cut": (b'{"a": [1, 2', "must be JSON, got the end"),
    "nested lists": (b"[" * 100_000 + b"]" * 100_000, "nested at most 32 levels deep"),
    "nested tables": (b'{"a":' * 100_000, "nested at most 32 levels deep"),
    "a few levels too deep": (b"[" * 40 + b"]" * 40, "nested at most 32 levels deep"),
    "a huge integer": (b"1" + b"0" * 400, "at most 300 digits, got 401"),
    "an integer that Python refuses": (b"1" * 100_000, "at most 300 digits"),
    "1e400": (b'{"a": [1e400]}', "a number must be finite"),
    "NaN": (b"[NaN]", "a number must be finite, got NaN"),
    "a key twice": (b'{"a": 1, "a": 2}', "the key 'a' must occur once, got it twice"),
    "no UTF-8": (b'{"a":\n "\xff"}', "not a text file: line 2 is not UTF-8"),
    "zero bytes": (b'{"a":\n\n "\0"}', "not a text file: line 3 has a zero byte"),
    "too large": (b" " * 2**25, "must have at most 16777216 bytes, got 33554432"),
    "lists that need 100 times their size": (b"[" + b"[]," * 5_000_000 + b"[]]", "must have at most .* bytes"),
    "nothing": (b"", "must be JSON, got the end"),
}
TOML = {
    "not toml": (b"a = 1\n[data", "line 2, column 6: must be TOML|must be TOML"),
    "nested": (b"a = " + b"[" * 2000, "nested at most 32 levels deep"),
    "nested inline tables": (b"a = " + b"{b=" * 600, "nested at most 32 levels deep"),
    "a dotted key that needs a minute": (b"a" + b".a" * 30_000 + b" = 1", "line 1 must have at most 2048 characters"),
    "a deep dotted key": (b"a" + b".a" * 900 + b" = 1", "nested at most 32 levels deep"),
    "a huge integer": (b"a = " + b"1" * 2000, None),
    "an integer that Python refuses": (b"a = 1" + b"_0" * 1000 + b"\nb = " + b"1" * 2040, None),
    "too large": (b"#" * 70_000, "must have at most 65536 bytes, got 70000"),
    "no UTF-8": (b"a = '\xff'", "not a text file: line 1 is not UTF-8"),
}


def refused(path: Path, data: bytes, message: str, *readers: Callable[[Path], object]) -> None:
    """Assert that readers name the file and the fault within two seconds of CPU time."""
    path.write_bytes(data)
    started = time.process_time()
    for read in readers:
        with pytest.raises(FileFormatError, match=rf"{re.escape(path.name)}: .*{message}"):
            read(path)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("case", JSON)
def test_damaged_json_is_an_error_with_its_place(tmp_path: Path, case: str) -> None:
    refused(tmp_path / "a.json", *JSON[case], read_json)


@pytest.mark.parametrize("case", TOML)
def test_damaged_toml_is_an_error_with_its_place(tmp_path: Path, case: str) -> None:
    data, message = TOML[case]
    readers = (read_config, read_toml) if message else (read_config,)  # without: TOML, but no configuration
    refused(tmp_path / "a.toml", data, message or "", *readers)


def test_text_files_that_are_missing_folders_or_loops(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("none", "loop"):
        with pytest.raises(MissingFileError, match=name):
            read_json(tmp_path / name)
    with pytest.raises(FileFormatError, match="must be a file, got a folder"):
        read_json(tmp_path)


def test_a_hostile_setting_of_the_command_line_is_an_input_error() -> None:
    for value in ("[" * 5000, "1" * 5000, "nan", "{" * 50, "1\nb = 2"):
        with pytest.raises(fi.InputError, match=r"^--set: optimiser\.lr must be"):
            apply_settings({}, [f"optimiser.lr={value}"])


def test_json_lines_name_the_line_and_go_on() -> None:
    data = b'{"a": 1}\n\n{"a": \n' + b"[" * 5000 + b"\n[2]\n\xff\n{"
    found = list(json_lines(Path("r.jsonl"), io.BytesIO(data)))
    assert [line for line, _ in found] == [1, 3, 4, 5, 6, 7]
    assert (found[0][1], found[3][1]) == ({"a": 1}, [2])
    faults = {1: "line 3, column", 2: "line 4: must be nested", 4: "line 6: not a text", 5: "line 7: truncated"}
    for at, message in faults.items():
        assert isinstance(found[at][1], FileFormatError)
        assert str(found[at][1]).startswith(f"r.jsonl: {message}")
    with pytest.raises(FileFormatError, match="line 1 must have at most"):
        list(json_lines(Path("r.jsonl"), io.BytesIO(b" " * 2**21)))


MATCHES = {
    "one long line": (b"1 " * 5_000_000, "line 1 must have at most 65536 characters"),
    "one long line after rows": (b"1 2 3 4\n" * 9 + b"1 " * 5_000_000, "line 10 must have at most 65536 characters"),
    "blank lines": (b"\n" * 5_000_000, "must have at most 1000000 lines"),
    "comments": (b"#\n" * 3_000_000, "must have at most 1000000 lines"),
    "underscores": (b"1 2 3 1_0\n", "line 1 must hold numbers, got '1_0'"),
    "underscores after rows": (b"1 2 3 4\n" * 130_000 + b"1 2 3 1_0\n", "line 130001 must hold numbers, got '1_0'"),
    "digits of other scripts": ("1 2 3 ٣\n".encode(), "line 1 must hold numbers"),
    "a row of other width far below": (b"1 2 3 4\n" * 130_000 + b"1 2 3\n1\n", "line 130001 must have 4 columns"),
}


@pytest.mark.parametrize("case", MATCHES)
def test_hostile_lists_of_matches_are_refused_in_time(tmp_path: Path, case: str) -> None:
    refused(tmp_path / "m.txt", *MATCHES[case], fi.read_matches)


@pytest.mark.parametrize("separator", [" ", ",", ";", "\t", ", "])
def test_blocks_of_plain_rows_are_read_as_single_rows_are(tmp_path: Path, separator: str) -> None:
    rows = ["1.5 -2 3e1 nan", "", "inf .5 6. 1e400", "# a comment", "7 8 9 10"]
    lines = [separator.join(row.split()) if row[:1] != "#" else row for row in rows]
    (tmp_path / "short.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "long.csv").write_text(("\n".join([*lines, *lines[:3], ""])) * 10_000)
    short, long = (fi.read_matches(tmp_path / f"{name}.csv", "x,y,u,v") for name in ("short", "long"))
    for a, b in zip(short[:2], long[:2], strict=True):
        assert a.tobytes() == b[:3].tobytes()
        assert len(b) == 50_000


@pytest.mark.parametrize(
    ("row", "fault"), [("1,,2 3,4", "numbers"), (",1,2,3,4", "4 columns"), ("1,2,3,4,5", "4 columns")]
)
def test_empty_cells_are_not_skipped_in_large_files(tmp_path: Path, row: str, fault: str) -> None:
    (tmp_path / "m.csv").write_text("1,2,3,4\n" * 130_000 + f"{row}\n")
    with pytest.raises(FileFormatError, match=f"line 130001 must h.* {fault}"):
        fi.read_matches(tmp_path / "m.csv")


def test_the_numbers_of_matches_count_against_the_budget(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("1 2 3 4\n" * 1000)
    with reading(20_000), pytest.raises(FileFormatError, match="must have at most 20000 bytes"):
        fi.read_matches(tmp_path / "m.txt")


VIEW, POINTS = b"1 1 0 0 0 0 0 1 1 a.jpg\n", b"1 0 0 1 0 0 0 0\n"
COLMAP = {
    "a long line": (VIEW + b"1 1 1 " * 2_000_000, POINTS, "line 2 must have at most"),
    "blank lines": (b"\n" * 5_000_000, POINTS, f"at most {MOST_SHORT} lines"),
    "an underscore": (VIEW.replace(b" 1 1 a", b" 1_0 1 a") + b"1 1 1\n", POINTS, "line 1 must have numbers"),
    "blank points": (VIEW + b"1 1 1\n", b"\n" * 5_000_000, f"at most {MOST_SHORT} lines"),
    "a huge id": (VIEW + b"1 1 1\n", b"9" * 30 + POINTS, "the id of a point"),
}


@pytest.mark.parametrize("case", COLMAP)
def test_hostile_colmap_text_is_refused_in_time(tmp_path: Path, case: str) -> None:
    images, points, message = COLMAP[case]
    (tmp_path / "images.txt").write_bytes(images)
    (tmp_path / "points3D.txt").write_bytes(points)
    started = time.process_time()
    with pytest.raises(FileFormatError, match=message):
        read_colmap(tmp_path, "a.jpg")
    assert time.process_time() - started < 2


def test_300_000_tiny_colmap_images_are_listed_in_time(tmp_path: Path) -> None:
    count = 300_000
    (tmp_path / "images.bin").write_bytes(count.to_bytes(8, "little") + (bytes(64) + b"a\0" + bytes(8)) * count)
    (tmp_path / "points3D.bin").write_bytes(bytes(8))
    started = time.process_time()
    with pytest.raises(fi.InputError, match=f"one of the {count} images in .*, such as a, a, a, got 'b'"):
        read_colmap(tmp_path, "b")
    assert time.process_time() - started < 2


def test_calibrations_have_plain_numbers_only(tmp_path: Path) -> None:
    path = tmp_path / "calib.txt"
    path.write_text("P2: " + "1_0 " * 12 + "\nTr: " + "1 " * 12)
    with pytest.raises(FileFormatError, match="must have a line P_rect_02 or P2"):
        fi.read_calibration(path)
