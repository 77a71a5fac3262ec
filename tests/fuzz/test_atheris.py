"""Readers under atheris, which searches for new paths through our own parsers. It is no dependency."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flowinpaint as fi

SECONDS = 20
PARSERS = ("matches", "calibration", "training configuration", "parameters", "records", "image", "flow")
"""Readers whose parsing is in Python; atheris does not see into libraries."""


@pytest.mark.parametrize("reader", PARSERS)
def test_no_path_leads_to_a_foreign_exception(reader: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(Path(fi.__file__).parents[1]), str(tests), str(tests.parent / "docs")])
    command = [sys.executable, "-m", "fuzz.guided", reader, f"-max_total_time={SECONDS // len(PARSERS)}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
