"""The guide "Compare your method", followed from its first to its last step in one folder."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from helpers import run_cli

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "compare-your-method.md"


def test_the_steps_work_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if kind == "python" and (name := re.match(r"# (\w+\.py)\n", block)):
            Path(name[1]).write_text(block.replace("120, 180", "48, 60"))  # smaller frames are faster
            if name[1] != "make_frames.py":
                continue
        if kind == "" and (script := re.fullmatch(r"python (\w+\.py)\n", block)):
            runpy.run_path(script[1], run_name="__main__")
            done.append(script[1])
        if kind == "" and block.startswith("flowinpaint "):
            for line in block.splitlines():
                if "--fields" in line:
                    runpy.run_path("other_program.py", run_name="__main__")
                code, stdout, _ = run_cli(*shlex.split(line.replace("neuroexplicit", "nearest"))[1:])
                assert code == 0
                done.append(stdout)
    assert done[0] == "make_frames.py"
    assert "mine.py:mine" in done[1]
    assert done[2].startswith("Wrote 6 inputs to inputs")
    assert " other " in done[3]
    assert len(done) == 4
