"""Strides, alignment and byte order of arrays: results are those of contiguous native copies, bit for bit."""

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flowinpaint as fi
from flowinpaint.depth.complete import depth_image, depth_points
from flowinpaint.masks import corner_mask, mixed_mask, occlusion_mask
from flowinpaint.metrics import errors_over

Array = npt.NDArray[Any]


def reversed_along(*axes: int) -> Callable[[Array], Array]:
    """Negative strides along these axes."""

    def layout(x: Array) -> Array:
        steps = tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(x.ndim))
        return x[steps].copy()[steps]

    return layout


def every_second(x: Array) -> Array:
    wide = np.zeros([2 * n for n in x.shape], x.dtype)
    wide[(slice(None, None, 2),) * x.ndim] = x
    return wide[(slice(None, None, 2),) * x.ndim]


def read_only(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x: Array) -> Array:
    view: Array = np.ndarray(x.shape, x.dtype, bytearray(x.nbytes + 1), 1)
    view[...] = x
    return view


def foreign(x: Array) -> Array:
    """In the other byte order."""
    return x.astype(x.dtype.newbyteorder("S"))


def broadcast(x: Array) -> Array:
    """A stride of 0 along rows that are all equal."""
    return np.broadcast_to(x[:1], x.shape) if (x == x[:1]).all() else x


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "contiguous": np.ascontiguousarray,
    "rows reversed": reversed_along(0),
    "columns reversed": reversed_along(1),
    "channels reversed": reversed_along(2),
    "all reversed": reversed_along(0, 1, 2),
    "Fortran order": np.asfortranarray,
    "every second": every_second,
    "broadcast": broadcast,
    "read-only": read_only,
    "unaligned": unaligned,
    "other byte order": foreign,
    "other byte order, reversed": lambda x: reversed_along(0, 2)(foreign(x)),
}


def arguments(H: int, W: int, C: int, grey: bool, deep: bool, seed: int) -> dict[str, Array]:
    """Arrays for all of CALLS; maps are constant along columns, so that they can be broadcast."""
    rng = np.random.default_rng(seed)
    kind = np.uint16 if deep else np.uint8
    known = np.broadcast_to(rng.random((1, W)) < 0.6, (H, W)).copy()
    known[:, 0], known[:, -1] = True, W == 1
    places = rng.uniform(0, 1, (12, 2)) * (W - 1, H - 1)
    return {
        "image": rng.integers(0, np.iinfo(kind).max, (H, W, 1 if grey else 3), kind, endpoint=True),
        "picture": rng.integers(0, 256, (H, W, 3), np.uint8),
        "flow": rng.normal(3, 1, (H, W, C)).astype(np.float32),
        "truth": rng.normal(3, 1, (H, W, C)),
        "mask": known,
        "scale": np.broadcast_to(rng.uniform(0.1, 0.9, (1, W)), (H, W)).copy(),
        "points": places,
        "values": rng.normal(size=(12, C)),
        "depth": rng.uniform(1, 9, 12),
        "cloud": rng.normal(size=(9, 3)) + np.array([0, 0, 5]),
        "camera": np.array([[W, 0, W / 2, 0], [0, H, H / 2, 0], [0, 0, 1, 0]]),
    }


def fill(a: dict[str, Array]) -> Any:
    judged = fi.inpaint(
        a["image"],
        a["flow"],
        a["mask"],
        "harmonic",
        "cpu",
        noise=a["scale"],
        confidence=a["scale"],
        fill_where=a["mask"],
        image_where=a["mask"],
    )
    exact = fi.inpaint(a["image"], a["flow"], a["mask"], "neuroexplicit" if a["flow"].shape[2] == 2 else "eed", "cpu")
    return judged.flow, judged.inliers, exact.flow, exact.to_torch()


def fill_by_own(a: dict[str, Array]) -> Any:
    return fi.inpaint(a["image"], a["flow"], a["mask"], fi.numpy_method(lambda *_: a["truth"]), "cpu").flow


def fill_points(a: dict[str, Array]) -> Any:
    noise = np.abs(a["values"][:, 0]) + 1
    result = fi.inpaint_points(
        a["image"], a["points"], a["values"], "harmonic", "cpu", robust=False, noise=noise, confidence=1 / noise
    )
    return result.flow, result.points


def fill_depth(a: dict[str, Array]) -> Any:
    result = fi.complete_depth(a["image"], a["points"], a["depth"], "harmonic", "cpu", noise=a["depth"])
    return result.flow, result.points


def written(write: Callable[[Path], None], suffix: str) -> Any:
    with TemporaryDirectory() as folder:
        write(Path(folder, f"a{suffix}"))
        return Path(folder, f"a{suffix}").read_bytes()


CALLS: dict[str, Callable[[dict[str, Array]], Any]] = {
    "inpaint": fill,
    "numpy_method": fill_by_own,
    "inpaint_points": fill_points,
    "complete_depth": fill_depth,
    "write_flow": lambda a: [
        written(lambda path: fi.write_flow(path, a["flow"], a["mask"]), suffix)
        for suffix in (".npy", ".npz", *((".pfm", ".tif") if a["flow"].shape[2] == 1 else ()))
    ],
    "write_image": lambda a: written(lambda path: fi.write_image(path, a["picture"]), ".png"),
    "write_mask": lambda a: written(lambda path: fi.write_mask(path, a["mask"]), ".png"),
    "flow_to_rgb": lambda a: fi.flow_to_rgb(a["flow"]),
    "error_map": lambda a: fi.error_map(a["scale"]),
    "preview": lambda a: fi.preview(
        a["image"], a["flow"], a["mask"], {"x": a["truth"]}, a["truth"], {"x": a["scale"]}, a["scale"]
    ),
    "epe": lambda a: (fi.epe(a["flow"], a["truth"], a["mask"]), errors_over(a["flow"], a["truth"], 1.0)),
    "fl_outliers": lambda a: fi.fl_outliers(a["flow"], a["truth"], a["mask"]),
    "random_mask": lambda a: fi.random_mask(a["mask"].shape, 0.01, valid=a["mask"]),
    "other masks": lambda a: (
        occlusion_mask(a["flow"], valid=a["mask"]),
        min(a["mask"].shape) > 1 and (corner_mask(a["image"], 0.1), mixed_mask(a["image"], a["flow"], valid=a["mask"])),
    ),
    "visible_points": lambda a: fi.visible_points(a["points"], a["depth"]),
    "project": lambda a: fi.project(a["cloud"], a["camera"], a["mask"].shape),
    "depth_points": lambda a: depth_points(a["flow"][..., :1], a["mask"]),
    "depth_image": lambda a: depth_image(a["points"], a["depth"], a["mask"].shape),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        a, b = a.numpy(), b.numpy()
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, fi.PointResults):
        a, b = astuple(a), astuple(b)
    if isinstance(a, list | tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.filterwarnings("ignore")  # of nonsense vectors
@settings(max_examples=40)
@given(
    call=st.sampled_from(list(CALLS)),
    layouts=st.lists(st.sampled_from(list(LAYOUTS)), min_size=10, max_size=10),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)),
    grey=st.booleans(),
    deep=st.booleans(),
    seed=st.integers(0, 99),
)
def test_results_do_not_depend_on_the_memory_layout(
    call: str, layouts: list[str], size: tuple[int, int, int], grey: bool, deep: bool, seed: int
) -> None:
    arrays = arguments(*size, grey, deep, seed)
    varied = {name: LAYOUTS[layouts[i % 10]](x) for i, (name, x) in enumerate(arrays.items())}
    assert same(CALLS[call](varied), CALLS[call](arrays))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["all reversed", "other byte order", "broadcast"])
@pytest.mark.parametrize("size", [(4, 5, 1), (1, 5, 2), (5, 1, 1)])
def test_axes_of_length_one_may_have_negative_strides_and_arrays_the_other_byte_order(
    layout: str, size: tuple[int, int, int]
) -> None:
    arrays = arguments(*size, grey=True, deep=True, seed=0)
    varied = {name: LAYOUTS[layout](x) for name, x in arrays.items()}
    for name in ("inpaint", "inpaint_points", "complete_depth", "preview"):
        assert same(CALLS[name](varied), CALLS[name](arrays)), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [np.float16, np.longdouble])
def test_half_and_extended_precision_are_computed_in_single(kind: type) -> None:
    a = arguments(4, 5, 1, grey=False, deep=False, seed=0)
    flow: Array = a["flow"].astype(kind)
    image: Array = (a["image"] / 255).astype(kind)
    flow[1, 1] = np.nan
    result = fi.inpaint(image, flow, method="harmonic", device="cpu").flow
    single = fi.inpaint(image.astype(np.float32), flow.astype(np.float32), method="harmonic", device="cpu").flow
    assert result.dtype == np.float32
    assert same(result, single)
