"""The table of verbs, and the imports of each verb."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowinpaint as fi
from flowinpaint.cli import VERBS, load_verb
from flowinpaint.methods.builtin import BUILTIN
from helpers import run_cli

HEAVY = {"torch", "numba", "cv2", "scipy", "numpy", "rich.progress", "triton", "matplotlib"}
MOST_MODULES = 100
"""Modules of flowinpaint that `flowinpaint fill` may import."""
LIST_MODULES = "import atexit, json, sys; atexit.register(lambda: print('\\n' + json.dumps(list(sys.modules))))"


def imported(code: str, *arguments: Any) -> set[str]:
    """The modules that a new process has imported when it ends."""
    command = [sys.executable, "-c", f"{LIST_MODULES}\n{code}", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(option: str) -> None:
    modules = imported("from flowinpaint.cli import main; main()", option)
    assert not modules & (HEAVY - {"rich.progress"})
    assert {name for name in modules if name.startswith("flowinpaint.cli.")} == set()


def test_fill_imports_only_what_it_needs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fi.write_image(tmp_path / "image.png", rng.integers(0, 256, (12, 17, 3), dtype=np.uint8))
    flow = rng.normal(size=(12, 17, 2)).astype(np.float32)
    fi.write_flow(tmp_path / "given.flo", np.where(rng.random((12, 17, 1)) < 0.3, flow, np.nan))
    modules = imported(
        "from flowinpaint.cli import main; main()",
        *("fill", tmp_path / "image.png", tmp_path / "given.flo", "-o", tmp_path / "o.flo", "--device", "cpu"),
    )
    assert (tmp_path / "o.flo").exists()
    ours = {name for name in modules if name.partition(".")[0] == "flowinpaint"}
    assert len(ours) < MOST_MODULES
    assert not {name for name in ours if name.split(".")[1:2] in (["evaluation"], ["training"], ["reproduction"])}
    assert "matplotlib" not in modules


def test_a_verb_imports_no_other_verb_and_the_console_no_evaluation() -> None:
    modules = imported("import flowinpaint.cli.console, flowinpaint.cli.options")
    assert not modules & (HEAVY - {"rich.progress"})
    assert not {name for name in modules if name.startswith("flowinpaint.evaluation")}


def test_the_version_comes_quickly() -> None:
    """In processor time, since other tests run at the same time; 0.15 s more than `python -c pass` on two cores."""
    resource = pytest.importorskip("resource")

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used: float = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return used

    assert min(seconds("-m", "flowinpaint", "--version") - seconds("-c", "pass") for _ in range(5)) < 0.5


def test_version_and_help_say_what_there_is() -> None:
    assert run_cli("--version")[1].strip() == fi.__version__
    help_text = " ".join(run_cli("--help")[1].split())
    assert all(verb in help_text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    code, stdout, _ = run_cli(verb, "--help")
    assert code == 0
    assert f"{verb} [OPTIONS]" in " ".join(stdout.split())
    assert VERBS[verb].endswith(".")


@pytest.mark.parametrize("verb", ["fill", "demo", "methods"])
def test_the_table_has_the_first_sentence_of_a_verbs_help(verb: str) -> None:
    assert load_verb(verb).help.partition("\n\n")[0].replace("\n", " ") == VERBS[verb]


@pytest.mark.parametrize("arguments", [("tune", "eed"), ("assets", "build")])
def test_subcommands_have_help(arguments: tuple[str, str]) -> None:
    code, stdout, _ = run_cli(*arguments, "--help")
    assert code == 0
    assert f"{' '.join(arguments)} [OPTIONS]" in " ".join(stdout.split())


def test_an_unknown_verb_is_named_with_the_closest_one() -> None:
    code, _, stderr = run_cli("fil")
    assert code == 2
    assert "No such command 'fil'" in stderr
    assert "'fill'" in stderr


def test_methods_lists_every_method_and_why_one_cannot_be_used() -> None:
    code, stdout, stderr = run_cli("methods")
    assert code == 0
    assert all(name in stdout for name in fi.methods())
    shown = {name: line for line in stdout.splitlines() for name in fi.methods() if f" {name} " in line}
    assert all(" shipped " in shown[name] for name, method in BUILTIN.items() if method.shipped)
    assert "Unavailable: pd " in stderr
    assert "reproduce networks --only pd" in stderr
