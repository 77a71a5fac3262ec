"""The registry: the methods of the package, of a program, and of installed packages, and their capabilities."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

import flowinpaint as fi
from flowinpaint.api import to_batch
from flowinpaint.extras import EXTRAS, PEERS, is_installed, needs
from flowinpaint.methods import registry
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.methods.method import Method
from flowinpaint.methods.registry import METHODS, find_method, get_method, register_method, usual_methods
from flowinpaint.result import ProgressCallback, Solution
from helpers import FLOW_AWARE, random_field, run_cli

EACH = pytest.mark.parametrize("method", BUILTIN.values(), ids=BUILTIN.keys())
REPEATABLE = [method for name, method in BUILTIN.items() if not (method.is_network or name == "opencv-ric")]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is restored after the test."""
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))


def mean(
    image: Tensor, flow: Tensor, mask: Tensor, *, scale: float = 1.0, progress: ProgressCallback | None = None
) -> Solution:
    """The mean of the known vectors.

    Not in the summary.
    """
    return Solution((scale * (flow * mask).sum((2, 3), keepdim=True) / mask.sum()).expand_as(flow))


def test_names_come_in_the_promised_order() -> None:
    assert fi.methods() == [
        *(
            "neuroexplicit",
            "neuroexplicit-paper",
            "flownets",
            "wgain",
            "eed",
            "laplace-beltrami",
            "harmonic",
            "nearest",
        ),
        *(["amle"] if is_installed("fast") else []),
        *(["opencv-edgeaware", "opencv-ric"] if is_installed("peers") else []),
    ]
    assert usual_methods() == [name for name in fi.methods() if name not in ("flownets", "wgain")]


@EACH
def test_every_record_is_complete_and_its_implementation_can_be_imported(method: Method) -> None:
    assert method.summary
    assert all(isinstance(value, int | float | str | None) for value in method.parameters.values())
    assert not {"progress", "weight", "start"} & method.parameters.keys()
    assert method.is_network == (method.config is not None)


@pytest.mark.filterwarnings("ignore:amle stopped")
@EACH
def test_capabilities_are_true(method: Method) -> None:
    if method.why_not():
        pytest.skip(method.why_not())
    assert method.gives_error == bool(getattr(method.config, "confidence", False))
    size = (40, 50)  # on smaller random fields OpenCV's RIC often fails, depending on the process
    image, flow, mask = random_field(*size, 2)
    assert (fi.inpaint(image, flow, mask, method.name).expected_error is not None) == method.gives_error
    if method.channels is None:
        image, flow, mask = random_field(*size, 3)
        assert fi.inpaint(image, flow, mask, method.name).flow.shape == (*size, 3)
    else:
        with pytest.raises(fi.InputError, match=f"flow must have {method.channels} channels for {method.name}, got 3"):
            fi.inpaint(image, np.repeat(flow[..., :1], 3, 2), mask, method.name)


@pytest.mark.filterwarnings("ignore:amle stopped")
@pytest.mark.parametrize("method", REPEATABLE, ids=lambda method: method.name)
def test_a_method_fills_float32_tensors_like_inpaint(method: Method) -> None:
    if method.why_not():
        pytest.skip(method.why_not())
    image, flow, mask = random_field(16, 20)
    picture, given, known = (to_batch(x, torch.device("cpu")) for x in (image, flow * mask[..., None], mask[..., None]))
    u = method.fill(picture / 255, given, known).u
    filled = fi.inpaint(image, flow, mask, method.name, "cpu").flow
    assert np.array_equal(np.where(mask[..., None], flow, u[0].movedim(0, -1).float().numpy()), filled)


def test_a_network_is_a_method_by_its_file_too(tmp_path: Path) -> None:
    sure, plain = tmp_path / "sure.safetensors", tmp_path / "plain.safetensors"
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(**FLOW_AWARE | {"width": 4})), sure)
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(width=4, learn_kernels=True, channels=3)), plain)
    for path in (sure, str(sure)):
        method = get_method(path)
        assert (method.name, method.gives_error, method.channels) == (str(sure), True, None)
        assert method.config == fi.load_model(path, "cpu").config
    assert (get_method(plain).gives_error, get_method(plain).channels) == (False, 3)
    with pytest.raises(fi.MissingFileError, match="there is no such file"):
        get_method(tmp_path / "none.safetensors")


def test_weights_of_vectors_are_for_methods_that_take_them() -> None:
    seen: list[dict[str, Any]] = []

    def fill(image: Tensor, flow: Tensor, mask: Tensor, **keywords: Any) -> Solution:
        seen.append(keywords)
        return Solution(flow)

    method, field = Method("soft", "", fill), torch.zeros(1, 2, 4, 5)
    with pytest.raises(fi.InputError, match="weight must be None for soft"):
        method.fill(field[:, :1].expand(-1, 3, -1, -1), field, field[:, :1], weight=field[:, :1])
    method = replace(method, takes_weights=True)
    method.fill(field[:, :1].expand(-1, 3, -1, -1), field, field[:, :1], weight=field[:, :1])
    method.fill(field[:, :1].expand(-1, 3, -1, -1), field, field[:, :1], scale=2.0)
    assert [call.keys() for call in seen] == [{"progress", "weight"}, {"progress", "scale"}]


@pytest.mark.parametrize("target", ["os.path", "no.such:fill", "os.path:fill"])
def test_an_implementation_that_cannot_be_loaded_is_named(target: str) -> None:
    with pytest.raises(fi.InputError, match=f"^method 'lost' cannot be loaded from {target}: "):
        _ = Method("lost", "", target).parameters


@pytest.mark.parametrize("by_name", [False, True])
def test_warm_up_runs_before_the_first_fill(monkeypatch: pytest.MonkeyPatch, by_name: bool) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr("flowinpaint.diffusion.kernels.load_multigrid", devices.append)
    warm_up = "flowinpaint.diffusion.kernels:load_multigrid" if by_name else devices.append
    Method("warm", "", lambda *_, **__: Solution(torch.zeros(1)), warm_up=warm_up).prepare(torch.device("cpu"))
    assert devices == [torch.device("cpu")]


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("edd", "eed"),
        ("neuroexplict", "neuroexplicit"),
        ("AMLE", "amle"),
        ("laplace_beltrami", "laplace-beltrami"),
        ("Laplace-Beltrami", "laplace-beltrami"),
        ("laplacebeltrami", "laplace-beltrami"),
        ("Laplace Beltrami", "laplace-beltrami"),
        ("laplace", "laplace-beltrami"),
        ("beltrami", "laplace-beltrami"),
        ("laplace-beltramy", "laplace-beltrami"),
        ("lb", "laplace-beltrami"),
        ("neuro", "neuroexplicit"),
        ("neuro-explicit", "neuroexplicit"),
        ("neuroexplicit_paper", "neuroexplicit-paper"),
        ("nearest-neighbour", "nearest"),
        ("ric", "opencv-ric"),
        ("transformer", None),
        ("x", None),
        ("", None),
    ],
)
def test_an_unknown_name_is_an_error_with_the_closest_one(name: str, closest: str | None) -> None:
    with pytest.raises(fi.InputError, match=f"^methods must be one of .*eed.*, got '{name}'") as caught:
        get_method(name, "methods")
    assert str(caught.value).endswith(f"did you mean {closest!r}?" if closest else f"got {name!r}")
    assert find_method(name) is None


@pytest.mark.parametrize(
    ("method", "hide"),
    [
        ("amle", lambda patch: patch.setitem(sys.modules, "numba", None)),
        ("opencv-ric", lambda patch: patch.delattr(cv2, "ximgproc", raising=False)),
        ("pd", lambda patch: patch.setitem(sys.modules, "diffusers", None)),
    ],
)
def test_a_method_without_its_extra_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, method: str, hide: Callable[[pytest.MonkeyPatch], None]
) -> None:
    hide(monkeypatch)
    extra = BUILTIN[method].extra
    assert not is_installed(extra)
    assert BUILTIN[method].not_installed() == needs(extra)
    assert re.fullmatch(r"needs .* \(.*pip install .*\)", needs(extra))
    assert method not in fi.methods()
    with pytest.raises(fi.InputError, match=f"^method '{method}' cannot be used: it {re.escape(needs(extra))}"):
        fi.inpaint(*random_field(12, 17), method=method)
    assert f"{method} needs" in " ".join(run_cli("methods")[2].split())


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {
        re.split(r"[><=]", line)[0]
        for key in ("fast", "opencv", "pd", "plots", "train")
        for line in project["optional-dependencies"][key]
    }
    for feature, (package, _) in EXTRAS.items():
        assert package in extras
        assert feature == PEERS or needs(feature) == f"needs {package} (pip install {package})"


def test_no_set_of_extras_installs_two_wheels_of_opencv() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    assert {line for line in lines if "opencv" in line} == {"opencv-contrib-python-headless>=4.9"}
    assert not [line for line in project["dependencies"] if "opencv" in line]


def test_pd_by_name_says_how_to_make_its_weights() -> None:
    from flowinpaint.reproduction.experiment import NETWORKS

    assert BUILTIN["pd"].trained_by in NETWORKS
    for call, argument in ((fi.inpaint, "method"), (fi.load_model, "name_or_path")):
        arguments = (*random_field(8, 8), "pd") if call is fi.inpaint else ("pd",)
        with pytest.raises(fi.InputError, match=f"^{argument} 'pd' cannot be used: .*networks --only pd'"):
            call(*arguments)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("decorated", [False, True])
def test_a_registered_function_is_a_method_everywhere(tmp_path: Path, decorated: bool) -> None:
    if decorated:
        assert register_method("mean", double=True)(mean) is mean
    else:
        assert fi.register_method("mean", mean, summary="its mean") is mean
    assert fi.methods()[-1] == "mean"
    assert get_method("mean").summary == ("The mean of the known vectors" if decorated else "its mean")
    image, flow, mask = random_field(12, 17)
    result = fi.inpaint(image, flow, mask, "mean", scale=2.0)
    assert result.flow[~mask] == pytest.approx(np.broadcast_to(2 * flow[mask].mean(0), flow[~mask].shape), rel=1e-5)
    assert result.flow[mask].tobytes() == flow[mask].tobytes()
    with pytest.raises(fi.InputError, match="scale must be a number, got 'big'"):
        fi.inpaint(image, flow, mask, "mean", scale="big")
    fi.write_image(tmp_path / "i.png", image)
    fi.write_flow(tmp_path / "f.flo", np.where(mask[..., None], flow, np.nan))
    fill = ("fill", tmp_path / "i.png", tmp_path / "f.flo", "-o", tmp_path / "o.flo", "--method", "mean")
    assert run_cli(*fill, "--set", "scale=2")[0] == 0
    np.testing.assert_array_equal(fi.read_flow(tmp_path / "o.flo")[0], result.flow)
    assert " mean " in run_cli("methods")[1]
    register_method("mean", mean)  # again, as a notebook does


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["eed", "", "a,b", "a b", "x.safetensors"])
def test_a_name_that_cannot_be_registered_is_refused(name: str) -> None:
    with pytest.raises(fi.InputError, match=r"^name must be new"):
        register_method(name, mean)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "function",
    [
        lambda image, flow: Solution(flow),
        lambda image, flow, mask, *, needed, progress=None: Solution(flow),
    ],
)
def test_a_function_of_another_signature_is_refused(function: Any) -> None:
    with pytest.raises(fi.InputError, match=r"^function must have the signature \(image, flow, mask, "):
        register_method("mine", function)
    with pytest.raises(fi.InputError, match=r"^function must be a function, got int"):
        register_method("mine", 3)  # type: ignore[call-overload]


def test_a_method_must_return_the_expected_error_that_it_declares() -> None:
    flow = torch.ones(1, 2, 4, 5)
    boastful = Method("boastful", "", mean, gives_error=True)
    with pytest.raises(fi.InputError, match=r"^method 'boastful' must return the expected error that it declares"):
        boastful.fill(flow[:, :1].expand(-1, 3, -1, -1), flow, flow[:, :1])


def test_parameters_have_the_type_of_their_default() -> None:
    def fill(
        image: Tensor, flow: Tensor, mask: Tensor, *, flag: bool = False, mode: str = "a", size: float | None = None
    ) -> Solution:
        return Solution(flow)

    method = Method("typed", "", fill)
    assert method.parameters == {"flag": False, "mode": "a", "size": None}
    method.check_parameters({"flag": True, "mode": "b", "size": np.float32(2)})
    for name, value, wanted in (("flag", 1, "True or False"), ("mode", 1, "a string"), ("size", True, "a number")):
        with pytest.raises(fi.InputError, match=f"{name} must be {wanted}, got {value}"):
            method.check_parameters({name: value})
    with pytest.raises(fi.InputError, match="seize must be a parameter of 'typed', which has flag, mode, size"):
        method.check_parameters({"seize": 1})


PLUGIN = '''
import torch
from flowinpaint.methods.method import Method
from flowinpaint.result import Solution

def constant(image, flow, mask, *, value=1.5, progress=None):
    """One value everywhere."""
    return Solution(torch.full_like(flow, value))

def doubtful(image, flow, mask, *, progress=None):
    return Solution(flow, expected_error=torch.zeros_like(mask))

def wrong(image):
    return None

sure = Method("any name", "a constant with its error", "plugin_of_a_test:doubtful", gives_error=True, channels=2)
'''
ENTRY_POINTS = """
[flowinpaint.methods]
plugin-function = plugin_of_a_test:constant
plugin-record = plugin_of_a_test:sure
plugin-missing = no_such_module_at_all:fill
plugin-broken = broken_plugin_of_a_test:fill
plugin-wrong = plugin_of_a_test:wrong
eed = plugin_of_a_test:constant
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one package, as pip would leave it."""
    folder = tmp_path / "site"
    about = folder / "plugin_of_a_test-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "plugin_of_a_test.py").write_text(PLUGIN)
    (folder / "broken_plugin_of_a_test.py").write_text("raise RuntimeError('out of order')\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package can be imported and its entry points are found."""
    monkeypatch.syspath_prepend(str(site))
    registry._plugins.cache_clear()
    with pytest.warns(
        UserWarning, match=r"entry point 'eed' of flowinpaint\.methods, because a built-in method has this name"
    ):
        registry._plugins()
    yield
    registry._plugins.cache_clear()
    registry._plugin_method.cache_clear()
    sys.modules.pop("plugin_of_a_test", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_adds_methods() -> None:
    assert fi.methods()[-2:] == ["plugin-function", "plugin-record"]
    image, flow, mask = random_field(12, 17)
    filled = fi.inpaint(image, flow, mask, "plugin-function", value=2.5)
    assert (filled.flow[~mask] == 2.5).all()
    assert get_method("plugin-function").summary == "One value everywhere"
    record = get_method("plugin-record")
    assert (record.name, record.gives_error, record.channels) == ("plugin-record", True, 2)
    assert fi.inpaint(image, flow, mask, "plugin-record").expected_error is not None
    assert get_method("eed") is BUILTIN["eed"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plugin-missing", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("plugin-broken", "RuntimeError: out of order"),
        ("plugin-wrong", r"InputError: plugin_of_a_test:wrong must have the signature .*, got wrong\(image\)"),
    ],
)
def test_a_broken_entry_point_is_an_error_when_it_is_used_and_no_other_method_is_affected(
    name: str, message: str
) -> None:
    assert name not in fi.methods()
    with pytest.raises(fi.InputError, match=rf"^method '{name}' cannot be used: it comes from .*{message}$"):
        fi.inpaint(*random_field(12, 17), name)
    code, stdout, stderr = run_cli("methods")
    assert code == 0
    assert "plugin-function" in stdout
    assert f"Unavailable: {name} comes from the entry point" in " ".join(stderr.split())


def test_a_plugin_is_imported_when_its_method_is_used_and_not_before(site: Path) -> None:
    code = """
import sys, numpy as np, flowinpaint as fi
field = np.zeros((8, 8, 3), np.uint8), np.ones((8, 8, 2), np.float32), np.eye(8, dtype=bool)
fi.inpaint(*field, "nearest")
try:
    fi.inpaint(*field, "plugin-funktion")
except fi.InputError as error:
    assert "did you mean 'plugin-function'?" in str(error), error
assert "plugin_of_a_test" not in sys.modules
assert fi.inpaint(*field, "plugin-function").flow[0, 1, 0] == 1.5
assert "plugin_of_a_test" in sys.modules and "broken_plugin_of_a_test" not in sys.modules
"""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.parametrize(
    ("fill", "fault"),
    [
        (lambda image, flow, mask, **_: flow.shape, "must return a Solution or a tensor, got torch.Size"),
        (
            lambda image, flow, mask, **_: fi.Solution(flow[..., :-1]),
            r"must return a field of shape \(1, 2, 12, 17\), got \(1, 2, 12, 16\)",
        ),
    ],
)
def test_a_fill_function_that_returns_something_else_is_named(
    monkeypatch: pytest.MonkeyPatch, fill: Any, fault: str
) -> None:
    monkeypatch.setitem(METHODS, "wrong", Method("wrong", "", fill))
    with pytest.raises(fi.InputError, match=f"method 'wrong' {fault}"):
        fi.inpaint(*random_field(12, 17), method="wrong")
