"""The registry of networks: lazy look-up, and baselines that need only their own folder or a decorator."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import flowinpaint as fi
from flowinpaint import baselines
from flowinpaint.errors import InputError
from flowinpaint.networks import registry
from flowinpaint.networks.network import Network
from flowinpaint.networks.output import Filled
from flowinpaint.networks.registry import build_network, config_class, kinds, register_model, registered
from flowinpaint.training.objectives import Objective, objective_of
from tiny_runs import CPU, tiny

KINDS = kinds()

LAZY = """
import sys
from flowinpaint.networks.registry import config_class, kinds
assert kinds()[0] == "neuroexplicit" and {"flownets", "pd", "wgain"} < set(kinds()), kinds()
modules = [f"flowinpaint.baselines.{kind}.module" for kind in ("flownets", "pd", "wgain")]
assert not any(module in sys.modules for module in modules)
config_class("pd")
assert [module in sys.modules for module in modules] == [False, True, False]
assert "diffusers" not in sys.modules
assert not any(name.endswith(".objective") for name in sys.modules if name.startswith("flowinpaint"))
"""


def test_kinds_are_imported_when_looked_up_and_diffusers_when_a_network_is_built() -> None:
    subprocess.run([sys.executable, "-c", LAZY], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_names_its_configuration_module_and_objective(kind: str) -> None:
    found = registered(kind)
    config = config_class(kind)()
    assert config.kind == kind
    assert found.config is type(config)
    assert issubclass(found.module, Network)
    small = {"width": 2} if kind != "pd" else {}
    assert isinstance(objective_of(tiny(baseline={"kind": kind, **small}), CPU), Objective)


@pytest.mark.parametrize("kind", ["unet", "", None, [], {}, 3, "pd.module"])
def test_an_unknown_kind_is_refused_with_the_known_ones(kind: Any) -> None:
    with pytest.raises(InputError, match=f"^kind must be {' or '.join(map(repr, KINDS))}, got "):
        registered(kind)


@dataclass(frozen=True)
class ZeroConfig:
    kind: Literal["zero"] = "zero"
    width: int = 1

    @property
    def parameters(self) -> dict[str, int]:
        return {}


class ZeroObjective(Objective):
    def __init__(self, config: Any, world: Any) -> None:
        self.width = config.model.width


def test_a_decorator_is_all_that_a_new_kind_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", registry._REGISTERED.copy())

    @register_model("zero", config=ZeroConfig, objective=f"{__name__}:ZeroObjective")
    class Zero(Network):
        def __init__(self, config: ZeroConfig) -> None:
            super().__init__()
            self.config = config
            self.bias = nn.Parameter(torch.zeros(config.width))

        def fill(self, image: Tensor, flow: Tensor, mask: Tensor) -> Filled:
            return Filled(torch.where(mask > 0, flow, self.bias.sum()), None)

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, type(sys)("test")))
    monkeypatch.setattr(sys.modules[__name__], "ZeroObjective", ZeroObjective, raising=False)
    assert kinds() == [*KINDS, "zero"]
    config = tiny(baseline={"kind": "zero", "width": 3})
    assert config.model == ZeroConfig(width=3)
    objective = objective_of(config, CPU)
    assert isinstance(objective, ZeroObjective) and objective.width == 3
    model = build_network(config.model)
    assert type(model) is Zero
    fi.save_model(model, tmp_path / "zero.safetensors")
    assert type(fi.load_model(tmp_path / "zero.safetensors", "cpu")) is Zero


def test_a_folder_is_all_that_a_new_baseline_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mean").mkdir()
    (tmp_path / "mean" / "__init__.py").touch()
    (tmp_path / "mean" / "module.py").write_text(
        "from flowinpaint.baselines.flownets.config import FlowNetSConfig as Config\n"
        "from flowinpaint.baselines.flownets.module import FlowNetS\n"
        "from flowinpaint.networks.registry import register_model\n"
        "@register_model('mean', config=Config, objective='none:None')\n"
        "class Mean(FlowNetS):\n"
        "    pass\n"
    )
    monkeypatch.setattr(registry, "_REGISTERED", registry._REGISTERED.copy())
    monkeypatch.setattr(baselines, "__path__", [*baselines.__path__, str(tmp_path)])
    assert "mean" in kinds()
    assert registered("mean").module.__name__ == "Mean"
