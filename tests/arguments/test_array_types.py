"""Arrays of every kind: what `inpaint` accepts, that the result comes back in kind, and what it warns of."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.arguments.arrays import Kind, adopt, image_of

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (9, 12, 3), dtype=np.uint8)
MASK = RNG.random((9, 12)) < 0.3
FLOW = np.where(MASK[..., None], RNG.normal(0, 3, (9, 12, 2)), np.nan).astype(np.float32)
DENSE = fi.inpaint(IMAGE, FLOW, method="laplace-beltrami").flow


def fill(image: Any = IMAGE, flow: Any = FLOW, mask: Any = None, **keywords: Any) -> Any:
    return fi.inpaint(image, flow, mask, "laplace-beltrami", "cpu", **keywords)


def first(x: Any) -> Any:
    return np.moveaxis(x, -1, 0)


TENSORS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "H, W, C": (lambda x: x, (9, 12, 2), (9, 12)),
    "C, H, W": (first, (2, 9, 12), (1, 9, 12)),
    "1, C, H, W": (lambda x: first(x)[None], (1, 2, 9, 12), (1, 1, 9, 12)),
}


@pytest.mark.parametrize("layout", TENSORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_come_back_as_tensors_of_the_same_layout(layout: str, dtype: torch.dtype) -> None:
    move, shape, of_map = TENSORS[layout]
    image = torch.from_numpy(np.ascontiguousarray(move(IMAGE)))
    result = fill(image, torch.from_numpy(np.ascontiguousarray(move(FLOW))).to(dtype), robust=True)
    assert result.flow.shape == shape
    assert result.flow.dtype == torch.float32
    assert result.flow.device.type == "cpu"
    assert result.expected_error.shape == result.inliers.shape == result.confidence.shape == of_map
    plain = fill(image, torch.from_numpy(np.ascontiguousarray(move(FLOW))))
    np.testing.assert_array_equal(plain.flow.numpy(), move(DENSE))


def test_tensors_of_half_precision_and_with_gradients() -> None:
    flow = torch.from_numpy(FLOW)
    halves = fill(IMAGE, flow.bfloat16()).flow.numpy()[MASK]
    np.testing.assert_array_equal(halves, flow.bfloat16().float().numpy()[MASK])
    with pytest.warns(UserWarning, match="flow requires gradients, but inpaint returns none"):
        fill(IMAGE, flow.requires_grad_())


def test_a_batch_points_to_the_module() -> None:
    with pytest.raises(ValueError, match=r"flow must be one field, got a batch of shape \(2, 2, 9, 12\).*load_model"):
        fill(IMAGE, torch.zeros(2, 2, 9, 12))


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_masked_values_are_unknown(dtype: Any) -> None:
    values = np.nan_to_num(FLOW).astype(dtype)
    field = np.ma.MaskedArray(values, np.broadcast_to(~MASK[..., None], FLOW.shape), fill_value=-99)
    expected = fill(IMAGE, np.where(MASK[..., None], values, np.nan).astype(np.float32))
    np.testing.assert_array_equal(fill(IMAGE, field).flow, expected.flow)


def test_the_masked_part_of_an_image_is_not_used() -> None:
    where = np.ones((9, 12), bool)
    where[2:5, 3:7] = False
    image = np.ma.MaskedArray(IMAGE, np.broadcast_to(~where[..., None], IMAGE.shape))
    np.testing.assert_array_equal(fill(image).flow, fill(image_where=where).flow)
    assert (fill(image).flow != DENSE).any()


def test_pil_images_of_every_mode() -> None:
    pil: Any = pytest.importorskip("PIL.Image")
    picture = pil.fromarray(IMAGE)
    np.testing.assert_array_equal(fill(picture).flow, DENSE)
    np.testing.assert_array_equal(fill(picture.convert("RGBA")).flow, DENSE)
    grey = fill(picture.convert("L")).flow
    np.testing.assert_array_equal(fill(picture.convert("LA")).flow, grey)
    assert np.isfinite(fill(picture.convert("P")).flow).all()
    assert np.isfinite(fill(picture.convert("1")).flow).all()
    deep = pil.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * np.uint16(257))
    np.testing.assert_allclose(fill(deep).flow, grey, atol=1e-5)


def test_data_arrays_keep_dimensions_and_coordinates() -> None:
    xarray = pytest.importorskip("xarray")
    axes = {"y": np.arange(9) * 10.0, "x": np.arange(12) * 10.0}
    layouts: dict[tuple[str, ...], Callable[[Any], Any]] = {("y", "x", "c"): lambda x: x, ("c", "y", "x"): first}
    for dims, move in layouts.items():
        field = xarray.DataArray(move(FLOW), dims=dims, coords=axes, attrs={"units": "px"}, name="flow")
        result = fill(IMAGE, field, robust=True)
        assert result.flow.dims == dims
        assert result.flow.attrs == {"units": "px"}
        assert result.expected_error.dims == ("y", "x")
        np.testing.assert_array_equal(result.expected_error.x, axes["x"])
        np.testing.assert_array_equal(fill(IMAGE, field).flow.data, move(DENSE))
    depth = xarray.DataArray(np.abs(FLOW[..., 0]), dims=("y", "x"), coords=axes)
    turned = xarray.DataArray(IMAGE, dims=("y", "x", "band"), coords=axes).transpose("band", "x", "y")
    np.testing.assert_array_equal(fill(turned, depth).flow.data, fill(IMAGE, np.abs(FLOW[..., 0])).flow)


def test_lists_fields_without_channels_and_alpha() -> None:
    np.testing.assert_allclose(fill(IMAGE.tolist(), FLOW.tolist()).flow, DENSE)
    entries = [
        [x if known else None for x, known in zip(*row, strict=True)] for row in zip(FLOW[..., 0], MASK, strict=True)
    ]
    np.testing.assert_allclose(fill(IMAGE, entries).flow, DENSE[..., 0])  # None means unknown
    assert fill(IMAGE, FLOW[..., 0]).flow.shape == (9, 12)
    np.testing.assert_array_equal(fill(np.dstack([IMAGE, IMAGE[..., :1]])).flow, DENSE)
    filled = np.where(MASK[..., None], FLOW, 0)
    np.testing.assert_array_equal(fill(IMAGE, filled, MASK[..., None]).flow, DENSE)
    np.testing.assert_array_equal(fill(IMAGE, filled, MASK.tolist()).flow, DENSE)


@pytest.mark.parametrize("value", [1e10, -2e9, np.inf])
def test_huge_values_mean_unknown_and_are_refused_where_the_mask_says_known(value: float) -> None:
    field = np.where(MASK[..., None], FLOW, np.float32(value))
    np.testing.assert_array_equal(fill(IMAGE, field).flow, DENSE)
    with pytest.raises(ValueError, match=r"flow must be finite and at most 1e9 where known, got .* pass ~mask"):
        fill(IMAGE, field, ~MASK)


@pytest.mark.parametrize(
    ("flow", "match"),
    [
        (np.zeros((500, 2)), r"got an array of shape \(500, 2\); for a list of points use fi.inpaint_points"),
        (np.zeros((9, 12, 2), np.int16), r"flow must have a floating type.*got int16; pass flow.astype"),
        (np.zeros((9, 12, 2), complex), r"flow must have a floating type.*got complex128; pass np.stack"),
        ("flow.flo", r"flow must be an array \(H, W, C\), got str; read a file with fi.read_flow"),
        ([[1.0], [2.0, 3.0]], "flow must be an array of numbers .*ragged"),
        (np.zeros((4, 9, 12, 2)), r"flow must have a non-empty shape \(H, W, C\) or \(H, W\), got"),
    ],
)
def test_wrong_fields_are_errors_that_say_what_to_do(flow: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fill(IMAGE, flow)


def test_suspicious_fields_are_warned_of() -> None:
    dense = np.nan_to_num(FLOW, nan=1.0)
    with pytest.warns(UserWarning, match="^flow: every vector is known, so there is nothing to fill"):
        fill(IMAGE, dense)
    fill(IMAGE, dense, robust=True)  # a dense field of unknown quality is fine
    zeros = np.where(MASK[..., None], FLOW, np.float32(0))
    with pytest.warns(UserWarning, match=r"^flow: \d+ % of the known vectors are exactly zero; if zero means unknown"):
        fill(IMAGE, zeros)
    with pytest.warns(UserWarning, match="^mask looks inverted: 100 % of the known vectors are exactly zero"):
        fill(IMAGE, zeros, ~MASK)
    with pytest.warns(UserWarning, match="^image: the largest uint8 value is 1, so the image is nearly black"):
        fill((IMAGE > 99).astype(np.uint8), FLOW)


def test_a_kind_can_be_pickled() -> None:
    kind = pickle.loads(pickle.dumps(adopt(IMAGE, torch.from_numpy(first(FLOW).copy()), None, None).kind))
    assert kind == Kind("CHW", torch.device("cpu"))
    assert kind(DENSE).shape == (2, 9, 12)


def test_tensors_may_go_to_metrics_pictures_and_files(tmp_path: Any) -> None:
    tensor = torch.from_numpy(first(DENSE).copy())
    truth = DENSE + np.float32(0.5)
    moved = torch.from_numpy(first(truth).copy())
    assert fi.epe(tensor, moved) == fi.epe(DENSE, truth) == fi.epe(tensor, truth)
    assert fi.epe(tensor[None], moved[None], valid=torch.from_numpy(MASK)[None]) == fi.epe(DENSE, truth, MASK)
    np.testing.assert_array_equal(fi.flow_to_rgb(tensor), fi.flow_to_rgb(DENSE))
    np.testing.assert_array_equal(fi.error_map(tensor[:1]), fi.error_map(DENSE[..., 0]))
    fi.write_flow(tmp_path / "a.flo", tensor)
    np.testing.assert_array_equal(fi.read_flow(tmp_path / "a.flo")[0], DENSE)
    fi.write_flow(tmp_path / "a.pfm", DENSE[..., 0])
    np.testing.assert_array_equal(fi.read_flow(tmp_path / "a.pfm")[0][..., 0], DENSE[..., 0])


def test_data_arrays_of_other_coordinates_are_refused_and_maps_have_no_name() -> None:
    xarray = pytest.importorskip("xarray")
    depth = xarray.DataArray(np.abs(FLOW[..., 0]), dims=("y", "x"), coords={"y": range(9)}, name="depth")
    depth.attrs["units"] = "m"
    image = xarray.DataArray(IMAGE, dims=("y", "x", "band"), coords={"y": range(9)})
    result = fill(image, depth, robust=True)
    assert (result.flow.name, result.expected_error.name, result.confidence.attrs) == ("depth", None, {})
    with pytest.raises(ValueError, match="image must have the coordinates of flow along 'y', got others"):
        fill(image.isel(y=slice(None, None, -1)), depth)


@pytest.mark.parametrize("W", [1, 3, 4, 9])
def test_an_image_with_a_batch_axis_has_its_channels_first(W: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 5, W), np.uint8)
    picture, _ = image_of(torch.from_numpy(image)[None])
    np.testing.assert_array_equal(picture, np.moveaxis(image, 0, -1))
