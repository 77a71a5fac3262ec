"""`flowinpaint warmup`."""

import re
import subprocess
import sys

import pytest


def test_warmup_says_what_is_compiled_and_then_that_all_is() -> None:
    pytest.importorskip("numba")
    command = [sys.executable, "-m", "flowinpaint", "warmup", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if compiled := re.match(r"Compiled (\d+) of \d+ loops for the CPU in .* s; they are below ", done.stdout):
        assert sum(map(int, re.findall(r"^Compiled: .*, (\d+) loop", done.stderr, re.M))) <= int(compiled[1])
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.match(r"All \d+ loops for the CPU were compiled before; they are below ", done.stdout)
    assert done.stderr == ""
