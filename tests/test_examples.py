import os
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short_and_draws_a_picture(script: Path, tmp_path: Path) -> None:
    assert len(script.read_text().splitlines()) < 100
    picture = tmp_path / "out.png"
    # Threads of several processes on the same cores wait for each other at every operation.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, picture], capture_output=True, text=True, check=True, env=environment
    )
    assert "EPE" in done.stdout
    assert cv2.imread(str(picture)) is not None
