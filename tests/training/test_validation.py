import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.api import inpaint
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation import evaluate, summarise
from flowinpaint.networks.registry import build_network
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.training import validation
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.recorder import validation_sheet
from flowinpaint.training.validation import FIRST_HELDOUT, OURS, Validator
from frame_folder import make_root
from helpers import neuroexplicit
from tiny_runs import CPU, halves, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def validator(config: TrainingConfig, place: Path) -> Validator:
    scenes = halves(config.data, CPU.device)
    return Validator(config, CPU.device, place / "references.json", scenes)


def network(config: TrainingConfig) -> Neuroexplicit:
    torch.manual_seed(0)
    return neuroexplicit(build_network(config.model)).eval()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods by which fields were filled."""
    calls: list[str] = []

    def fill(*arguments: Any) -> Any:
        calls.append(arguments[3])
        return inpaint(*arguments)

    monkeypatch.setattr(validation, "inpaint", fill)
    return calls


def test_r_is_that_of_evaluate(tmp_path: Path) -> None:
    make_root(tmp_path / "frames")
    config = tiny(validation={"root": str(tmp_path / "frames"), "densities": [0.1, 0.3]})
    model = network(config)
    fi.save_model(model, tmp_path / "mine.safetensors")
    mine = str(tmp_path / "mine.safetensors")
    records = evaluate(tmp_path / "frames", [mine, "laplace-beltrami"], [0.1, 0.3], device="cpu")
    scores = validator(config, tmp_path).measure(model)
    for score in summarise(records, "laplace-beltrami"):
        if score.method != mine:
            continue
        own = scores.frames[f"{100 * score.case:g}"] if score.dataset else scores.ratio
        assert own[score.dataset or f"{100 * score.case:g}"] == pytest.approx(score.ratio, rel=1e-6)
    assert set(scores.frames["10"]) == {"A", "B"}
    assert scores.heldout == {}
    assert scores.summary.startswith("R ")


def test_heldout_scenes_are_compared_with_other_methods(tmp_path: Path) -> None:
    config = tiny(validation={"heldout": 3, "densities": [0.05, 0.2]})
    ours = validator(config, tmp_path)
    model = network(config)
    scores = ours.measure(model)
    assert scores.tables.keys() == {"heldout"}
    assert list(scores.heldout) == ["5", "20"]
    for density in (0.05, 0.2):
        errors = scores.heldout[f"{100 * density:g}"]
        scenes = ours.heldout(density)
        assert len(scenes) == 3
        for method in ("harmonic", "laplace-beltrami"):
            filled = [inpaint(s.image, s.truth, s.mask, method, "cpu").flow for s in scenes]
            expected = np.mean([fi.epe(flow, s.truth) for flow, s in zip(filled, scenes, strict=True)])
            assert errors[method] == pytest.approx(expected)
        expected = np.mean([fi.epe(ours.fill(model, s), s.truth) for s in scenes])
        assert errors[OURS] == pytest.approx(expected)
    assert scores.heldout["20"]["harmonic"] < scores.heldout["5"]["harmonic"]
    assert scores.summary == f"EPE {scores.heldout['20'][OURS]:.3f} at 20 %"


def test_heldout_scenes_lie_where_training_never_gets(tmp_path: Path) -> None:
    asked: list[int] = []
    config = tiny(validation={"heldout": 3, "densities": [0.1]})

    def scenes(samples: torch.Tensor) -> Any:
        asked.extend(samples.tolist())
        return halves(config.data, CPU.device)(samples)

    Validator(config, CPU.device, tmp_path / "references.json", scenes)
    assert asked == [FIRST_HELDOUT - 1, FIRST_HELDOUT - 2, FIRST_HELDOUT - 3]
    assert min(asked) > 10**18


def test_other_methods_are_run_once(tmp_path: Path, counted: list[str]) -> None:
    make_root(tmp_path / "frames")
    root = {"root": str(tmp_path / "frames"), "datasets": ["A"]}
    config = tiny(validation=root | {"heldout": 1, "densities": [0.1, 0.2]})
    ours = validator(config, tmp_path)
    notes: list[str] = []
    ours.prepare(notes.append)
    assert sorted(counted) == ["harmonic"] * 2 + ["laplace-beltrami"] * 6
    first = ours.measure(network(config))
    again = validator(config, tmp_path)
    again.prepare(notes.append)
    assert len(notes) == 1
    assert again.measure(network(config)) == first
    assert len(counted) == 8
    assert len(json.loads((tmp_path / "references.json").read_text())) == 8


@pytest.mark.parametrize("rest", ["", "[]", "{", '{"a": "b"}'])
def test_a_broken_cache_is_made_anew(tmp_path: Path, rest: str, counted: list[str]) -> None:
    (tmp_path / "references.json").write_text(rest)
    config = tiny(validation={"heldout": 1, "densities": [0.1]})
    validator(config, tmp_path).prepare(print)
    assert len(counted) == 2
    assert len(json.loads((tmp_path / "references.json").read_text())) == 2


def test_a_changed_frame_is_another_frame(tmp_path: Path, counted: list[str]) -> None:
    make_root(tmp_path / "frames")
    config = tiny(validation={"root": str(tmp_path / "frames"), "datasets": ["A"], "densities": [0.1]})
    validator(config, tmp_path).prepare(print)
    image = find_samples(tmp_path / "frames")[0].image
    fi.write_image(image, 255 - np.asarray(fi.read_image(image), np.uint8))
    validator(config, tmp_path).prepare(print)
    assert len(counted) == 3


def test_what_is_wrong_shows_at_the_start(tmp_path: Path) -> None:
    make_root(tmp_path / "frames")
    root = str(tmp_path / "frames")
    with pytest.raises(InputError, match=r"validation\.root must be a folder .* does not exist"):
        validator(tiny(validation={"root": str(tmp_path / "nowhere")}), tmp_path)
    with pytest.raises(InputError, match=r"validation\.datasets must be among A, B .*got 'C'"):
        validator(tiny(validation={"root": root, "datasets": ["C"]}), tmp_path)
    with pytest.raises(InputError, match=r"validation\.datasets must have 2 channels.*B has 1"):
        validator(tiny(validation={"root": root}, model={"learn_kernels": True}), tmp_path)
    assert not validator(tiny(), tmp_path)


def test_the_sheet_shows_up_to_four_scenes(tmp_path: Path) -> None:
    sizes = []
    for count in (1, 4, 5):
        config = tiny(validation={"heldout": count, "densities": [0.1]})
        sizes.append(validation_sheet(validator(config, tmp_path), network(config)).shape)
    assert sizes[0][0] < sizes[1][0] == sizes[2][0]
    assert len({size[1] for size in sizes}) == 1
