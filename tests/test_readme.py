"""The README: its Python code runs as printed, and its links point to existing pages."""

import re
from pathlib import Path

import pytest
from results_page.page import replace_block

from flowinpaint.cli import demo
from flowinpaint.data.demo_scene import sample_scene

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's files, of a small scene and the fastest method."""
    path = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "sample_scene", lambda seed: sample_scene(96, 144, seed))
        patch.setattr(demo, "usual_methods", lambda: ["nearest"])
        demo.command(path / "demo", density=0.05, seed=0, device="cpu")
    return path


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(block: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    exec(compile(block, "README.md", "exec"), {})


def test_there_are_python_blocks() -> None:
    assert len(BLOCKS) == 3


def test_there_is_one_place_for_the_table_of_results() -> None:
    before, after = replace_block(ROOT / "README.md", README, "new").split("\nnew\n")
    assert before in README
    assert after in README
    assert len(before) + len(after) < len(README) - 300


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
