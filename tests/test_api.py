import os
import socket
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.methods import neural
from flowinpaint.methods.builtin import BUILTIN
from flowinpaint.networks.network import Network
from flowinpaint.networks.weights import read_model
from helpers import FLOW_AWARE

METHODS = pytest.mark.parametrize(
    "method", [name for name, m in BUILTIN.items() if not m.is_network and m.extra != "peers"]
)


def problem(H: int = 12, W: int = 17, C: int = 2, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    mask = rng.random((H, W)) < 0.2
    mask[H // 2, W // 2] = True
    # Strong noise would cut pixels off from each other, which takes eed many steps to settle.
    image = rng.integers(120, 130, (H, W, 3), dtype=np.uint8)
    # A ramp and a little noise: amle goes round in circles on a field that jumps from pixel to pixel.
    y, x = np.mgrid[:H, :W][..., None] / max(H, W)
    flow = rng.normal(0, 10, C) + rng.normal(0, 10, C) * x + rng.normal(0, 10, C) * y + rng.normal(0, 0.1, (H, W, C))
    return image, flow.astype(np.float32), mask


@METHODS
def test_result_has_the_promised_form(method: str) -> None:
    image, flow, mask = problem()
    result = fi.inpaint(image, flow, mask, method=method)
    assert result.flow.shape == flow.shape
    assert result.flow.dtype == np.float32
    assert np.isfinite(result.flow).all()
    assert result.flow[mask].tobytes() == flow[mask].tobytes()
    assert result.confidence is None
    assert result.expected_error is None
    assert result.info["method"] == method
    assert result.info["status"] in ("converged", "complete")
    assert result.info["seconds"] > 0
    assert set(result.info) == {"method", "device", "seconds", "iterations", "residual", "status", "noise"}
    assert result.info["noise"] is None
    assert result.inliers is None


@pytest.mark.filterwarnings("ignore:amle got no further", "ignore:amle stopped")
@METHODS
@given(H=st.integers(1, 20), W=st.integers(1, 20), C=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_any_size_and_channel_count(method: str, H: int, W: int, C: int, seed: int) -> None:
    image, flow, mask = problem(H, W, C, seed)
    with warnings.catch_warnings(action="ignore"):  # tiny fields may be known everywhere
        result = fi.inpaint(image, flow, mask, method=method)
    assert result.flow.shape == (H, W, C)
    assert np.isfinite(result.flow).all()
    assert result.flow[mask].tobytes() == flow[mask].tobytes()


@METHODS
def test_without_a_mask_finite_vectors_are_known(method: str) -> None:
    image, flow, mask = problem()
    sparse = flow.copy()
    sparse[~mask] = np.nan
    sparse[0, 0] = (np.inf, 1.0)
    mask[0, 0] = False
    expected = fi.inpaint(image, flow, mask, method=method).flow
    assert np.array_equal(fi.inpaint(image, sparse, method=method).flow, expected)


@METHODS
def test_inputs_are_left_alone(method: str) -> None:
    inputs = problem()
    copies = [x.copy() for x in inputs]
    for x in inputs:
        x.flags.writeable = False
    fi.inpaint(*inputs, method=method)
    assert all(np.array_equal(x, y) for x, y in zip(inputs, copies, strict=True))


def test_the_same_picture_in_every_accepted_type_gives_the_same_result() -> None:
    image, flow, mask = problem()
    expected = fi.inpaint(image, flow, mask, method="eed").flow
    same = [
        image.astype(np.uint16) * 257,
        image / 255,
        (image / 255).astype(np.float32),
        np.asfortranarray(image),
        np.repeat(image, 2, axis=1)[:, ::2],
    ]
    for variant in same:
        np.testing.assert_allclose(fi.inpaint(variant, flow, mask, method="eed").flow, expected, atol=1e-3)


def test_grey_is_the_same_as_three_equal_channels() -> None:
    image, flow, mask = problem()
    grey = image[..., 0]
    expected = fi.inpaint(np.repeat(grey[..., None], 3, 2), flow, mask, method="eed").flow
    assert np.array_equal(fi.inpaint(grey, flow, mask, method="eed").flow, expected)
    assert np.array_equal(fi.inpaint(grey[..., None], flow, mask, method="eed").flow, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floating_types_are_rounded_to_float32_once(dtype: type) -> None:
    image, flow, mask = problem()
    given_flow = flow.astype(dtype)
    result = fi.inpaint(image, given_flow, mask, method="harmonic").flow
    assert result.dtype == np.float32
    assert result[mask].tobytes() == given_flow[mask].astype(np.float32).tobytes()


def test_non_contiguous_fields_and_masks() -> None:
    image, flow, mask = problem(16, 20)
    expected = fi.inpaint(image[::2, ::-1], flow[::2, ::-1].copy(), mask[::2, ::-1].copy(), method="eed").flow
    assert np.array_equal(fi.inpaint(image[::2, ::-1], flow[::2, ::-1], mask[::2, ::-1], method="eed").flow, expected)


@METHODS
def test_one_known_and_all_known(method: str) -> None:
    image, flow, mask = problem()
    one = np.zeros_like(mask)
    one[3, 4] = True
    np.testing.assert_allclose(
        fi.inpaint(image, flow, one, method=method).flow, np.broadcast_to(flow[3, 4], flow.shape), atol=1e-5
    )
    with pytest.warns(UserWarning, match="mask: every vector is known, so there is nothing to fill"):
        everything = fi.inpaint(image, flow, np.ones_like(mask), method=method).flow
    assert everything.tobytes() == flow.tobytes()


BAD: dict[str, tuple[str, Any]] = {
    "flow 4-D": ("flow", lambda i, f, m: (i, f[None], m)),
    "flow without channels": ("flow", lambda i, f, m: (i, f[..., :0], m)),
    "flow empty": ("flow", lambda i, f, m: (i[:0], f[:0], m[:0])),
    "flow integer": ("flow", lambda i, f, m: (i, f.astype(int), m)),
    "flow complex": ("flow", lambda i, f, m: (i, f.astype(complex), m)),
    "flow NaN where known": ("flow", lambda i, f, m: (i, np.where(m[..., None], np.nan, f), m)),
    "flow beyond float32": ("flow", lambda i, f, m: (i, f.astype(float) * 1e40, m)),
    "flow all NaN": ("flow", lambda i, f, m: (i, f * np.nan, None)),
    "mask integer": ("mask", lambda i, f, m: (i, f, m.astype(np.uint8))),
    "mask of another size": ("mask", lambda i, f, m: (i, f, m[1:])),
    "mask empty of pixels": ("mask", lambda i, f, m: (i, f, np.zeros_like(m))),
    "image of another size": ("image", lambda i, f, m: (i[:, 1:], f, m)),
    "image float 0..255": ("image", lambda i, f, m: (i.astype(float), f, m)),
    "image negative": ("image", lambda i, f, m: (i / 255 - 0.6, f, m)),
    "image NaN": ("image", lambda i, f, m: (i * np.nan, f, m)),
    "image int32": ("image", lambda i, f, m: (i.astype(np.int32), f, m)),
    "image 1-D": ("image", lambda i, f, m: (i.ravel(), f, m)),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_a_value_error_that_names_the_argument(case: str) -> None:
    argument, change = BAD[case]
    with pytest.raises(ValueError, match=rf"^{argument}\b.*(taken|needed|finite|must)"):
        image, flow, mask = change(*problem())
        fi.inpaint(image, flow, mask, method="nearest")


@pytest.mark.parametrize(
    ("keywords", "argument"),
    [
        ({"method": "magic"}, "method"),
        ({"method": "eed", "device": "abacus"}, "device"),
        ({"method": "eed", "device": 3.5}, "device"),
        ({"method": "eed", "device": "meta"}, "device"),
        ({"method": "eed", "device": "cuda:77"}, "device"),
        ({"method": "eed", "rho": 1e9}, "rho"),
        ({"method": "eed", "lam": 1e200}, "lam"),
        ({"method": ["eed"]}, "method"),
        ({"method": "eed", "lamda": 1.0}, "lamda"),
        ({"method": "eed", "lam": "small"}, "lam"),
        ({"method": "nearest", "lam": 1.0}, "lam"),
        ({"method": "nearest", "progress": 3}, "progress"),
    ],
)
def test_wrong_options_are_named(keywords: dict[str, Any], argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}\b.*must"):
        image, flow, mask = problem()
        fi.inpaint(image, flow, mask, **keywords)


def test_values_beyond_1e9_are_refused_where_known_and_numpys_numbers_are_numbers() -> None:
    image, flow, mask = problem()
    with pytest.raises(ValueError, match="flow must be finite and at most 1e9 where known, got"):
        fi.inpaint(image, flow * np.float32(1e12), mask)
    fi.inpaint(image, flow, mask, method="eed", max_iterations=np.int64(200), lam=np.float32(1e-4))


def test_parameters_reach_the_method() -> None:
    image, flow, mask = problem()
    usual = fi.inpaint(image, flow, mask, method="eed").flow
    assert not np.allclose(usual, fi.inpaint(image, flow, mask, method="eed", lam=10.0).flow, atol=0.1)


def test_a_field_that_has_not_converged_comes_with_a_warning() -> None:
    image, flow, mask = problem(40, 40)
    with pytest.warns(UserWarning, match="eed stopped after"):
        result = fi.inpaint(image, flow, mask, method="eed", max_iterations=1)
    assert result.info["status"] == "max_iterations"


def test_progress_is_reported() -> None:
    image, flow, mask = problem(40, 40)
    seen: list[fi.Progress] = []
    result = fi.inpaint(image, flow, mask, method="eed", progress=seen.append)
    assert seen[-1].iterations == result.info["iterations"]


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_default_method_is_the_flagship_and_needs_no_network_connection(
    monkeypatch: pytest.MonkeyPatch, channels: int
) -> None:
    monkeypatch.setattr(socket, "socket", None)
    image, flow, mask = problem(40, 51, channels)
    result = fi.inpaint(image, flow, mask)
    assert result.info["method"] == "neuroexplicit"
    assert result.flow.shape == flow.shape
    assert np.isfinite(result.flow).all()
    assert result.flow[mask].tobytes() == flow[mask].tobytes()
    assert result.confidence is not None
    assert result.expected_error is not None
    assert result.confidence.shape == result.expected_error.shape == mask.shape
    mean = np.broadcast_to(flow[mask].mean(0), flow.shape)
    assert fi.epe(result.flow, flow) < 0.2 * fi.epe(mean, flow)  # trained, and no noise of an untrained one


def test_the_flagship_takes_grey_as_three_equal_channels_and_follows_edges_that_smoothing_does_not() -> None:
    image, truth = sample_scene(96, 144, seed=0)
    mask = fi.random_mask((96, 144), 0.05, 0)
    grey = image.mean(-1).astype(np.uint8)
    filled = fi.inpaint(grey, truth, mask).flow
    assert np.array_equal(filled, fi.inpaint(np.repeat(grey[..., None], 3, 2), truth, mask).flow)
    assert np.array_equal(filled[mask], truth[mask])
    smooth = fi.epe(fi.inpaint(image, truth, mask, method="harmonic").flow, truth)
    assert fi.epe(filled, truth) < 0.8 * smooth
    assert fi.epe(fi.inpaint(image, truth, mask).flow, truth) < 0.5 * smooth


def test_weights_of_ones_own_fill_a_field(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(width=4)), path)
    image, flow, mask = problem()
    for method in (path, str(path)):
        result = fi.inpaint(image, flow, mask, method=method)
        assert result.flow[mask].tobytes() == flow[mask].tobytes()
        assert result.info["iterations"] == 95
    assert not fi.load_model(path, "cpu").training


def test_a_network_tells_how_far_off_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    torch.manual_seed(0)
    fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(**FLOW_AWARE | {"width": 4})), path)
    image, flow, mask = problem()
    result = fi.inpaint(image, flow, mask, method=path)
    assert result.confidence is not None
    assert result.expected_error is not None
    for told in (result.confidence, result.expected_error):
        assert told.shape == mask.shape
        assert told.dtype == np.float32
        assert np.isfinite(told).all()
    assert (result.confidence[mask] == 1).all()
    assert (result.expected_error[mask] == 0).all()
    assert (result.expected_error[~mask] > 0).all()
    order = np.argsort(result.expected_error[~mask])
    assert (np.diff(result.confidence[~mask][order]) <= 0).all()
    assert 0 <= result.confidence.min() < 1

    scaled = fi.inpaint(image, 8 * flow, mask, method=path)
    assert scaled.expected_error is not None
    np.testing.assert_allclose(scaled.expected_error, 8 * result.expected_error, rtol=1e-3)


def test_load_model_names_what_it_takes() -> None:
    with pytest.raises(ValueError, match=r"name_or_path must be .*neuroexplicit.*got 'eed'"):
        fi.load_model("eed")


def test_a_models_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []

    def read(path: Path) -> Network:
        reads.append(path)
        return read_model(path)

    monkeypatch.setattr(neural, "read_model", read)
    path, (image, flow, mask) = tmp_path / "mine.safetensors", problem()
    results = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        fi.save_model(fi.Neuroexplicit(fi.NeuroexplicitConfig(width=4)), path)
        os.utime(path, ns=(seed, seed))
        results += [fi.inpaint(image, flow, mask, method=path, device="cpu").flow for _ in range(2)]
    assert len(reads) == 2
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[1], results[2])


def test_eight_bits_in_sixteen_are_told() -> None:
    image, flow, mask = problem()
    with pytest.warns(UserWarning, match="image: the largest uint16 value is .*If it is 8-bit"):
        fi.inpaint(image.astype(np.uint16), flow, mask, method="nearest")
    fi.inpaint(np.zeros(mask.shape, np.uint16), flow, mask, method="nearest")  # nothing to tell of a black one
    for bits in (10, 12):
        deep = (image.astype(np.float64) * ((2**bits - 1) / 255)).astype(np.uint16)
        with pytest.warns(UserWarning, match=rf"If it is {bits}-bit, pass image / {2**bits - 1}\."):
            fi.inpaint(deep, flow, mask, method="nearest")


def test_a_flow_with_its_channels_first_is_named() -> None:
    image, flow, mask = problem(12, 17)
    with pytest.raises(fi.InputError, match=r"^flow must have .*, got \(2, 12, 17\); pass np\.moveaxis\(flow, 0, -1\)"):
        fi.inpaint(image, np.moveaxis(flow, -1, 0), mask)
