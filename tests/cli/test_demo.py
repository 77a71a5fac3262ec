from pathlib import Path

import cv2
import pytest

import flowinpaint as fi
from flowinpaint.cli import demo
from flowinpaint.data.demo_scene import Scene, sample_scene
from flowinpaint.methods.registry import usual_methods
from helpers import run_cli


@pytest.fixture
def small_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene of a ninth of the size, since every method fills it."""

    def small(seed: int = 0) -> Scene:
        return sample_scene(112, 160, seed)

    monkeypatch.setattr(demo, "sample_scene", small)


@pytest.mark.usefixtures("small_scenes")
def test_it_writes_fields_and_a_picture_and_prints_a_table(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "demo"
    code, stdout, _ = run_cli("demo", "-o", out, "--density", "0.03")
    assert code == 0
    inputs = {"image.png", "truth.flo", "given.flo", "mask.png", "demo.png"}
    assert {p.name for p in out.iterdir()} == inputs | {f"{method}.flo" for method in usual_methods()}
    assert all(method in stdout for method in ("eed", "harmonic", "nearest", "EPE", "seconds"))
    truth, given = fi.read_flow(out / "truth.flo")[0], fi.read_flow(out / "given.flo")[1]
    assert given.mean() == pytest.approx(0.03, abs=1e-4)
    errors = {name: fi.epe(fi.read_flow(out / f"{name}.flo")[0], truth) for name in usual_methods()}
    assert min(errors, key=lambda name: errors[name]) == "neuroexplicit"
    assert errors["eed"] < min(errors["harmonic"], errors["nearest"])
    assert stdout.index("neuroexplicit") < min(stdout.index(name) for name in errors if name != "neuroexplicit")
    assert f"{errors['eed']:.3f}" in stdout
    assert cv2.imread(str(out / "demo.png")) is not None


@pytest.mark.parametrize("arguments", [["--density", "0"], ["--density", "2"], ["-o", "taken.txt"]])
def test_it_refuses_bad_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.txt").write_text("mine")
    code, _, stderr = run_cli("demo", *arguments)
    assert code == 1
    assert stderr.startswith("Error: ")
    assert [p.name for p in tmp_path.iterdir()] == ["taken.txt"]
