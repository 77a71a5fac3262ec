import csv
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.data.folder import Frame, Sample, find_samples
from flowinpaint.evaluation.benchmark import check_method
from flowinpaint.masks.cases import Case, Pattern
from flowinpaint.methods import neural as neural_methods
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.methods.registry import METHODS
from flowinpaint.metrics import geometric_mean
from flowinpaint.networks.weights import CHECKSUMS, check_shipped, read_checksums
from flowinpaint.neuroexplicit import dtm
from flowinpaint.robust.assessor import WEIGHTS as ASSESSOR
from flowinpaint.speed.cases import check_weights
from helpers import generator, neuroexplicit, random_field, reference

SHIPPED = {name: method for name, method in BUILTIN.items() if method.shipped}
FOLDER = Path(fi.__file__).parent / "weights"
DATASETS = {"MPI-Sintel", "KITTI2015", "KITTI2012", "Middlebury", "FlyingChairs"}
EACH = pytest.mark.parametrize("name", SHIPPED)
OURS = [name for name, network in SHIPPED.items() if not network.baseline]
EACH_OF_OURS = pytest.mark.parametrize("name", OURS)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The flagship's weights in a folder of their own, which the package takes for its own."""
    folder = shutil.copytree(FOLDER, tmp_path / "weights")
    path = folder / "neuroexplicit.safetensors"
    monkeypatch.setitem(METHODS, "neuroexplicit", replace(BUILTIN["neuroexplicit"], weights=path))
    return path


def card_of(name: str) -> Path:
    package = FOLDER.parent
    if name in OURS:
        return package / "neuroexplicit" / ("card-paper.md" if name.endswith("-paper") else "card.md")
    return package / "baselines" / name / "card.md"


def test_the_flagship_is_shipped_and_each_file_has_a_checksum_and_a_card() -> None:
    assert "neuroexplicit" in SHIPPED
    names = {f"{name}.safetensors" for name in SHIPPED} | {ASSESSOR.name}
    assert read_checksums(FOLDER / CHECKSUMS).keys() == names
    assert {path.name for path in FOLDER.iterdir()} == {CHECKSUMS} | names
    assert all(card_of(name).is_file() for name in SHIPPED)
    assert (FOLDER.parent / "robust" / "card.md").is_file()
    lines = (FOLDER / CHECKSUMS).read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w-]+\.safetensors", line) for line in lines)  # what sha256sum -c reads


@EACH
def test_shipped_weights_are_whole_and_of_the_configuration_in_the_code(name: str) -> None:
    path = SHIPPED[name].weights
    assert path is not None
    check_shipped(path)
    model = fi.load_model(name, "cpu")
    assert model.config == SHIPPED[name].config
    assert not model.training
    with safe_open(path, framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.float16}  # noqa: SIM118
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


@EACH
def test_the_card_tells_of_this_model(name: str) -> None:
    card = card_of(name).read_text(encoding="utf-8")
    model = fi.load_model(name, "cpu")
    assert f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters" in card
    if name in OURS:
        assert f"width {model.config.width}, fine width {model.config.fine_width}" in card
        assert f"steps {', '.join(map(str, model.config.steps))}" in card
    assert f"{(FOLDER / f'{name}.safetensors').stat().st_size / 1e6:.1f} MB" in card


@EACH_OF_OURS
@torch.inference_mode()
def test_what_its_layers_make_fits_half_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    largest: list[float] = []

    def watch(y: Tensor) -> Tensor:
        largest.append(float(y.max()))
        return torch.relu(y)

    monkeypatch.setattr(dtm, "relu", watch)
    model = neuroexplicit(fi.load_model(name, "cpu"))
    model.backend = "torch"
    scene = sample_scene(192, 256, seed=0)
    image, flow = (torch.from_numpy(x).permute(2, 0, 1)[None].float() for x in (scene.image, scene.flow))
    for density in (0.002, 0.1):
        model(image / 255, flow, torch.rand(1, 1, 192, 256, generator=generator(1)) < density)
    assert len(largest) > 20
    assert max(largest) < torch.finfo(torch.float16).max / 16


def ratio_on_real_frames(name: str, case: Case, theirs: Callable[[Sample, Frame], float]) -> float:
    """A method's error relative to another's, as a geometric mean over five data sets.

    At 5 % over all frames, otherwise over the first frame of each data set, which is the same check in less time.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    samples = find_samples(reference("realflow"), DATASETS)
    firsts = {sample.dataset: sample for sample in reversed(samples)}
    for sample in samples if case == 0.05 else firsts.values():
        frame = sample.load(case)
        filled = fi.inpaint(frame.image, frame.truth, frame.mask, name, "cpu").flow
        pair = sums[sample.dataset]
        pair[0] += fi.epe(filled, frame.truth, valid=frame.valid)
        pair[1] += theirs(sample, frame)
    assert len(sums) == 5
    ratio = geometric_mean([ours / other for ours, other in sums.values()])
    assert ratio is not None
    return ratio


@pytest.mark.parametrize(
    ("name", "label", "bar"),
    [
        ("neuroexplicit", "01", 0.50),
        ("neuroexplicit", "05", 0.52),
        ("neuroexplicit", "10", 0.55),
        *(("neuroexplicit-paper", label, 0.85) for label in ("01", "05", "10")),
    ],
)
def test_networks_have_less_error_than_laplace_beltrami_on_real_frames(name: str, label: str, bar: float) -> None:
    with reference("realflow/reference.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["density"], row["method"]) == (label, "laplace-beltrami")]
    theirs = {(row["dataset"], row["sample"]): float(row["epe"]) for row in rows}
    assert ratio_on_real_frames(name, int(label) / 100, lambda sample, _: theirs[sample.dataset, sample.name]) < bar


@pytest.mark.parametrize("pattern", ["lidar", "holes"])
def test_large_gaps_of_real_frames_are_filled(pattern: Pattern) -> None:
    def theirs(_: Sample, frame: Frame) -> float:
        filled = fi.inpaint(frame.image, frame.truth, frame.mask, "laplace-beltrami", "cpu").flow
        return fi.epe(filled, frame.truth, valid=frame.valid)

    assert ratio_on_real_frames("neuroexplicit", pattern, theirs) < 0.65


def refused(error: type[Exception], match: str) -> None:
    """The methods' weights are refused by everything that reads them."""
    image, flow, mask = random_field(12, 17)
    with pytest.raises(error, match=match):
        fi.inpaint(image, flow, mask, device="cpu")
    with pytest.raises(error, match=match):
        fi.load_model("neuroexplicit", "cpu")
    with pytest.raises(error, match=match):
        check_method("neuroexplicit")
    with pytest.raises(error, match=match):
        check_weights(["neuroexplicit"])


def test_damaged_weights_are_refused(copy: Path) -> None:
    fi.load_model("neuroexplicit", "cpu")
    content = bytearray(copy.read_bytes())
    content[-1000] ^= 1
    copy.write_bytes(content)
    refused(fi.FileFormatError, r"neuroexplicit\.safetensors: damaged.*install flowinpaint again")
    copy.write_bytes(content[:-1])
    refused(fi.FileFormatError, "damaged: its SHA-256 differs")
    copy.with_name(CHECKSUMS).write_text("")
    refused(fi.FileFormatError, "damaged: its SHA-256 differs")


def test_missing_weights_and_checksums_are_told(copy: Path) -> None:
    copy.with_name(CHECKSUMS).rename(copy.with_name("elsewhere"))
    refused(fi.MissingFileError, rf"{CHECKSUMS}: there is no such file, although it is part of flowinpaint; install")
    copy.with_name("elsewhere").rename(copy.with_name(CHECKSUMS))
    copy.unlink()
    refused(fi.MissingFileError, r"neuroexplicit\.safetensors: there is no such file, although")


def test_weights_are_checked_once_while_they_are_kept(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Path] = []
    monkeypatch.setattr(neural_methods, "check_shipped", checked.append)
    image, flow, mask = random_field(12, 17)
    for _ in range(2):
        fi.inpaint(image, flow, mask, device="cpu")
    assert checked == [copy]
