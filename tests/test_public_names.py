"""Public names of the package, which are imported when first used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flowinpaint as fi


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_exists_and_has_a_docstring() -> None:
    for name in fi.__all__:
        assert getattr(fi, name).__doc__, name
    assert set(fi.__all__) <= set(dir(fi))


def test_the_names_for_type_checkers_are_those_of_the_table() -> None:
    tree = ast.parse(Path(fi.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    declared = {f"flowinpaint.{m}": set(names) for m, names in fi._LAZY.items()}
    assert {node.module: {alias.name for alias in node.names} for node in imports} == declared
    assert {*fi._HOMES, "methods", "__version__"} == set(fi.__all__)


def test_import_leaves_pytorch_alone() -> None:
    run(
        "import sys, flowinpaint as fi; fi.__version__; fi.InputError; dir(fi)\n"
        "assert not {'torch', 'numpy', 'cv2', 'scipy', 'numba', 'typer'} & sys.modules.keys(), sys.modules.keys()"
    )


@pytest.mark.parametrize(
    "code",
    [
        """
from flowinpaint import inpaint
from flowinpaint import *
assert inpaint.__module__ == "flowinpaint.api"
assert load_model and Result and methods() and preview
import flowinpaint, pickle
assert pickle.loads(pickle.dumps(flowinpaint.Progress(1, 2, 3))).levels == 2
""",
        "import flowinpaint.methods.eed, flowinpaint as fi; assert 'eed' in fi.methods()",
        """
from flowinpaint.methods import registry
import flowinpaint, os
assert flowinpaint.methods is registry.methods
assert os.environ["OMP_WAIT_POLICY"] == "passive" and os.environ["GOMP_SPINCOUNT"] == "1000"
""",
    ],
    ids=["names", "submodule first", "registry first"],
)
def test_every_way_of_importing_works(code: str) -> None:
    run(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'flowinpaint' has no attribute 'inpain'"):
        fi.inpain  # type: ignore[attr-defined]  # noqa: B018
