import json
import re
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from flowinpaint.config_parsing import build
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.networks.registry import kinds
from flowinpaint.training.config import (
    DataConfig,
    ScheduleConfig,
    TrainingConfig,
    apply_settings,
    check_same_run,
    config_names,
    find_config,
    read_config,
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_overrides_the_defaults_and_settings_override_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.toml", "[optimiser]\nlr = 1\nclip = 2.5\n[data]\nsize = [64, 96]\n[data.layered]\nbox = 0.2"
    )
    config = read_config(file, ["optimiser.lr=3e-4", "data.bank=some place.safetensors", "validation.densities=[0.5]"])
    assert config.optimiser.lr == 3e-4
    assert config.optimiser.clip == 2.5
    assert config.data.size == (64, 96)
    assert config.data.layered.box == 0.2
    assert config.data.bank == "some place.safetensors"
    assert config.validation.densities == (0.5,)
    assert config.schedule == TrainingConfig().schedule


def test_a_configuration_survives_json() -> None:
    config = apply_settings({}, ["model.width=8", "data.layered.objects=[1, 2]", "masks.lidar=1", "data.seed=7"])
    assert build(TrainingConfig, json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize("name", ["demo", "fast", "flagship", "flagship-paper", "paper"])
def test_the_shipped_configurations_are_valid(name: str) -> None:
    assert name in config_names()
    assert read_config(name) != TrainingConfig()
    assert find_config(name) == find_config(find_config(name))


@pytest.mark.parametrize(
    ("name", "hint"),
    [("fats", "; did you mean 'fast'?"), ("configs/fast.toml", "; did you mean 'fast'?"), ("my", "")],
)
def test_an_unknown_configuration_is_named_with_the_closest_one(name: str, hint: str) -> None:
    message = "there is no such file; pass a TOML file or one of demo, fast, flagship, flagship-paper, paper"
    with pytest.raises(MissingFileError, match=f"^{name}: {message}{re.escape(hint)}$"):
        read_config(name)


def test_the_papers_configuration_is_the_papers() -> None:
    config = read_config("paper")
    assert config.model == TrainingConfig().model
    assert (config.optimiser.lr, config.optimiser.betas, config.data.batch) == (1e-4, (0.9, 0.999), 16)
    assert (config.schedule.steps, config.data.size) == (900_000, (384, 384))
    assert config.masks.density == (0.05, 0.05)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[optimiser]\nlrr = 1", "optimiser.lrr: there is no such key; did you mean optimiser.lr"),
        ("[optimizer]\nlr = 1", "optimizer: there is no such key; did you mean optimiser"),
        ("[run]\nxyz = 1", "run.xyz: there is no such key; known keys are log_every,"),
        (
            "[model]\nkind = 'pd'\n[model.fine]\nwidths = [8]",
            "model.fine.blocks must be set; required keys are widths, blocks, attention",
        ),
        ("[optimiser]\nlr = 'a'", "optimiser.lr must be a number, got 'a'"),
        ("[optimiser]\nlr = true", "optimiser.lr must be a number, got True"),
        ("[optimiser]\nlr = -1", "optimiser.lr must be a finite number above 0, got -1.0"),
        ("[optimiser]\nbetas = [0.9]", "optimiser.betas must be a list of 2, each a number, got [0.9]"),
        ("[optimiser]\nbetas = [0.9, 1.0]", "optimiser.betas must be a number of at least 0 and below 1, got 1.0"),
        (
            "[optimiser]\nprecision = 'half'",
            "optimiser.precision must be 'auto' or 'float32' or 'bfloat16', got",
        ),
        ("[data]\nbatch = 1.5", "data.batch must be an integer, got 1.5"),
        ("[data]\nbatch = 0", "data.batch must be an integer from 1 to 65536, got 0"),
        ("[data]\nsize = [1, 384]", "data.size must be a list of 2, each an integer from 2 to 16384, got (1, 384)"),
        ("[schedule]\nminutes = -1", "schedule.minutes must be a number of at least 0, got -1.0"),
        ("[data]\nsource = 'sintel'", "data.root must be the folder of the data for source 'sintel'"),
        ("[data]\nlayered = 3", "data.layered must be a table [data.layered], got 3"),
        ("[data.layered]\nbox = 'x'", "data.layered.box must be a number, got 'x'"),
        ("[masks]\nbernouli = 1", "masks.bernouli: there is no such key; did you mean masks.bernoulli"),
        ("[model]\nwidth = 0", "model.width must be an integer of at least 1, got 0"),
        ("[model]\nkind = 'unet'", f"model.kind must be {' or '.join(map(repr, kinds()))}, got 'unet'"),
        ("[model]\nkind = []", f"model.kind must be {' or '.join(map(repr, kinds()))}, got []"),
        ("[model]\nkind = ''", "model.kind must be 'neuroexplicit'"),
        ("[model]\nkind = 'wgain'\nsteps = [1, 1, 1, 1]", "model.steps: there is no such key"),
        ("model = 'wgain'", "model must be a table [model], got 'wgain'"),
        ("[[model]]\nkind = 'wgain'", "a table [model]"),
        ("[schedule]\ncurve = 'linear'", "schedule.curve must be 'halving' or"),
        ("[schedule]\nminutes = nan", "schedule.minutes must be a finite number, got nan"),
        ("[validation]\ndensities = [5]", "validation.densities must be shares above 0 and up to 1, got [5.0]"),
        ("[run]\ncompile = 1", "run.compile must be true or false, got 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read_config(write(tmp_path / "a.toml", text))
    assert str(caught.value).startswith(f"{tmp_path / 'a.toml'}: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("lr=1", "--set must be TABLE.KEY=VALUE, for example optimiser.lr=1e-4, got 'lr=1'"),
        ("optimiser.lr", "got 'optimiser.lr'"),
        ("optimiser.lr=", "TABLE.KEY=VALUE"),
        ("optimiser.lr.x=1", "lr must be a table, got a value"),
        ("optimiser.rate=1", "optimiser.rate: there is no such key"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, setting: str, sentence: str) -> None:
    with pytest.raises(InputError, match=r"^--set") as caught:
        read_config(write(tmp_path / "a.toml", "[optimiser]\nlr = 1.0"), [setting])
    assert sentence in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="there is no such file"):
        read_config(tmp_path / "a.toml")
    with pytest.raises(FileFormatError, match=r"a\.toml: .*must be TOML"):
        read_config(write(tmp_path / "a.toml", "[data"))
    with pytest.raises(FileFormatError, match="must be a file, got a folder"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "setting", ["schedule.steps=5", "schedule.minutes=3", "validation.every=7", "run.log_every=3", "data.workers=0"]
)
def test_a_run_may_go_on_longer_or_tell_more(setting: str) -> None:
    check_same_run(TrainingConfig(), apply_settings({}, [setting]))


@pytest.mark.parametrize(
    "setting",
    ["model.width=8", "data.batch=8", "data.seed=1", "data.layered.box=0.2", "masks.lidar=1", "optimiser.ema=0"],
)
def test_a_run_may_not_go_on_as_another(setting: str) -> None:
    key = setting.partition("=")[0]
    with pytest.raises(InputError, match=f"^{key} must be .* as in the run to resume, got"):
        check_same_run(TrainingConfig(), apply_settings({}, [setting]))


def test_every_field_can_be_written_in_toml() -> None:
    def check(value: Any) -> None:
        for field in fields(value):
            entry = getattr(value, field.name)
            if is_dataclass(entry):
                check(entry)
            else:
                assert isinstance(entry, int | float | str | tuple), field.name

    check(TrainingConfig())


@pytest.mark.parametrize(
    "setting",
    [
        "data.seed=99999999999999999999999",
        "data.batch=99999999999999999",
        "data.size=[100000, 100000]",
        "masks.rectangle_count=[1, 99999999999]",
    ],
)
def test_numbers_that_no_machine_takes_are_refused(setting: str) -> None:
    with pytest.raises(InputError, match=setting.split("=")[0].rpartition(".")[2]):
        apply_settings({}, [setting])


def test_ranges_are_checked_in_configurations_made_in_python_too() -> None:
    size: Any = [64, 64]  # a list where the annotation says tuple
    assert list(DataConfig(size=size).size) == size
    size = [1, 64]
    with pytest.raises(InputError, match="size must be a list of 2, each an integer from 2 to 16384, got"):
        DataConfig(size=size)
    with pytest.raises(InputError, match="minutes must be a number of at least 0, got -1"):
        ScheduleConfig(minutes=-1)
