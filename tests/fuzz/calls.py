"""Random calls of `inpaint`: arrays of any type, layout and content, and any parameters of a method.

A call ends in an InputError, or in a result that keeps the guarantees: it has the shape and type of the field, is
finite, and known vectors are unchanged.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

import flowinpaint as fi

Array = npt.NDArray[Any]

METHODS = tuple(name for name in fi.methods() if name != "pd")  # which has no weights until it is trained
LARGEST = 24
UNKNOWN = 1e9
"""Vectors above it mean unknown."""

_sides = st.one_of(st.integers(1, 4), st.integers(1, LARGEST))
_numbers = st.sampled_from([0.0, -1.0, 1.0, 1e-30, 1e8, -1e8, 1e9, 1e30, np.nan, np.inf, -np.inf])
_layouts = ("plain", "columns first", "reversed", "every second", "read-only", "big-endian", "a view of a row")
_kinds = ("numpy", "masked", "tensor", "list")
_parameters: dict[str, st.SearchStrategy[Any]] = {
    name: st.one_of(good, st.sampled_from([0, -1, 1e9, "x", None, True, 2.5, np.nan, np.inf, 10**30]))
    for name, good in {
        "lam": st.sampled_from([1e-4, 1e-2, 1.0]),
        "alpha": st.sampled_from([0.0, 0.2, 0.45]),
        "scales": st.integers(1, 4),
        "k": st.integers(4, 64),
        "seed": st.integers(0, 9),
        "tolerance": st.sampled_from([1e-2, 1e-4]),
        "max_iterations": st.integers(1, 30),
        "sigma": st.sampled_from([0.05, 1.0]),
        "epsilon": st.sampled_from([0.001, 0.1]),
        "solver": st.sampled_from(["multigrid", "fsi"]),
        "unknown": st.integers(0, 1),
    }.items()
}
_options: dict[str, st.SearchStrategy[Any]] = {
    "robust": st.sampled_from([True, False, None, 1]),
    "noise": st.sampled_from([0.5, 0, -1.0, np.nan, np.inf, "x"]),
    "confidence": st.sampled_from([0.5, 0.0, 1, 2.0, np.nan]),
    "max_gap": st.sampled_from([0.0, 1.0, 3.5, -1, np.nan, np.inf, None]),
    "space": st.sampled_from(["linear", "inverse", "log", "x", 3]),
    "bounds": st.sampled_from([None, (0, None), (None, 1.0), (2, 1), (np.nan, 1), 5, ("a", "b")]),
    "device": st.sampled_from(["cpu", "auto", "mars", 3]),
}


class Call(NamedTuple):
    """The arguments of a call, and the field and mask as plain arrays."""

    arguments: dict[str, Any]
    field: Array
    known: npt.NDArray[np.bool_]


def _laid_out(array: Array, layout: str) -> Array:
    """The same values in another memory layout."""
    if layout == "columns first":
        return np.asfortranarray(array)
    if layout == "reversed":
        return array[::-1, ::-1].copy()[::-1, ::-1]
    if layout == "every second":
        return np.repeat(np.repeat(array, 2, 0), 2, 1)[::2, ::2]
    if layout == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "a view of a row":
        return np.asarray(np.stack([array, array])[1][..., ::-1][..., ::-1])
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array


def _as_kind(array: Array, kind: str) -> Any:
    if kind == "masked":
        return np.ma.masked_array(array)
    if kind == "tensor" and all(s >= 0 for s in array.strides) and array.dtype.isnative:
        return torch.from_numpy(array.copy())
    return array.tolist() if kind == "list" else array


@st.composite
def _call(draw: st.DrawFn) -> Call:
    H, W, C = draw(_sides), draw(_sides), draw(st.sampled_from([1, 2, 2, 3, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    method = draw(st.sampled_from(METHODS))
    field = rng.normal(0, draw(st.sampled_from([0.0, 1.0, 1e4, 1e-6])), (H, W, C)) + draw(st.sampled_from([0.0, 5.0]))
    field = field.astype(draw(st.sampled_from([np.float32, np.float32, np.float64, np.float16])))
    known = rng.random((H, W)) < draw(st.sampled_from([0.05, 0.3, 0.9]))
    odd = rng.random((H, W)) < draw(st.sampled_from([0.0, 0.0, 0.05]))
    with warnings.catch_warnings(action="ignore"):  # 1e30 in float16
        field[odd] = draw(_numbers)
    as_mask = draw(st.booleans())
    if not as_mask:
        field[~known] = np.nan
    channels = draw(st.sampled_from([(), (1,), (3,), (4,)]))
    image: Any = rng.integers(0, 256, (H, W, *channels)).astype(np.uint8)
    if draw(st.booleans()):
        image = (image / 255).astype(draw(st.sampled_from([np.float32, np.float64])))
    layout, kind = st.sampled_from(_layouts), st.sampled_from(_kinds)
    # A tensor has its channels first; `inpaint` takes either all as tensors or none.
    chosen = draw(st.one_of(st.just("numpy"), kind))
    given_field = _as_kind(_laid_out(field, draw(layout)), "numpy" if chosen == "tensor" else chosen)
    picture: Any = _laid_out(image, draw(layout))
    if chosen == "tensor":
        given_field = torch.from_numpy(np.moveaxis(field, -1, 0).copy())
        if C == H == W:  # could be (H, W, C)
            given_field = given_field[None]
        picture = torch.from_numpy((np.moveaxis(image, -1, 0)[None] if image.ndim == 3 else image).copy())
    arguments: dict[str, Any] = {"image": picture, "flow": given_field, "method": method, "device": "cpu"}
    if as_mask:
        arguments["mask"] = torch.from_numpy(known) if chosen == "tensor" else _laid_out(known, draw(layout))
    for extra, most in ((_options, 2), (_parameters, 2)):
        for name in draw(st.lists(st.sampled_from(list(extra)), max_size=most, unique=True)):
            if draw(st.booleans()):
                arguments[name] = draw(extra[name])
    finite = np.asarray((np.isfinite(field) & (np.abs(field.astype(np.float64)) <= UNKNOWN)).all(-1))
    return Call(arguments, field, known & finite if as_mask else finite)


def check(call: Call) -> bool:
    """Make a call and check what it returns; whether it was accepted."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        before = {k: v.copy() for k, v in call.arguments.items() if isinstance(v, np.ndarray)}
        try:
            result = fi.inpaint(**call.arguments)
        except fi.InputError as error:
            assert str(error).strip(), "an error must have a message"
            return False
    for warning in warned:
        assert issubclass(warning.category, UserWarning), f"{warning.category.__name__}: {warning.message}"
    for name, array in before.items():
        assert array.tobytes() == call.arguments[name].tobytes(), f"{name} must not be changed"
    given_field = call.arguments["flow"]
    assert type(result.flow) is (torch.Tensor if isinstance(given_field, torch.Tensor) else np.ndarray)
    flow = np.asarray(result.flow)
    H, W, C = call.field.shape
    flow = np.moveaxis(flow.reshape(C, H, W), 0, -1) if isinstance(given_field, torch.Tensor) else flow
    flow = flow.reshape(H, W, C)
    assert flow.dtype == np.float32
    if call.arguments.get("max_gap") is None:
        assert np.isfinite(flow).all(), "the result must be finite"
    hints = [call.arguments.get(name) for name in ("robust", "noise", "confidence")]
    if not any(hint is not None and hint is not False for hint in hints):
        wanted = call.field.astype(np.float32)[call.known]
        assert np.array_equal(flow[call.known], wanted), "known vectors must be unchanged"
    return True


class Checked(NamedTuple):
    """Calls, those refused, and a line for each kind of finding."""

    made: int
    refused: int
    faults: list[str]


def check_calls(count: int, seconds: float | None, seed: int) -> Checked:
    """Check `count` random calls, or as many as fit into some seconds; a finding ends it, after it was made small."""
    end = time.monotonic() + (seconds or 0)
    done = [0, 0]

    def check_one(call: Call) -> None:
        if seconds is None or time.monotonic() < end:
            done[0] += 1
            done[1] += not check(call)

    limits = settings(
        max_examples=count if seconds is None else 10**6,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    if not (count or seconds):
        return Checked(0, 0, [])
    try:
        seeded(seed)(limits(given(_call())(check_one)))()
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return Checked(done[0], done[1], [f"inpaint: {type(error).__name__}: {error} {notes}"])
    return Checked(done[0], done[1], [])


calls = _call
