"""Functions as methods: of tensors, of numpy arrays, networks, and those named by module and function."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import flowinpaint as fi
from flowinpaint.methods import registry
from flowinpaint.methods.functions import fingerprint, told
from flowinpaint.methods.registry import METHODS, get_method
from helpers import random_field, run_cli

Array = npt.NDArray[Any]
FIELD = random_field(12, 17)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, and a registry, a search path and modules that are restored after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def scaled(image: Tensor, flow: Tensor, mask: Tensor, scale: float = 1.0, progress: Any = None) -> Tensor:
    """The mean of the known vectors, times a factor."""
    return scale * (flow * mask).sum((2, 3), keepdim=True).expand_as(flow) / mask.sum()


def mean_of_arrays(image: Array, flow: Array, mask: Array, scale: float = 1.0) -> Array:
    """The mean of the known vectors, times a factor."""
    assert image.dtype == np.float32
    assert image.shape == (*mask.shape, 3)
    assert 0 <= image.min() < image.max() <= 1
    assert mask.dtype == np.bool_
    assert np.isnan(flow[~mask]).all()
    return np.broadcast_to(scale * np.nanmean(flow, (0, 1)), flow.shape)


@pytest.mark.parametrize(
    "function",
    [scaled, fi.numpy_method(mean_of_arrays), partial(scaled, progress=None), fi.numpy_method(partial(mean_of_arrays))],
)
def test_a_function_is_a_method(function: Callable[..., Any]) -> None:
    image, flow, mask = FIELD
    result = fi.inpaint(image, flow, mask, function, scale=2.0)
    mean = np.broadcast_to(2 * flow[mask].mean(0), flow.shape)
    assert result.flow[~mask] == pytest.approx(mean[~mask], rel=1e-5)
    assert result.flow[mask].tobytes() == flow[mask].tobytes()
    assert result.info["method"] in ("scaled", "mean_of_arrays")
    with pytest.raises(fi.InputError, match=f"scael must be a parameter of '{result.info['method']}', which has scale"):
        fi.inpaint(image, flow, mask, function, scael=2.0)


@pytest.mark.usefixtures("folder")
def test_a_function_of_arrays_can_be_registered_and_still_be_called() -> None:
    @fi.register_method("mine")
    @fi.numpy_method
    def mine(image: Array, flow: Array, mask: Array, *, weights: tuple[float, ...] = (1.0,)) -> Array:
        """My method.

        More.
        """
        return np.full(flow.shape[:2], weights[-1])

    assert get_method("mine").summary == "My method"
    image, flow, mask = random_field(8, 9, 1)
    assert (fi.inpaint(image, flow, mask, "mine").flow[~mask] == 1).all()
    assert (fi.inpaint(image, flow, mask, mine, weights=(1.0, 3.0)).flow[~mask] == 3).all()
    assert mine(image, flow, mask).shape == (8, 9)


def test_a_network_is_a_method() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(6, 2, 3, padding=1)

        def forward(self, image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
            found = self.layer(torch.cat([image, flow, mask], 1))
            assert isinstance(found, Tensor)
            return found

    result = fi.inpaint(*FIELD, method=Network())
    assert result.info["method"] == "Network"
    assert np.isfinite(result.flow).all()


def test_a_function_may_write_to_its_arguments_and_gets_progress() -> None:
    seen = []

    def untidy(image: Tensor, flow: Tensor, mask: Tensor, *, progress: Any = None) -> fi.Solution:
        progress(fi.Progress(1, 1, 7))
        image += 1
        flow += 1
        mask *= 0
        return fi.Solution(flow, expected_error=torch.ones_like(mask))

    @fi.numpy_method
    def untidy_arrays(image: Array, flow: Array, mask: Array, *, progress: Any = None) -> Array:
        progress(fi.Progress(1, 1, 8))
        flow[:] = 1
        mask[:] = False
        return flow

    image, flow, mask = FIELD
    for function in (untidy, untidy_arrays):
        result = fi.inpaint(image, flow, mask, function, progress=lambda p: seen.append(p.iterations))
        assert (result.flow[~mask] == 1).all()
        assert result.flow[mask].tobytes() == flow[mask].tobytes()
    assert [x for x in seen if x] == [7, 8]  # besides start and end


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda image, flow, mask: None, "must return a Solution or a tensor, got None"),
        (lambda image, flow, mask: flow.numpy(), r"got numpy.ndarray; adapt a function of arrays by fi\.numpy_method"),
        (lambda image, flow, mask: flow[0], r"must return a field of shape \(1, 2, 12, 17\), got \(2, 12, 17\)"),
        (lambda image, flow, mask: flow.int(), "must return a field of a floating type, got int32"),
        (
            lambda image, flow, mask: fi.Solution(flow.numpy()),
            "must return a field that is a tensor, got numpy.ndarray",
        ),
        (
            lambda image, flow, mask: fi.Solution(flow, expected_error=flow),
            r"must return an expected error of shape \(1, 1, 12, 17\), got \(1, 2, 12, 17\)",
        ),
        (lambda image, flow, mask: flow / mask, r"must fill all unknown pixels, got NaN or infinity at \d+ of \d+"),
    ],
)
def test_a_wrong_return_value_names_the_method(function: Callable[..., Any], fault: str) -> None:
    with pytest.raises(fi.InputError, match=f"^method '<lambda>' .*{fault}"):
        fi.inpaint(*FIELD, method=function)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda image, flow, mask: None, "got None"),
        (lambda image, flow, mask: list(flow), "got list"),
        (lambda image, flow, mask: torch.from_numpy(flow), "got torch.Tensor"),
        (lambda image, flow, mask: np.moveaxis(flow, 2, 0), r"got float32 \(2, 12, 17\)"),
        (lambda image, flow, mask: flow[..., 0], r"got float32 \(12, 17\)"),
        (lambda image, flow, mask: np.zeros(flow.shape, np.int64), r"got int64 \(12, 17, 2\)"),
        (lambda image, flow, mask: flow.astype(complex), r"got complex128 \(12, 17, 2\)"),
        (lambda image, flow, mask: flow, r"must fill all unknown pixels, got NaN or infinity at (\d+) of \1"),
        (lambda image, flow, mask: np.ma.masked_invalid(flow), "must fill all unknown pixels, got NaN or infinity at"),
    ],
)
def test_a_wrong_array_names_the_method(function: Callable[..., Any], fault: str) -> None:
    rule = r"must return a floating array of shape \(12, 17, 2\), " if fault.startswith("got") else ""
    with pytest.raises(fi.InputError, match=f"^method '<lambda>' {rule}{fault}"):
        fi.inpaint(*FIELD, method=fi.numpy_method(function))


def test_an_exception_reaches_the_caller_as_it_is() -> None:
    def broken(image: Tensor, flow: Tensor, mask: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        fi.inpaint(*FIELD, method=broken)
    assert caught.traceback[-1].name == "broken"
    assert told(caught.value) == f"KeyError: 'mine' (test_callable_methods.py, line {caught.traceback[-1].lineno + 1})"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (lambda image, flow: flow, r"method must have the signature \(image, flow, mask, \*, progress=None, "),
        (
            lambda image, flow, mask, size: flow,
            r"every parameter with a default, got <lambda>\(image, flow, mask, size\)",
        ),
        (fi.Solution, r"method must be a name, the path of a \.safetensors file or a function, got the class Solution"),
        (3, "or a function, got int"),
    ],
)
def test_what_is_no_method_is_refused(value: Any, fault: str) -> None:
    with pytest.raises(fi.InputError, match=fault):
        fi.inpaint(*FIELD, method=value)


SOURCE = '''
import numpy as np
import flowinpaint as fi
from helper_of_mine import FACTOR

@fi.numpy_method
def mine(image, flow, mask, *, scale=FACTOR):
    """One value everywhere."""
    return np.full_like(flow, scale)

@fi.register_method("sure", gives_error=True)
def sure(image, flow, mask):
    return fi.Solution(flow, expected_error=mask)

def broken(image, flow, mask):
    return flow[9]
'''


@pytest.mark.parametrize("place", ["my_file_of_a_test.py", "my_file_of_a_test", "deep/my_file_of_a_test.py"])
def test_a_function_is_found_by_its_module_or_file(folder: Path, place: str) -> None:
    home = folder / Path(place).parent
    home.mkdir(exist_ok=True)
    file = home / "my_file_of_a_test.py"
    (home / "helper_of_mine.py").write_text("FACTOR = 2.0\n")
    file.write_text(SOURCE)
    image, flow, mask = FIELD
    result = fi.inpaint(image, flow, mask, f"{place}:mine")
    assert (result.flow[~mask] == 2).all()
    assert result.info["method"] == f"{place}:mine"
    assert get_method(f"{place}:mine").summary == "One value everywhere"
    assert get_method(f"{place}:sure").gives_error
    fi.write_image(folder / "i.png", image)
    fi.write_flow(folder / "f.flo", flow, mask)
    arguments = ("fill", "i.png", "f.flo", "-o", "o.flo", "--method", f"{place}:mine", "--set", "scale=3")
    assert run_cli(*arguments)[0] == 0
    assert (fi.read_flow("o.flo")[0][~mask] == 3).all()
    first = fingerprint(get_method(f"{place}:mine"))
    assert first == fingerprint(get_method(f"{place}:sure")) != ""
    if place.endswith(".py"):
        file.write_text(SOURCE.replace("scale)", "scale + 1)"))
        assert (fi.inpaint(image, flow, mask, f"{place}:mine").flow[~mask] == 3).all()
        assert fingerprint(get_method(f"{place}:mine")) != first


def test_the_fingerprint_is_of_own_functions(folder: Path) -> None:
    assert fingerprint(get_method("eed")) == ""
    (folder / "net_of_a_test.py").write_text("import torch\nnet = torch.nn.Conv2d(1, 1, 1)\n")
    with pytest.raises(fi.InputError, match=r"net' must have the signature .*, got Conv2d\(input: "):
        get_method("net_of_a_test.py:net")
    (folder / "lib_of_a_test.py").write_text("def fill(image, flow, mask): return flow\n")
    seen = set()
    line = "from lib_of_a_test import fill\n"
    for file, text in (("net", line), ("net", f"{line}# changed\n"), ("lib", "# changed\n")):
        (folder / f"{file}_of_a_test.py").write_text(text)
        seen.add(fingerprint(get_method("net_of_a_test:fill")))
    assert len(seen) == 3
    namespace: dict[str, Any] = {}
    exec("def mine(image, flow, mask): return flow", namespace)
    other: dict[str, Any] = {}
    exec("def mine(image, flow, mask): return 2 * flow", other)
    typed, changed = (fingerprint(get_method(names["mine"])) for names in (namespace, other))
    assert "" != typed != changed != ""
    assert fingerprint(get_method(partial(namespace["mine"]))) == typed
    assert fingerprint(get_method(fi.numpy_method(mean_of_arrays))) == fingerprint(get_method(scaled)) != ""


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("no_such_module:mine", "there is no module 'no_such_module' in the current folder or on PYTHONPATH"),
        ("no_such_file.py:mine", "there is no file no_such_file.py"),
        ("wrong.py:mine", "there is no 'mine' in wrong.py; it has fill, number"),
        ("wrong:mine", "there is no 'mine' in wrong; it has fill, number"),
        ("wrong.py:NUMBER", "must be a function, got int"),
        ("wrong.py:fill", r"must have the signature .*, got fill\(image\)"),
        ("wrong.py:numbre", "there is no 'numbre' in wrong.py; did you mean 'number'?"),
        ("wrong.py:", 'must be "module:function" or "file.py:function", got'),
        ("syntax.py:mine", r"cannot be imported: SyntaxError: .*\(syntax.py, line 1\)"),
        ("crash.py:mine", r"cannot be imported: ZeroDivisionError: division by zero \(crash.py, line 2\)"),
        ("crash:mine", r"cannot be imported: ZeroDivisionError: division by zero \(crash.py, line 2\)"),
        ("ends.py:mine", "cannot be imported: it ends the program; put this part of ends.py below: if __name__ == "),
        ("needs.py:mine", r"cannot be imported: ModuleNotFoundError: No module named 'no_such' \(needs.py, line 1\)"),
        ("needs:mine", r"cannot be imported: ModuleNotFoundError: No module named 'no_such' \(needs.py, line 1\)"),
        ("wrong.py", r"did you mean|name a function in the file: wrong.py:function"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_one_clear_sentence(folder: Path, name: str, fault: str) -> None:
    (folder / "wrong.py").write_text("NUMBER = 1\ndef fill(image): pass\ndef number(): pass\n")
    (folder / "syntax.py").write_text("def mine(:\n")
    (folder / "crash.py").write_text("\n1 / 0\n")
    (folder / "ends.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "needs.py").write_text("import no_such\n")
    with pytest.raises(fi.InputError, match=fault) as caught:
        get_method(name, "--methods")
    assert str(caught.value).startswith("--methods ")
    assert "\n" not in str(caught.value)


def test_a_parameter_file_does_not_load_code(folder: Path) -> None:
    (folder / "mine.py").write_text("raise SystemExit\n")
    (folder / "p.json").write_text('{"method": "mine.py:fill"}')
    code, _, stderr = run_cli("fill", "i.png", "f.flo", "-o", "o.flo", "--params", "p.json")
    assert code == 1
    assert "p.json: method must be a name, got 'mine.py:fill'" in " ".join(stderr.split())


def test_the_current_folder_is_searched_as_by_python_m(folder: Path) -> None:
    (folder / "mine_in_place.py").write_text("def same(image, flow, mask):\n    return flow\n")
    code = "from flowinpaint.methods.registry import get_method; print(get_method('mine_in_place:same').name)"
    environment = os.environ | {"PYTHONSAFEPATH": "1"}  # without the current folder in sys.path
    told_name = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True
    )
    assert told_name.stdout == "mine_in_place:same\n"
