import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.pd.config import PDConfig, UNetConfig
from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.io import tensors
from flowinpaint.networks.registry import ModelConfig, build_network
from flowinpaint.networks.weights import CHECKSUMS, CONFIG_KEY, check_shipped, read_model, read_model_config, save_model
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit

KEY = CONFIG_KEY + "neuroexplicit"
CONFIG = NeuroexplicitConfig(width=3, steps=(1, 2, 3, 4), decoder_kernel=2, learn_kernels=True, learn_beta=True)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    model = Neuroexplicit(CONFIG)
    save_model(model, tmp_path / "m.safetensors")
    again = read_model(tmp_path / "m.safetensors")
    assert again.config == CONFIG
    assert model.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in model.state_dict().items())
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize(
    "config",
    [
        FlowNetSConfig(width=2),
        WGAINConfig(width=1, scale=7.0),
        PDConfig(base=UNetConfig((8, 16), 1, (0, 1), 8), fine=UNetConfig((8,), 1, (0,)), sigma_max=(3.0, 4.0)),
    ],
    ids=lambda config: config.kind,
)
def test_every_kind_comes_back_as_it_was_also_in_half_precision(config: ModelConfig, tmp_path: Path) -> None:
    model, path = build_network(config), tmp_path / "m.safetensors"
    save_model(model, path, torch.float16)
    again = read_model(path)
    assert type(again) is type(model)
    assert again.config == read_model_config(path) == config
    for name, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[name].half().float())


def test_what_save_model_refuses_and_the_mode_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"path must end in \.safetensors, got .*m\.pt"):
        save_model(Neuroexplicit(CONFIG), tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"dtype must be .*, got torch\.int8"):
        save_model(Neuroexplicit(CONFIG), tmp_path / "m.safetensors", torch.int8)
    with pytest.raises(InputError, match=r"model must be a network of flowinpaint, got Linear"):
        save_model(torch.nn.Linear(2, 2), tmp_path / "m.safetensors")  # type: ignore[arg-type]
    (tmp_path / "plain").touch()
    save_model(Neuroexplicit(CONFIG), tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none\.safetensors"):
        read_model(tmp_path / "none.safetensors")
    with pytest.raises(FileFormatError, match="folder"):
        read_model(tmp_path)


@pytest.mark.parametrize("kind", ["unet", "training", "", "../baselines", "pd.module"])
def test_a_file_of_an_unknown_kind_is_refused_with_the_known_ones(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"weight": torch.zeros(1)}, path, metadata={CONFIG_KEY + kind: "{}"})
    for read in (read_model, read_model_config):
        with pytest.raises(FileFormatError, match=rf"m\.safetensors: kind must be 'neuroexplicit' or .*, got '{kind}'"):
            read(path)


def test_files_that_hold_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {name: value.contiguous() for name, value in Neuroexplicit(CONFIG).state_dict().items()}

    def refuse(match: str) -> None:
        with pytest.raises(FileFormatError, match=match):
            read_model(path)

    path.write_bytes(b"")
    refuse("must not be empty")
    path.write_bytes(b"\xff" * 200)
    refuse("truncated")
    save_file(tensors, path)
    refuse("must hold a model")
    save_file(tensors, path, metadata={KEY: "{"})
    refuse("metadata flowinpaint.neuroexplicit: line 1, column 2: must be JSON")
    save_file(tensors, path, metadata={KEY: json.dumps({"steps": [1, 1, 1, 1], "colour": 3})})
    refuse("configuration")
    save_file(tensors, path, metadata={KEY: json.dumps({"width": 10**9, "steps": [1, 1, 1, 1]})})
    refuse("configuration")
    save_file(tensors, path, metadata={KEY: json.dumps({"width": 10**6, "steps": [1, 1, 1, 1]})})
    refuse("configuration")
    save_file(tensors, path, metadata={KEY: json.dumps({"width": 3, "steps": [1, 2, 3, 4]})})
    refuse("must fit their configuration")
    spoiled = Neuroexplicit(CONFIG)
    with torch.no_grad():
        spoiled.lam.fill_(float("nan"))
    save_model(spoiled, path)
    refuse("lam must be a tensor of finite")
    save_model(Neuroexplicit(CONFIG), path)
    path.write_bytes(path.read_bytes()[:-100])
    refuse("not a readable safetensors")


def small_file(path: Path, config: object, tensors: dict[str, torch.Tensor] | None = None) -> None:
    """A file with a configuration and few tensors."""
    text = config if isinstance(config, str) else json.dumps(config)
    save_file(tensors or {"weight": torch.zeros(1)}, path, metadata={KEY: text})


@pytest.mark.parametrize(
    "config",
    [
        [],
        "[" * 100_000,
        {"width": 10**400},
        {"width": 2**62},
        {"width": 10**6},
        {"learn_kernels": True, "channels": 10**9},
        {"learn_kernels": True, "channels": 2**62},
        {"steps": [10**6] * 4},
        {"steps": "1234"},
        {"alpha": []},
        '{"alpha": 1e400}',
        '{"width": 3, "width": 4}',
    ],
    ids=lambda config: str(config)[:40],
)
def test_hostile_configurations_are_refused_in_time(tmp_path: Path, config: object) -> None:
    path = tmp_path / "m.safetensors"
    small_file(path, config)
    started = time.perf_counter()
    with pytest.raises(FileFormatError, match=r"m\.safetensors: "):
        read_model(path)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float8_e4m3fn])
def test_tensors_of_other_types_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    model = Neuroexplicit(CONFIG)
    tensors = {name: value.contiguous().to(dtype) for name, value in model.state_dict().items()}
    small_file(tmp_path / "m.safetensors", asdict(CONFIG), tensors)
    with pytest.raises(FileFormatError, match="must be a tensor of F64, F32, F16, BF16, got"):
        read_model(tmp_path / "m.safetensors")


def test_tensors_without_elements_are_refused(tmp_path: Path) -> None:
    tensors = {name: value.new_zeros(0) for name, value in Neuroexplicit(CONFIG).state_dict().items()}
    small_file(tmp_path / "m.safetensors", asdict(CONFIG), tensors)
    with pytest.raises(FileFormatError, match=r"must be of shape .*, got \(0,\)"):
        read_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 8,
        (2**62).to_bytes(8, "little") + b"{}",
        (2**24).to_bytes(8, "little") + b" " * 2**24,
        (100_000).to_bytes(8, "little") + b'{"a":' * 20_000,
        (2).to_bytes(8, "little") + b"[]",
        (23).to_bytes(8, "little") + b'{"__metadata__":[1,{}]}',
        (0).to_bytes(8, "little"),
        (63).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}'[:63]
        + bytes(4),
    ],
    ids=["no header", "2^62", "large", "nested", "list", "metadata", "empty", "shape"],
)
def test_hostile_headers_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(data)
    for read in (read_model, read_model_config):
        with pytest.raises(FileFormatError, match=r"m\.safetensors: "):
            read(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "data", [b"one", b"ab  c d\n", b"\xff\n", f"{'0' * 64}  a\n".encode() * 2, b"\0", b"a" * 10**6]
)
def test_damaged_checksums_are_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"weights")
    (tmp_path / CHECKSUMS).write_bytes(data)
    with pytest.raises(FileFormatError, match=CHECKSUMS):
        check_shipped(path)


@pytest.mark.parametrize("read", [read_model, read_model_config])
def test_a_file_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.zeros(1)}, path)

    def mapped(*_: object, **__: object) -> None:
        raise MemoryError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr(tensors, "safe_open", mapped)
    with pytest.raises(FileFormatError, match="must fit into memory, got "):
        read(path)
