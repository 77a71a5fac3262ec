"""`flowinpaint warmup`."""

import re
import subprocess
import sys

import pytest


def test_warmup_says_what_is_compiled_and_a_second_one_that_all_is() -> None:
    pytest.importorskip("numba")
    command = [sys.executable, "-m", "flowinpaint", "warmup", "--device", "cpu"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert re.match(r"(All|Compiled \d+ of) \d+ loops for the CPU .*; they are below ", first.stdout)
    assert re.match(r"All \d+ loops for the CPU were compiled before; they are below ", second.stdout)
    assert second.stderr == ""
