import json
from pathlib import Path

import pytest

from flowinpaint.errors import FileFormatError, MissingFileError
from flowinpaint.evaluation.parameter_file import ParameterTable, read_parameters, write_parameters


def test_one_set_serves_every_density(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"method": "eed", "lam": 1e-3, "alpha": 0.2}')
    table = read_parameters(tmp_path / "p.json")
    assert table.method == "eed"
    assert table.at(0.001) == table.at(1) == {"lam": 1e-3, "alpha": 0.2}


def test_the_nearest_density_is_taken_by_ratio_and_not_by_difference() -> None:
    table = ParameterTable("eed", {0.01: {"lam": 1.0}, 0.1: {"lam": 2.0}})
    assert table.at(0.03) == {"lam": 1.0}  # a ratio of 3 against one of 3.3
    assert table.at(0.04) == {"lam": 2.0}  # though 0.01 is nearer by difference
    assert table.at(1e-6) == {"lam": 1.0}
    assert table.at(1) == {"lam": 2.0}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table = ParameterTable("eed", {0.01: {"lam": 3.16228e-05, "alpha": 0.42}, 0.005: {"lam": 1e-6, "alpha": 0.001}})
    write_parameters(tmp_path / "p.json", table)
    assert read_parameters(tmp_path / "p.json") == table


def test_callers_cannot_change_the_table() -> None:
    table = ParameterTable("eed", {1.0: {"lam": 1.0}})
    table.at(1)["lam"] = 5
    assert table.at(1) == {"lam": 1.0}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ([], 'must be an object with a "method"'),
        ({"lam": 1}, 'must be an object with a "method"'),
        ({"method": 3}, 'must be an object with a "method"'),
        ({"method": "magic"}, "method must be one of .*eed.*, got 'magic'"),
        ({"method": "eed", "sigma": 1}, "sigma"),
        ({"method": "nearest", "lam": 1}, "lam.*'nearest'"),
        ({"method": "eed", "lam": "1"}, "lam.*'1'"),
        ({"method": "eed", "lam": True}, "lam.*True"),
        ({"method": "eed", "lam": float("nan")}, "a number must be finite, got NaN"),
        ({"method": "eed", "by_density": {}}, '"by_density" must be an object of parameters by density, got {}'),
        ({"method": "eed", "by_density": [1]}, '"by_density" must be'),
        ({"method": "eed", "by_density": {"5 %": {}}}, "a density must be a share .* got '5 %'"),
        ({"method": "eed", "by_density": {"5": {}}}, "got '5'"),
        ({"method": "eed", "by_density": {"nan": {}}}, "got 'nan'"),
        ({"method": "eed", "by_density": {"0.1": 3}}, "a density must have an object of parameters, got 3"),
        ({"method": "eed", "by_density": {"0.1": {"beta": 3}}}, "beta"),
        ({"method": "eed", "lam": 1, "by_density": {"0.1": {}}}, 'must have only "method" next to it, got .lam'),
    ],
)
def test_wrong_contents_are_named_with_the_file(tmp_path: Path, content: object, fault: str) -> None:
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=rf"p\.json: .*{fault}"):
        read_parameters(tmp_path / "p.json")


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"p\.json: there is no such file"):
        read_parameters(tmp_path / "p.json")
    faults = {b"{": "line 1, column 2: must be JSON", b"\xff\xfe": "not a text file", b"[" * 100_000: "must be nested"}
    for data, fault in faults.items():
        (tmp_path / "p.json").write_bytes(data)
        with pytest.raises(FileFormatError, match=rf"p\.json: {fault}"):
            read_parameters(tmp_path / "p.json")
    (tmp_path / "p.json").write_bytes(b" " * (2 << 20))
    with pytest.raises(FileFormatError, match=r"p\.json: must have at most 1048576 bytes, got 2097152"):
        read_parameters(tmp_path / "p.json")
