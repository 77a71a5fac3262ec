import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.evaluation.parameter_file import read_parameters
from frame_folder import make_root

SMALL = ["--lambdas", "3", "--alphas", "2", "--crop", "16", "--tolerance", "1e-3", "--densities", "10,30"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the frames in frames/."""
    make_root(tmp_path / "frames")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: Any) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["tune", "eed", "--root", "frames", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_best_parameters_are_written_with_the_grid_and_marked_on_screen(place: Path) -> None:
    code, stdout, stderr = run(*SMALL, "-o", "eed.json")
    assert code == 0
    assert {p.name for p in place.iterdir()} == {"frames", "eed.json", "eed.csv", "eed.records.jsonl"}
    rows = list(csv.DictReader((place / "eed.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 * 2
    table = read_parameters("eed.json")
    for density in (0.1, 0.3):
        best = min((row for row in rows if row["density"] == str(density)), key=lambda row: float(row["epe"]))
        assert table.at(density) == {"lam": float(best["lam"]), "alpha": float(best["alpha"])}
        assert f"{float(best['epe']):.3f}*" in stdout
    assert stdout.count("*") == 2
    assert "frames has 4 samples, fewer than 128; all are used" in stderr
    assert "alpha is on the border of the grid" in stderr
    assert set(json.loads((place / "eed.json").read_text())) == {"method", "by_density"}


def test_it_resumes_and_the_file_serves_fill_and_evaluate(place: Path) -> None:
    assert run(*SMALL, "-o", "eed.json", "--samples", "2")[0] == 0
    code, _, stderr = run(*SMALL, "-o", "eed.json", "--samples", "2")
    assert code == 0
    assert "Note: 24 of 24 runs were already finished." in stderr
    assert "all are used" not in stderr
    arguments = ["evaluate", "--root", "frames/A", "--methods", "eed", "--reference", "nearest", "--densities", "30"]
    result = CliRunner().invoke(app, [*arguments, "--params", "eed.json"])
    assert result.exit_code == 0
    record = json.loads((place / "evaluation" / "results.json").read_text())["records"][0]
    assert record["key"]["parameters"] == read_parameters("eed.json").at(0.3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-o", "eed.csv"], "--out must end in .json, got eed.csv"),
        (["-o", "frames/sub/eed.json", "--root", "nowhere"], "but nowhere does not exist"),
        (
            ["-o", "eed.json", "--densities", "x"],
            "--densities must be percentages above 0 and up to 100, such as 1,5,10, got 'x'",
        ),
        (["-o", "eed.json", "--tolerance", "2"], "tolerance must be a relative residual between 0 and 1, got 2.0"),
        (["-o", "eed.json", "--root", "nowhere"], "but nowhere does not exist"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    code, stdout, stderr = run("--samples", "1", *arguments)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert sentence in stderr
    assert [p.name for p in place.iterdir()] == ["frames"]
    assert not (place / "frames" / "sub").exists()
