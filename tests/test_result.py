"""`Result`: its text and pictures, and what it saves, trusts and converts."""

import base64
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

import flowinpaint as fi
from flowinpaint.result import Arrays, Info
from helpers import random_field

H, W = 40, 52
INFO: Info = {
    "method": "neuroexplicit",
    "device": "cpu",
    "seconds": 0.714,
    "iterations": 500,
    "residual": None,
    "status": "complete",
    "noise": None,
}


def shifted(array: npt.NDArray[Any], by: float) -> npt.NDArray[Any]:
    return np.asarray(array + by)


def result(channels: int = 2, judged: bool = False, image: bool = True, **changes: Any) -> fi.Result:
    """A result of random numbers: expected errors are 0 to 3 from left to right, and 0 where vectors are given."""
    picture, flow, mask = random_field(H, W, channels)
    given = np.where(mask[..., None], flow, np.nan).astype(np.float32)
    error = np.where(mask, 0, np.linspace(0, 3, W)).astype(np.float32)
    inliers = np.where(mask, np.where(np.arange(H)[:, None] < 10, 0.1, 0.9), np.nan).astype(np.float32)
    own = Arrays(
        picture if image else None,
        given,
        np.asarray(np.isfinite(given).all(-1)),
        flow,
        error,
        inliers if judged else None,
    )
    arrays = replace(own, **changes)
    return fi.Result(arrays.flow, None, arrays.expected_error, INFO, arrays.inliers, arrays)


class TestText:
    def test_it_is_short_and_has_the_facts_but_no_arrays(self) -> None:
        text = repr(result())
        assert text.count("\n") <= 1
        assert len(text) < 200
        for fact in ("neuroexplicit", "52 x 40", "2 channels", "% given", "0.71 s on cpu", "expected error 1.5"):
            assert fact in text
        assert "wrong" not in text
        assert "array" not in text

    def test_judged_vectors_are_summed_up(self) -> None:
        found = result(judged=True)
        wrong = float(re.findall(r"([\d.]+) % of the given vectors probably wrong", repr(found))[0])
        assert found.arrays is not None
        known = np.isfinite(found.arrays.given).all(axis=2)
        assert wrong == pytest.approx(100 * np.mean(found.inliers[known] < 0.5), abs=0.1)

    def test_of_one_channel_without_errors_and_partly_filled(self) -> None:
        flow = np.ones((H, W, 1), np.float32)
        flow[: H // 2] = np.nan
        text = repr(result(1, flow=flow, expected_error=None))
        assert "1 channel," in text
        assert "50 % not filled" in text
        assert "expected" not in text

    def test_of_inpaint(self) -> None:
        image, flow, mask = random_field(24, 30)
        assert "harmonic" in repr(fi.inpaint(image, flow, mask, method="harmonic", device="cpu"))

    def test_without_arrays(self) -> None:
        bare = fi.Result(np.zeros((2, 2, 2)), None, None, INFO)
        assert repr(bare) == "Result(neuroexplicit, 0.71 s on cpu)"
        assert "neuroexplicit" in bare._repr_html_()
        with pytest.raises(fi.InputError, match="has no arrays"):
            bare.preview()


NOTHING = np.full((H, W, 2), np.nan, np.float32)
NOWHERE = np.zeros((H, W), np.bool_)
CASES: dict[str, dict[str, Any]] = {
    "flow": {},
    "one channel": {"channels": 1},
    "four channels": {"channels": 4},
    "judged": {"judged": True},
    "no image": {"image": False, "judged": True},
    "16-bit image": {"image": False},
    "nothing filled": {"flow": NOTHING, "expected_error": NOTHING[..., 0]},
    "nothing given": {"known": NOWHERE, "judged": True},
    "nothing at all": {"flow": NOTHING, "known": NOWHERE, "expected_error": None, "image": False},
    "infinite errors": {"expected_error": np.full((H, W), np.inf, np.float32)},
}


@pytest.mark.parametrize("case", CASES)
class TestPictures:
    def of(self, case: str) -> fi.Result:
        found = result(**CASES[case])
        if case != "16-bit image":
            return found
        assert found.arrays is not None
        grey = np.full((H, W, 1), 30000, np.uint16)
        return replace(found, arrays=replace(found.arrays, image=grey))

    def test_preview_is_a_picture(self, case: str) -> None:
        sheet = self.of(case).preview()
        assert sheet.dtype == np.uint8
        assert sheet.ndim == 3
        assert sheet.shape[2] == 3
        assert sheet.std() > 3

    def test_a_notebook_shows_a_png_and_the_facts(self, case: str) -> None:
        found = self.of(case)
        html = found._repr_html_()
        (data,) = re.findall(r'<img src="data:image/png;base64,([\w+/=]+)"', html)
        picture = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        assert picture.shape[1] <= 1100
        assert len(html) < 1_000_000
        assert "neuroexplicit" in re.sub(r"<[^>]*>", "", html)


def test_html_escapes_the_name_of_a_method() -> None:
    html = replace(result(), info={**INFO, "method": "<b>.safetensors"})._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html


class TestSave:
    @pytest.mark.parametrize("name", ["a.flo", "new/deep/a.npy", "b.pfm", "c.npz"])
    def test_the_field_comes_back_and_its_folder_is_made(self, tmp_path: Path, name: str) -> None:
        flow = random_field(H, W)[1]
        flow[3] = np.nan
        result(flow=flow).save(tmp_path / name)
        back, valid = fi.read_flow(tmp_path / name)
        assert np.array_equal(back, flow, equal_nan=True)
        assert not valid[3].any()

    def test_an_npz_keeps_errors_and_inliers(self, tmp_path: Path) -> None:
        found = result(judged=True)
        found.save(str(tmp_path / "a.npz"))
        with np.load(tmp_path / "a.npz") as file:
            assert np.array_equal(file["expected_error"], found.expected_error)
            assert np.array_equal(file["inliers"], found.inliers, equal_nan=True)
        result(expected_error=None).save(tmp_path / "b.npz")
        with np.load(tmp_path / "b.npz") as file:
            assert sorted(file.files) == ["flow", "valid"]

    def test_depth_goes_to_a_png_in_a_unit(self, tmp_path: Path) -> None:
        depth = np.linspace(1, 50, H * W, dtype=np.float32).reshape(H, W, 1)
        found = result(1, flow=depth)
        found.save(tmp_path / "new" / "a.png", unit="mm")
        np.testing.assert_allclose(fi.read_flow(tmp_path / "new" / "a.png", unit="mm")[0], depth, atol=1e-3)
        with pytest.raises(fi.InputError, match="unit"):
            found.save(tmp_path / "other" / "a.png")
        assert not (tmp_path / "other").exists()

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("no/a.jpg", "for a picture call write_image"),
            ("no/a.txt", "must end in one of"),
            ("no/a.png", "must have 1 or 2"),
        ],
    )
    def test_what_cannot_be_saved_makes_no_folder(self, tmp_path: Path, name: str, message: str) -> None:
        with pytest.raises(fi.InputError, match=message):
            result(5).save(tmp_path / name)
        assert list(tmp_path.iterdir()) == []


class TestTrusted:
    def test_vectors_with_larger_errors_are_unknown(self) -> None:
        found = result()
        kept = np.isfinite(found.trusted(1.0)).all(axis=2)
        assert np.array_equal(kept, found.expected_error <= 1)
        assert np.array_equal(found.trusted(1.0)[kept], found.flow[kept])
        assert np.isfinite(found.trusted(np.inf)).all()

    def test_infinite_errors_are_never_trusted(self) -> None:
        assert np.isnan(result(expected_error=np.full((H, W), np.inf, np.float32)).trusted(1e9)).all()

    @pytest.mark.parametrize("bad", [-1, float("nan"), "1", True, None])
    def test_bad_limits(self, bad: Any) -> None:
        with pytest.raises(fi.InputError, match="max_error must be a number of at least 0"):
            result().trusted(bad)

    def test_a_method_without_errors(self) -> None:
        with pytest.raises(fi.InputError, match="trusted needs expected errors, which neuroexplicit does not predict"):
            result(expected_error=None).trusted(1)

    def test_it_is_of_the_callers_type(self) -> None:
        image, flow, mask = random_field(24, 30)
        given = torch.from_numpy(np.where(mask[..., None], flow, np.nan)).permute(2, 0, 1)
        found = fi.inpaint(image, given, device="cpu")
        kept = found.trusted(0.0)
        assert isinstance(kept, torch.Tensor)
        assert torch.equal(kept.isfinite().all(0), torch.from_numpy(mask))


def test_to_torch_is_a_batch_of_one() -> None:
    found = result(3)
    tensor = found.to_torch()
    assert tensor.shape == (1, 3, H, W)
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor[0].permute(1, 2, 0), torch.from_numpy(found.flow))
    tensor.zero_()
    assert found.flow.any()
    with pytest.raises(fi.InputError, match="device must be"):
        found.to_torch("nowhere")


def test_results_can_be_pickled() -> None:
    found = replace(result(), restore=partial(shifted, by=1.0))
    back = pickle.loads(pickle.dumps(found))
    assert np.array_equal(back.trusted(9), found.flow + 1)
    image, flow, mask = random_field(24, 30)
    own = fi.inpaint(image, torch.from_numpy(flow), torch.from_numpy(mask), device="cpu")
    assert torch.equal(pickle.loads(pickle.dumps(own)).trusted(np.inf), own.flow)
