import json
import socket
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

import flowinpaint as fi
from helpers import FLOW_AWARE, run_cli


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small image, a sparse flow in several formats, a dense one, and a mask."""
    rng = np.random.default_rng(0)
    image = rng.integers(120, 130, (24, 33, 3), dtype=np.uint8)
    flow = np.round(rng.normal(0, 5, (24, 33, 2)) * 64).astype(np.float32) / 64
    mask = fi.random_mask((24, 33), 0.2, 0)
    sparse = np.where(mask[..., None], flow, np.nan).astype(np.float32)
    fi.write_image(tmp_path / "image.png", image)
    fi.write_mask(tmp_path / "mask.png", mask)
    fi.write_mask(tmp_path / "unknown.png", ~mask)
    for name in ("flow.flo", "flow.png", "flow.npy", "flow.npz", "flow.pfm"):
        fi.write_flow(tmp_path / name, sparse)
    fi.write_flow(tmp_path / "dense.flo", flow)
    return tmp_path


@pytest.mark.parametrize("name", ["flow.flo", "flow.png", "flow.npy", "flow.npz", "flow.pfm"])
@pytest.mark.parametrize("method", ["eed", "nearest"])
def test_fill_every_format_to_every_format(folder: Path, name: str, method: str) -> None:
    out = folder / f"out{Path(name).suffix}"
    code, stdout, _ = run_cli("fill", folder / "image.png", folder / name, "-o", out, "--method", method)
    assert code == 0
    assert str(out) in stdout
    dense, valid = fi.read_flow(out)
    assert valid.all()
    sparse, known = fi.read_flow(folder / name)
    assert np.array_equal(dense[known], sparse[known])


def test_a_mask_selects_from_a_dense_field_and_may_be_inverted(folder: Path) -> None:
    expected = folder / "expected.flo"
    assert run_cli("fill", folder / "image.png", folder / "flow.flo", "-o", expected)[0] == 0
    for mask in (["--mask", folder / "mask.png"], ["--mask", folder / "unknown.png", "--invert-mask"]):
        out = folder / "out.flo"
        assert run_cli("fill", folder / "image.png", folder / "dense.flo", "-o", out, *mask)[0] == 0
        assert out.read_bytes() == expected.read_bytes()


def test_preview_is_a_picture(folder: Path) -> None:
    picture = folder / "preview.png"
    code, stdout, _ = run_cli(
        "fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo", "--preview", picture
    )
    assert code == 0
    assert str(picture) in stdout
    drawn = cv2.imread(str(picture))
    assert drawn is not None
    assert min(drawn.shape[:2]) > 200
    assert drawn.std() > 10


def test_the_default_is_the_flagship_without_a_network_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", None)
    fill = ["fill", folder / "image.png", folder / "flow.flo", "-o"]
    code, stdout, stderr = run_cli(*fill, folder / "o.flo")
    assert code == 0
    assert "neuroexplicit" in stdout
    assert "Warning" not in stderr
    dense, valid = fi.read_flow(folder / "o.flo")
    sparse, known = fi.read_flow(folder / "flow.flo")
    assert valid.all()
    assert np.array_equal(dense[known], sparse[known])
    assert run_cli(*fill, folder / "named.flo", "--method", "neuroexplicit")[0] == 0
    assert (folder / "named.flo").read_bytes() == (folder / "o.flo").read_bytes()
    fi.write_flow(folder / "disparity.pfm", np.abs(sparse[..., :1]))
    fi.write_image(folder / "grey.png", np.full((24, 33), 90, np.uint8))
    assert run_cli("fill", folder / "grey.png", folder / "disparity.pfm", "-o", folder / "o.pfm")[0] == 0
    assert fi.read_flow(folder / "o.pfm")[0].shape == (24, 33, 1)


@pytest.mark.parametrize("own", [False, True])
def test_expected_errors_go_to_a_file(folder: Path, own: bool) -> None:
    weights, errors = folder / "w.safetensors", folder / "errors.pfm"
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(**FLOW_AWARE | {"width": 2})), weights)
    fill = ["fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo", "--errors", errors]
    code, stdout, _ = run_cli(*fill, *(["--method", weights] if own else []))
    assert code == 0
    assert f"Wrote {errors}." in stdout
    told, valid = fi.read_flow(errors)
    _, known = fi.read_flow(folder / "flow.flo")
    assert valid.all()
    assert told.shape == (24, 33, 1)
    assert np.array_equal(told[..., 0] == 0, known)


def test_errors_that_a_method_cannot_tell_are_refused_before_any_file_is_read(folder: Path) -> None:
    before = set(folder.iterdir())
    weights = folder.parent / "w.safetensors"
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(width=2)), weights)
    fill = ["fill", folder / "no.png", folder / "no.flo", "-o", folder / "o.flo", "--errors", folder / "errors.pfm"]
    for method in ("nearest", "neuroexplicit-paper", weights):
        code, _, stderr = run_cli(*fill, "--method", method)
        assert code == 1
        assert "--errors needs --robust, or a method that predicts its errors, such as neuroexplicit, got" in stderr
        assert set(folder.iterdir()) == before


@pytest.mark.parametrize("errors", ["e.flo", "e.png"])
def test_errors_need_a_format_that_holds_zeros(folder: Path, errors: str) -> None:
    before = set(folder.iterdir())
    fill = ["fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo"]
    code, _, stderr = run_cli(*fill, "--errors", folder / errors)
    assert code == 1
    assert "ending in .pfm, .npy, .npz" in " ".join(stderr.split())
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("method", ["magic", "pd"])
def test_a_method_that_cannot_be_used_is_refused_before_any_file_is_read(folder: Path, method: str) -> None:
    code, _, stderr = run_cli("fill", folder / "no.png", folder / "no.flo", "-o", folder / "o.flo", "--method", method)
    assert code == 1
    assert stderr.startswith("Error: --method ")
    assert f"'{method}'" in stderr


def test_settings_reach_the_method_and_a_short_run_is_said(folder: Path) -> None:
    fill = ["fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo", "--set", "max_iterations=1"]
    code, _, stderr = run_cli(*fill, "--method", "laplace-beltrami")
    assert code == 0
    assert "Warning: laplace-beltrami stopped after" in stderr


def test_pixels_that_the_file_does_not_know_stay_unknown_whatever_the_mask_says(folder: Path) -> None:
    fi.write_mask(folder / "all.png", np.ones((24, 33), np.bool_))
    out, expected = folder / "o.flo", folder / "expected.flo"
    assert run_cli("fill", folder / "image.png", folder / "flow.flo", "-o", expected)[0] == 0
    code, _, stderr = run_cli(
        "fill", folder / "image.png", folder / "flow.flo", "-o", out, "--mask", folder / "all.png"
    )
    assert code == 0
    assert "are unknown in" in stderr
    assert out.read_bytes() == expected.read_bytes()


def test_filled_values_that_a_format_cannot_hold_are_cut_and_counted(folder: Path) -> None:
    """A rough image makes eed overshoot what is given, here below the smallest disparity of a KITTI PNG."""
    rng = np.random.default_rng(0)
    fi.write_image(folder / "rough.png", rng.integers(0, 256, (24, 33), dtype=np.uint8))
    disparity = np.where(rng.random((24, 33, 1)) < 0.2, 1 / 256, 200).astype(np.float32)
    fi.write_flow(folder / "disparity.pfm", np.where(rng.random((24, 33, 1)) < 0.2, disparity, np.nan))
    out = folder / "o.png"
    fill = ["fill", folder / "rough.png", folder / "disparity.pfm", "-o", out, "--method", "eed"]
    code, _, stderr = run_cli(*fill, "--unit", "px/256")
    assert code == 0
    assert "filled values were clipped" in stderr
    dense, valid = fi.read_flow(out, "px/256")
    assert valid.all()
    assert dense.min() == 1 / 256


def test_a_depth_png_needs_a_unit_and_is_written_in_it(folder: Path) -> None:
    levels = np.zeros((24, 33), np.uint16)
    levels[::4, ::4] = 1500 + np.arange(54, dtype=np.uint16).reshape(6, 9)
    cv2.imwrite(str(folder / "depth.png"), levels)
    fill = ["fill", folder / "image.png", folder / "depth.png", "-o", folder / "o.png", "--method", "harmonic"]
    code, _, stderr = run_cli(*fill)
    assert code == 1
    assert "depth.png: a 16-bit PNG of one channel needs a unit; pass --unit m/256 (KITTI depth), mm" in stderr
    code, _, stderr = run_cli(*fill, "--unit", "inch")
    assert code == 1
    assert "--unit must be m/256, mm, cm, m, px/256, px or a number above 0" in stderr
    for unit in ("mm", "0.25"):
        assert run_cli(*fill, "--unit", unit)[0] == 0
        written = cv2.imread(str(folder / "o.png"), cv2.IMREAD_UNCHANGED)
        assert np.array_equal(np.asarray(written)[::4, ::4], levels[::4, ::4])
    assert run_cli(*fill, "--unit", "mm", "--space", "inverse", "--bounds", 1.51, 1.53)[0] == 0
    bounded = np.asarray(cv2.imread(str(folder / "o.png"), cv2.IMREAD_UNCHANGED))[levels == 0]
    assert bounded.min() == 1510
    assert bounded.max() <= 1530
    code, _, stderr = run_cli(*fill, "--unit", "mm", "--space", "cubic")
    assert code == 1
    assert "space must be one of linear, inverse, log" in stderr


def test_nothing_to_fill_is_said(folder: Path) -> None:
    code, _, stderr = run_cli("fill", folder / "image.png", folder / "dense.flo", "-o", folder / "o.flo")
    assert code == 0
    assert "nothing to fill" in stderr


ERRORS = {
    "missing image": (["none.png", "flow.flo", "-o", "o.flo"], "none.png: there is no such file"),
    "missing flow": (["image.png", "none.flo", "-o", "o.flo"], "none.flo: there is no such file"),
    "a folder": (["image.png", ".", "-o", "o.flo"], "folder"),
    "image of another size": (["small.png", "flow.flo", "-o", "o.flo"], "small.png: must be "),
    "mask of another size": (
        ["image.png", "flow.flo", "-o", "o.flo", "--mask", "small.png"],
        "small.png: must be ",
    ),
    "no such output format": (["image.png", "flow.flo", "-o", "o.jpeg"], "o.jpeg"),
    "an output folder that is a file": (
        ["image.png", "flow.flo", "-o", "flow.flo/o.flo"],
        "must be a folder, got a file",
    ),
    "an error with a new output folder": (
        ["none.png", "flow.flo", "-o", "no/o.flo"],
        "none.png: there is no such file",
    ),
    "no such preview format": (["image.png", "flow.flo", "-o", "o.flo", "--preview", "p.doc"], "p.doc"),
    "wrong channels for the output": (["image.png", "five.npy", "-o", "o.flo"], "channels"),
    "unknown method": (
        ["image.png", "flow.flo", "-o", "o.flo", "--method", "magic"],
        "method must be one of neuroexplicit, ",
    ),
    "bad setting": (["image.png", "flow.flo", "-o", "o.flo", "--set", "lam"], "KEY=VALUE"),
    "bad setting value": (
        ["image.png", "flow.flo", "-o", "o.flo", "--method", "eed", "--set", "lam=a"],
        "lam must be a number, got 'a'",
    ),
    "setting of a method": (
        ["image.png", "flow.flo", "-o", "o.flo", "--set", "eed.lam=1"],
        "without the method's name",
    ),
    "setting without a name": (["image.png", "flow.flo", "-o", "o.flo", "--set", "=1.5"], "KEY=VALUE"),
    "unknown setting": (["image.png", "flow.flo", "-o", "o.flo", "--method", "eed", "--set", "lamda=1"], "lamda"),
    "a setting that is no parameter": (["image.png", "flow.flo", "-o", "o.flo", "--set", "device=3"], "device"),
    "a setting beyond reason": (["image.png", "flow.flo", "-o", "o.flo", "--method", "eed", "--set", "rho=1e9"], "rho"),
    "a setting of the default": (
        ["image.png", "flow.flo", "-o", "o.flo", "--set", "lam=1"],
        "lam must be a parameter of 'neuroexplicit', which has none",
    ),
    "output over an input": (["image.png", "flow.flo", "-o", "flow.flo"], "flow.flo: must not be an input"),
    "preview over the image": (
        ["image.png", "flow.flo", "-o", "o.flo", "--preview", "image.png"],
        "image.png: must not be an",
    ),
    "preview over the output": (
        ["image.png", "flow.flo", "-o", "o.png", "--preview", "./o.png"],
        "o.png: must not be an input",
    ),
    "inverted without a mask": (["image.png", "flow.flo", "-o", "o.flo", "--invert-mask"], "--invert-mask"),
    "nothing known": (["image.png", "none.npy", "-o", "o.npy"], "none.npy: at least one pixel must be known, got none"),
    "too large for the output": (["image.png", "large.npy", "-o", "o.png"], "o.png: a 16-bit PNG cannot hold"),
    "no such device": (["image.png", "flow.flo", "-o", "o.flo", "--device", "meta"], "device must be "),
    "no such GPU": (["image.png", "flow.flo", "-o", "o.flo", "--device", "cuda:77"], "device must be "),
    "truncated flow": (["image.png", "short.flo", "-o", "o.flo"], "short.flo: truncated"),
    "flow as image": (["flow.flo", "flow.flo", "-o", "o.flo"], "flow.flo"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_a_sentence_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(folder)
    fi.write_image("small.png", np.zeros((4, 5), np.uint8))
    fi.write_flow("five.npy", np.zeros((24, 33, 5), np.float32))
    fi.write_flow("none.npy", np.full((24, 33, 2), np.nan, np.float32))
    fi.write_flow("large.npy", np.full((24, 33, 2), 600, np.float32))
    Path("short.flo").write_bytes(Path("flow.flo").read_bytes()[:100])
    before = {p: p.read_bytes() for p in folder.iterdir()}
    arguments, sentence = ERRORS[case]
    code, stdout, stderr = run_cli("fill", *arguments)
    assert code == 1
    assert stdout == ""
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


def test_parameters_from_a_file_are_those_of_the_nearest_density_and_set_overrides_them(folder: Path) -> None:
    table = {"0.01": {"lam": 1e-6}, "0.2": {"lam": 1e-2, "alpha": 0.2}, "1": {"lam": 1.0}}
    (folder / "params.json").write_text(json.dumps({"method": "eed", "by_density": table}))

    def filled(*options: Any) -> bytes:
        assert run_cli("fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo", *options)[0] == 0
        return (folder / "o.flo").read_bytes()

    from_file = filled("--params", folder / "params.json")
    assert from_file == filled("--method", "eed", "--set", "lam=1e-2", "--set", "alpha=0.2")
    assert from_file != filled("--method", "eed")
    both = filled("--params", folder / "params.json", "--set", "lam=3e-3")
    assert both == filled("--method", "eed", "--set", "lam=3e-3", "--set", "alpha=0.2")


def test_parameters_of_another_method_are_refused(folder: Path) -> None:
    (folder / "params.json").write_text('{"method": "eed", "lam": 1e-3}')
    arguments = ["fill", folder / "image.png", folder / "flow.flo", "-o", folder / "o.flo"]
    code, _, stderr = run_cli(*arguments, "--method", "nearest", "--params", folder / "params.json")
    assert code == 1
    assert "must hold parameters of nearest, got those of eed" in stderr
    assert not (folder / "o.flo").exists()


def test_output_folders_are_made(folder: Path) -> None:
    outputs = {"-o": "a/b/o.flo", "--preview": "c/p.png", "--errors": "a/e.pfm"}
    arguments = [x for option, name in outputs.items() for x in (option, folder / "new" / name)]
    code, _, stderr = run_cli("fill", folder / "image.png", folder / "flow.flo", *arguments)
    assert (code, stderr) == (0, "")
    assert all((folder / "new" / name).is_file() for name in outputs.values())


def test_regions_limit_the_fill_and_the_use_of_the_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = np.zeros((24, 33), np.bool_)
    where[:, 10:30] = True
    fi.write_mask(folder / "where.png", where)
    options = ("--method", "laplace-beltrami", "--fill-where", "where.png", "--max-gap", "3")
    monkeypatch.chdir(folder)
    assert run_cli("fill", "image.png", "flow.flo", "-o", "part.flo", *options)[0] == 0
    field, valid = fi.read_flow(folder / "part.flo")
    expected = fi.inpaint(
        fi.read_image(folder / "image.png"),
        fi.read_flow(folder / "flow.flo")[0],
        method="laplace-beltrami",
        fill_where=where,
        max_gap=3,
    )
    np.testing.assert_array_equal(field, expected.flow)
    assert 0 < valid.sum() < valid.size
    assert run_cli("fill", "image.png", "flow.flo", "-o", "all.flo", "--image-where", "where.png")[0] == 0
    code, _, stderr = run_cli("fill", "image.png", "flow.flo", "-o", "all.flo", "--max-gap", "-1")
    assert (code, stderr) == (1, "Error: --max-gap must be a distance in px above 0, got -1.0\n")


def test_a_removed_object_and_uncertain_vectors_stay_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    removed = np.zeros((24, 33), np.bool_)
    removed[8:14, 10:18] = True
    fi.write_mask("object.png", removed)
    assert run_cli("fill", "image.png", "dense.flo", "-o", "back.flo", "--remove", "object.png", "--grow", "2")[0] == 0
    near = np.asarray(distance_transform_edt(~removed) <= 2)
    image, flow = fi.read_image("image.png"), fi.read_flow("dense.flo")[0]
    np.testing.assert_array_equal(fi.read_flow("back.flo")[0], fi.inpaint(image, flow, ~near, image_where=~near).flow)
    code, stdout, _ = run_cli(
        "fill", "image.png", "flow.flo", "-o", "sure.flo", "--max-error", "1", "--errors", "e.npy"
    )
    assert code == 0
    assert "% of the pixels stay unknown." in stdout
    errors = np.load("e.npy")
    assert errors.shape == (24, 33)
    np.testing.assert_array_equal(fi.read_flow("sure.flo")[1], errors <= 1)
    code, _, stderr = run_cli("fill", "image.png", "flow.flo", "-o", "o.flo", "--method", "nearest", "--max-error", "1")
    assert (code, stderr.startswith("Error: --max-error needs --robust")) == (1, True)


def test_a_mask_that_cannot_be_of_an_object_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    common = ("fill", "image.png", "dense.flo", "-o", "o.flo")
    fi.write_mask("none.png", np.zeros((24, 33), np.bool_))
    code, _, stderr = run_cli(*common, "--remove", "none.png")
    assert (code, stderr.startswith("Error: none.png: the mask of --remove must be non-zero on the object")) == (
        1,
        True,
    )
    around = np.ones((24, 33), np.bool_)
    around[8:12, 8:12] = False
    fi.write_mask("around.png", around)
    code, _, stderr = run_cli(*common, "--remove", "around.png", "--grow", "0")
    assert (code, "Warning: around.png: 98 % of the pixels are the object" in stderr) == (0, True)
    assert run_cli(*common, "--grow", "3")[2] == "Error: --grow needs --remove\n"
