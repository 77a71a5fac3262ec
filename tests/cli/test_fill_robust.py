"""`flowinpaint fill` with vectors that may be wrong."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import flowinpaint as fi
from helpers import run_cli
from imperfect_fields import smooth_scene, some_pixels, with_gross_outliers

H, W = 48, 64
IMAGE, TRUTH = smooth_scene(H, W)
MASK = some_pixels(H, W, 0.2)
FIELD, WRONG = with_gross_outliers(TRUTH)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two images, a sparse flow with wrong vectors, and maps of noise and probability."""
    fi.write_image(tmp_path / "image.png", IMAGE)
    fi.write_image(tmp_path / "second.png", np.roll(IMAGE, 2, 1))
    fi.write_flow(tmp_path / "flow.flo", np.where(MASK[..., None], FIELD, np.nan).astype(np.float32))
    fi.write_flow(tmp_path / "depth.pfm", np.where(MASK[..., None], FIELD[..., :1], np.nan).astype(np.float32))
    np.save(tmp_path / "p.npy", np.where(WRONG, 0.05, 0.9))
    fi.write_image(tmp_path / "p.png", np.where(WRONG, 26, 204).astype(np.uint8))
    cv2.imwrite(str(tmp_path / "noise.png"), np.where(WRONG, 512, 128).astype(np.uint16))
    fi.write_flow(tmp_path / "noise.pfm", np.where(WRONG, 2, 0.5).astype(np.float32)[..., None])
    return tmp_path


def fill(folder: Path, *options: object, method: str = "harmonic") -> tuple[int, str, str]:
    return run_cli(
        "fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo", "--method", method, *options
    )


def filled(folder: Path, *options: object, **keywords: Any) -> Any:
    code, _, stderr = fill(folder, *options, **keywords)
    assert (code, stderr) == (0, "")
    return fi.read_flow(folder / "o.flo")[0]


def expected(**keywords: Any) -> fi.Result:
    return fi.inpaint(IMAGE, FIELD, MASK, "harmonic", "cpu", **keywords)


P8 = np.where(WRONG, 26, 204).astype(np.float32) / 255
SIGMA = np.where(WRONG, np.float32(2), np.float32(0.5))
OPTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "robust": (["--robust"], {"robust": True}),
    "noise": (["--noise", "0.25"], {"noise": 0.25}),
    "noise of a PNG": (["--noise", "{}/noise.png"], {"noise": SIGMA}),
    "noise of a PFM": (["--noise", "{}/noise.pfm"], {"noise": SIGMA}),
    "confidence": (["--confidence", "9e-1"], {"confidence": 0.9}),
    "confidence of an array": (["--confidence", "{}/p.npy"], {"confidence": np.where(WRONG, 0.05, 0.9)}),
    "confidence of a PNG": (["--confidence", "{}/p.png"], {"confidence": P8}),
    "second": (["--second", "{}/second.png"], {"second": np.roll(IMAGE, 2, 1)}),
    "all": (
        ["--robust", "--noise", "0.1", "--confidence", "{}/p.png", "--second", "{}/second.png"],
        {"robust": True, "noise": 0.1, "confidence": P8, "second": np.roll(IMAGE, 2, 1)},
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_the_options_are_the_arguments_of_inpaint(folder: Path, case: str) -> None:
    options, keywords = OPTIONS[case]
    found = filled(folder, *(option.format(folder) for option in options))
    np.testing.assert_allclose(found, expected(**keywords).flow, atol=1e-4)
    assert not np.allclose(found, expected().flow, atol=1e-2)


def test_without_them_nothing_is_said_about_wrong_vectors_and_given_ones_are_kept(folder: Path) -> None:
    code, stdout, stderr = fill(folder)
    assert (code, stderr) == (0, "")
    assert "probably wrong" not in stdout
    assert np.array_equal(fi.read_flow(folder / "o.flo")[0][MASK], FIELD[MASK])


def test_wrong_vectors_are_counted_and_the_noise_is_said(folder: Path) -> None:
    code, stdout, _ = fill(folder, "--noise", "0.25", "--confidence", folder / "p.npy")
    assert code == 0
    wrong = int((WRONG & MASK).sum())
    share = f"{100 * wrong / MASK.sum():.1f}"
    assert f"{wrong} of {MASK.sum()} known vectors ({share} %) are probably wrong" in " ".join(stdout.split())
    assert "the noise of the others is 0.25 px" in " ".join(stdout.split())


def test_the_default_method_judges_too(folder: Path) -> None:
    filled(folder, "--robust", method="neuroexplicit")
    filled(folder, "--robust", "--errors", folder / "errors.pfm", method="neuroexplicit")
    assert (fi.read_flow(folder / "errors.pfm")[0] > 0).all()


@pytest.mark.parametrize("suffix", [".pfm", ".npy", ".npz"])
def test_inliers_go_to_a_file_that_can_be_given_as_confidence(folder: Path, suffix: str) -> None:
    path = folder / f"inliers{suffix}"
    code, stdout, _ = fill(folder, "--robust", "--inliers", path)
    assert code == 0
    assert f"Wrote {path}." in stdout
    told, valid = fi.read_flow(path)
    assert told.shape == (H, W, 1)
    assert np.array_equal(valid, MASK)
    inliers = expected(robust=True).inliers
    assert inliers is not None
    np.testing.assert_allclose(told[MASK, 0], inliers[MASK], atol=1e-4)
    np.testing.assert_allclose(filled(folder, "--confidence", path), expected(confidence=told[..., 0]).flow, atol=1e-4)


def test_the_preview_shows_the_judgement(folder: Path) -> None:
    sizes = []
    for options in ([], ["--robust"]):
        assert fill(folder, "--preview", folder / "p.bmp", *options)[0] == 0
        sizes.append(fi.read_image(folder / "p.bmp").size)
    assert sizes[1] > sizes[0]


def test_a_field_in_which_everything_is_known_is_judged(folder: Path) -> None:
    fi.write_flow(folder / "flow.flo", FIELD)
    code, _, stderr = fill(folder, "--robust")
    assert (code, stderr) == (0, "")  # not "there was nothing to fill"
    assert not np.array_equal(fi.read_flow(folder / "o.flo")[0], FIELD)


ERRORS: dict[str, tuple[list[str], str]] = {
    "a method that takes no weights": (["--robust", "--method", "nearest"], "method must support robust"),
    "inliers of vectors that nobody judges": (
        ["--inliers", "i.npy"],
        "--inliers needs --robust, --noise, --confidence or --second",
    ),
    "inliers in a format without zero": (
        ["--robust", "--inliers", "i.png"],
        "--inliers must be a file name ending in .pfm, .npy, .npz, .tif, .tiff, got i.png",
    ),
    "inliers over the output": (["--robust", "--inliers", "o.flo"], "o.flo: must not be an input or another output"),
    "inliers over the second image": (["--second", "s.npy", "--inliers", "s.npy"], "s.npy: must not be an input"),
    "inliers over the confidence": (["--confidence", "p.npy", "--inliers", "p.npy"], "p.npy: must not be an input"),
    "errors over the noise": (
        ["--noise", "noise.pfm", "--errors", "noise.pfm", "--method", "neuroexplicit"],
        "noise.pfm: must not be an input",
    ),
    "noise that is nothing": (["--noise", "much"], "--noise must be a number or a file name, got 'much'"),
    "noise of no file": (["--noise", "none.npy"], "--noise: none.npy: there is no such file"),
    "negative noise": (["--noise", "-1"], "noise must be a finite number of at least 0"),
    "no noise": (["--noise", "nan"], "noise must be a finite number of at least 0"),
    "noise of two channels": (["--noise", "flow.flo"], "flow.flo: a map must have one channel, got 2"),
    "noise of an image": (["--noise", "image.png"], "--noise: image.png: a field PNG must have 16 bits"),
    "seed without a judgement": (["--set", "seed=1"], "seed needs robust, noise, confidence or second"),
    "noise of another size": (["--noise", "small.npy"], "noise must be an array of numbers of shape (48, 64)"),
    "confidence beyond 1": (["--confidence", "2"], "confidence must be a number from 0 to 1"),
    "confidence in colour": (["--confidence", "image.png"], "image.png: probabilities must be a grey image"),
    "no confidence at all": (["--confidence", "0"], "confidence must be above 0 for at least one known vector"),
    "no second image": (["--second", "none.png"], "none.png: there is no such file"),
    "a second image of another size": (["--second", "small.png"], "small.png: must be "),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_a_sentence_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(folder)
    fi.write_image("small.png", np.zeros((4, 5), np.uint8))
    np.save("small.npy", np.zeros((4, 5)))
    before = {p: p.read_bytes() for p in folder.iterdir()}
    options, sentence = ERRORS[case]
    method = [] if "--method" in options else ["--method", "harmonic"]
    code, stdout, stderr = run_cli("fill", "image.png", "flow.flo", "-o", "o.flo", *method, *options)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


def test_a_second_image_needs_flow(folder: Path) -> None:
    code, _, stderr = run_cli(
        "fill", folder / "image.png", folder / "depth.pfm", "-o", folder / "o.pfm", "--method", "harmonic",
        "--second", folder / "second.png",
    )  # fmt: skip
    assert code == 1
    assert "second needs a flow of 2 channels, displacements in px, got 1" in stderr
