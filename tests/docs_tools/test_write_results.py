import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import cv2
import numpy as np
import pytest
import write_results
from results_page.page import BEGIN, END

from finished_evaluations import REFERENCE, grid_of_records, write_evaluation
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.folder import Frame
from flowinpaint.masks.cases import Case, drawn_mask
from flowinpaint.methods import registry


def small_frames(case: Case) -> dict[str, Frame]:
    image, flow = sample_scene(32, 48)
    valid = np.ones((32, 48), np.bool_)
    return {"small": Frame(image, flow, valid, drawn_mask(case, (32, 48), 0, valid))}


PEER = "opencv-edgeaware"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with a README, and scenes that cost nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write_results, "own_frames", small_frames)
    (tmp_path / "README.md").write_text(f"# Mine\n{BEGIN}\nold\n{END}\nrest\n")
    write_evaluation(tmp_path / "first", grid_of_records({REFERENCE: 1.0, PEER: 2.0}, [0.05, 0.1, "lidar"]))
    write_evaluation(tmp_path / "second", grid_of_records({REFERENCE: 1.0, "gone.safetensors": 0.5}, [0.05, 0.1]))
    return tmp_path


def run(*arguments: str) -> tuple[str, str, str]:
    """Run the script: its last words, "" if all went well, and what it printed on stdout and stderr."""
    fault, stdout, stderr = "", io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            write_results.main(arguments)
        except SystemExit as stopped:
            fault = str(stopped.code)
    return fault, stdout.getvalue(), stderr.getvalue()


def test_it_runs_as_a_script() -> None:
    script = Path(__file__).resolve().parents[2] / "docs" / "write_results.py"
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
    assert "docs/write_results.py evaluation" in done.stdout


def test_evaluations_of_inputs_alone_have_no_pictures(place: Path) -> None:
    write_evaluation(place / "third", grid_of_records({REFERENCE: 1.0, "nearest": 2.0}, ["sift", "noise"]))
    fault, stdout, _ = run("third")
    assert fault == ""
    assert stdout.split() == ["Wrote", "third/page.md."]
    assert "## Imperfect inputs" in (place / "third/page.md").read_text()
    fault, _, _ = run("third", "--readme", "README.md")
    assert "for the table of --readme, got neither" in fault


def test_page_readme_and_pictures_are_written_and_renewed(place: Path) -> None:
    for _ in range(2):
        fault, stdout, _ = run("first", "second", "--page", "docs/results.md", "--readme", "README.md")
        assert fault == ""
        files = "docs/results.md, README.md, docs/results-density.png, docs/results-zoom.jpg"
        assert " ".join(stdout.split()) == f"Wrote {files}."
        readme = (place / "README.md").read_text()
        assert readme.startswith(f"# Mine\n{BEGIN}\nEPE divided by the lower EPE")
        assert readme.endswith(f"{END}\nrest\n")
        assert "| gone.safetensors | **0.250** |" in readme
        assert "](docs/results.md)" in readme
        page = (place / "docs/results.md").read_text()
        assert "](results-density.png)" in page
        assert "](results-zoom.jpg)" in page
        assert page.count("- `flowinpaint evaluate") == 2
        picture = cv2.imread("docs/results-zoom.jpg")
        assert picture is not None
        assert (
            5 * 240 < picture.shape[1] < 6 * 340
        )  # image, given, truth and two methods; the third is not there to run


def test_other_places_and_a_link_from_one_to_the_other(place: Path) -> None:
    (place / "text").mkdir()
    (place / "text/about.md").write_text(f"{BEGIN}{END}")
    assert run("first", "--page", "pages/all.md", "--readme", "text/about.md")[0] == ""
    assert "](../pages/all.md)" in (place / "text/about.md").read_text()
    assert sorted(p.name for p in (place / "pages").iterdir()) == ["all-density.png", "all-zoom.jpg", "all.md"]
    assert "old" in (place / "README.md").read_text()


def test_nothing_but_the_evaluations_folder_is_written_to_unless_it_is_named(place: Path) -> None:
    before = (place / "README.md").read_text()
    fault, stdout, _ = run("first", "second")
    assert fault == ""
    assert "Wrote first/page.md, first/page-density.png, first/page-zoom.jpg." in " ".join(stdout.split())
    assert (place / "README.md").read_text() == before
    assert sorted(p.name for p in place.iterdir()) == ["README.md", "first", "second"]


def test_links_to_pages_that_are_not_beside_it_are_words(place: Path) -> None:
    assert run("first")[0] == ""
    text = (place / "first/page.md").read_text()
    assert "on the patterns." in " ".join(text.split())
    assert "evaluate.md" not in text
    (place / "first/evaluate.md").write_text("")
    assert run("first")[0] == ""
    assert "[the patterns](evaluate.md#patterns)" in (place / "first/page.md").read_text()


def test_a_readme_without_a_place_is_refused_before_anything_is_written(place: Path) -> None:
    (place / "README.md").write_text("# Mine\n")
    fault, stdout, _ = run("first", "--readme", "README.md", "--page", "other/page.md")
    assert "README.md: must have one line" in fault
    assert stdout == ""
    assert not (place / "other").exists()


def test_a_single_density_has_no_plot_and_an_earlier_one_goes(place: Path) -> None:
    write_evaluation(place / "third", grid_of_records({REFERENCE: 1.0}, [0.05]))
    assert run("first", "--page", "docs/results.md")[0] == ""
    assert run("third", "--page", "docs/results.md")[0] == ""
    assert sorted(p.name for p in (place / "docs").iterdir()) == ["results-zoom.jpg", "results.md"]


def test_without_matplotlib_there_is_a_note(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_results, "can_plot", lambda: False)
    fault, _, stderr = run("first")
    assert fault == ""
    assert "no plot was drawn" in stderr
    assert "page-density" not in (place / "first/page.md").read_text()


def test_without_a_method_to_run_there_is_no_picture(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "methods", list)
    fault, stdout, _ = run("first")
    assert fault == ""
    assert "zoom" not in stdout
    assert "page-zoom" not in (place / "first/page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere/results.json: there is no such file"),
        (["first", "--readme", "no.md"], "no.md: there is no such file"),
        (["first", "--page", "README.md/page.md"], "README.md: must be a folder"),
    ],
)
def test_an_error_is_a_sentence_and_nothing_is_written(place: Path, arguments: list[str], sentence: str) -> None:
    before = (place / "README.md").read_text()
    fault, stdout, _ = run(*arguments)
    assert fault.startswith("Error: ")
    assert sentence in fault
    assert stdout == ""
    assert (place / "README.md").read_text() == before
    assert not (place / "first/page.md").exists()
