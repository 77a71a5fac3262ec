import runpy
import sys
from pathlib import Path

import cv2
import pytest

from flowinpaint.data import demo_scene as scene

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
SIZE = (112, 160)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short_and_draws_a_picture(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(script.read_text().splitlines()) < 100
    picture = tmp_path / "out.png"
    full = scene.sample_scene
    monkeypatch.setattr(scene, "sample_scene", lambda seed=0: full(*SIZE, seed))
    monkeypatch.setattr(sys, "argv", [str(script), str(picture)])
    runpy.run_path(str(script), run_name="__main__")
    assert "EPE" in capsys.readouterr().out
    assert cv2.imread(str(picture)) is not None
