"""The README: short, its Python code runs as printed, and its commands and options exist."""

import re
from pathlib import Path

import numpy as np
import pytest
from results_page.page import replace_block

import flowinpaint as fi
from flowinpaint.cli import VERBS, demo, load_verb
from flowinpaint.data.demo_scene import sample_scene
from street_scene import P, street

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^flowinpaint .*$", README, re.MULTILINE)
MOST_WORDS = 900


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the demo's files, of a small scene and the fastest method, and matches and a scan."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "sample_scene", lambda seed: sample_scene(96, 144, seed))
    monkeypatch.setattr(demo, "usual_methods", lambda: ["nearest"])
    demo.command(Path("demo"), density=0.05, seed=0, device="cpu")
    truth, _ = fi.read_flow("demo/truth.flo")
    y, x = np.nonzero(fi.read_mask("demo/mask.png"))
    np.savetxt("matches.txt", np.column_stack([x, y, np.stack([x, y], 1) + truth[y, x]]))
    scene = street()
    fi.write_image("photo.png", scene.image)
    scene.scan.astype("<f4").tofile("scan.bin")
    identity = "1 0 0 0 0 1 0 0 0 0 1 0"
    Path("calib.txt").write_text(f"P2: {' '.join(map(str, P.ravel()))}\nTr: {identity}\n")
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(block: str, folder: Path) -> None:
    exec(compile(block, "README.md", "exec"), {})
    assert (folder / "depth.png").exists()


def test_it_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS
    assert len(BLOCKS) == 1
    assert len(BLOCKS[0].splitlines()) <= 30
    assert 5 <= len(COMMANDS) <= 10


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_options_exist(line: str) -> None:
    verb = line.split()[1]
    assert verb in VERBS
    known = {option for parameter in load_verb(verb).params for option in parameter.opts}
    assert {word for word in line.split() if word.startswith("-")} <= known


def test_there_is_one_place_for_the_table_of_results() -> None:
    before, after = replace_block(ROOT / "README.md", README, "new").split("\nnew\n")
    assert before in README
    assert after in README
    assert len(before) + len(after) < len(README) - 300
