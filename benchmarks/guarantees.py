"""Guarantees of `fi.inpaint` on random calls: all methods and options, hostile values, tiny and thin fields.

    python benchmarks/guarantees.py [--count 5000] [--seed 0] [--only INDEX] [--methods eed,neuroexplicit]

Each call is checked: known vectors bit by bit, finite where filled and NaN elsewhere, shape, type and kind, inputs
unchanged, no foreign exception or warning, expected error, confidence, bounds, and the range of the known vectors. A
share of the calls is repeated, with another number of threads, or with the field times a power of two. Prints each
violation with its index, which `--only` repeats alone, then the counts, the largest differences and the times. Exits
with 1 if there was a violation.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import distance_transform_edt

import flowinpaint as fi

Array = npt.NDArray[Any]
WITHIN_RANGE = "laplace-beltrami", "harmonic", "nearest", "amle"
"""Methods whose results stay within the range of the known values, except for rounding."""
RANGE_TOLERANCE = 1e-6
NOT_SCALING = "amle", "flownets", "wgain", "opencv-edgeaware", "opencv-ric"
"""Methods whose parameters or weights have an absolute unit."""
JUDGING = "neuroexplicit", "neuroexplicit-paper", "eed", "laplace-beltrami", "harmonic"
NEED_NO_IMAGE = "harmonic", "nearest"
SHARES = {"neuroexplicit": 4.0, "flownets": 0.5, "wgain": 0.5}
"""Relative frequency of a method in the random calls; 1 for all others."""
THREADS = {**dict.fromkeys(("neuroexplicit", "neuroexplicit-paper", "flownets", "wgain"), 1e-4), "opencv-ric": np.inf}
"""Largest difference between numbers of threads, relative to the largest known value; 0 for the other methods.

PyTorch's convolutions add up in another order. OpenCV's RIC rarely differs from one call to the next, by anything.
"""
JUDGED_TOLERANCE = 1e-3
"""The same for judged results, and for their scaling by a power of two."""
UNKNOWN = np.nan, np.inf, -np.inf, 1e9, -2e9, 3e38, 1e-45, -0.0, 0.0, 7.0
SCALES = 1e-30, 1e-6, 1e-2, 1.0, 1.0, 1.0, 20.0, 500.0, 1e5, 1e8


@dataclass
class Call:
    """The arguments of a call as numpy arrays, and what its result must have."""

    image: Array | None
    flow: Array
    mask: Array | None
    known: npt.NDArray[np.bool_]
    method: str
    kind: str = "numpy"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether the vectors may change."""
        return bool(self.options.keys() & {"robust", "noise", "confidence", "second"})

    def run(self, factor: float = 1.0) -> fi.Result:
        """The result; factor: multiplies the field and everything in its unit."""
        options = dict(self.options)
        flow = self.flow if factor == 1 else np.where(self.known[..., None], self.flow * factor, self.flow)
        if factor != 1 and "noise" in options:
            options["noise"] = options["noise"] * factor
        if factor != 1 and "bounds" in options:
            options["bounds"] = tuple(None if x is None else x * factor for x in options["bounds"])
        image, mask = self.image, self.mask
        given: list[Any] = [image, flow.astype(self.flow.dtype, copy=False), mask]
        if self.kind == "torch":
            given = [None if x is None else torch.from_numpy(np.moveaxis(x, -1, 0).copy()) for x in (image, flow)]
            given.append(None if mask is None else torch.from_numpy(mask))
        if self.kind == "flat":
            given[1] = given[1][..., 0]
        return fi.inpaint(given[0], given[1], given[2], self.method, "cpu", **options)

    def arrays(self) -> Iterator[Array]:
        """All arrays of the caller."""
        for x in (self.image, self.flow, self.mask, *self.options.values()):
            if isinstance(x, np.ndarray):
                yield x

    def __str__(self) -> str:
        dtypes = "no image" if self.image is None else f"image {self.image.dtype} {self.image.shape}"
        values = self.flow[self.known].astype(float)
        options = {k: v if np.isscalar(v) or isinstance(v, tuple) else "array" for k, v in self.options.items()}
        return (
            f"{self.method}, {dtypes}, flow {self.flow.dtype} {self.flow.shape}, {self.kind}, mask "
            f"{self.mask is not None}, {int(self.known.sum())} known from {values.min():.3g} to {values.max():.3g}, "
            f"{options}"
        )


def drawn_size(rng: np.random.Generator) -> tuple[int, int]:
    """Mostly small, sometimes one pixel or a line, rarely above 80 pixels."""
    if rng.random() < 0.05:
        H, W = rng.integers(80, 200, 2)
    else:
        H, W = np.exp(rng.uniform(0, np.log(81), 2)).astype(int)
    return int(H), int(W)


def drawn_image(rng: np.random.Generator, H: int, W: int) -> Array:
    """Noise, blocks or a ramp, as uint8, uint16 or a floating type, with one or three channels."""
    y, x = np.mgrid[:H, :W]
    channels = int(rng.choice([1, 3, 3, 3]))
    blocks = rng.random((9, 9, channels))[np.minimum(y // 7, 8), np.minimum(x // 7, 8)]
    ramp = ((y / H + x / W) / 2)[..., None] * rng.random(channels)
    picture = [rng.random((H, W, channels)), blocks, ramp, np.zeros((H, W, channels))][rng.integers(4)]
    dtype = rng.choice(["uint8", "uint8", "uint16", "float32", "float64", "float16"])
    full = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    return np.asarray(picture * full).astype(dtype)


def drawn_field(rng: np.random.Generator, H: int, W: int, C: int) -> tuple[Array, npt.NDArray[np.bool_]]:
    """A field of a floating type with hostile values where it is not known, and where it is known."""
    usual = max(1, H * W // 20), int(rng.integers(1, H * W + 1))
    count = (1, 2, H * W, *usual)[int(rng.choice(5, p=[0.1, 0.1, 0.05, 0.5, 0.25]))]
    chosen = np.zeros(H * W, bool)
    chosen[rng.choice(H * W, min(count, H * W), replace=False)] = True
    known = chosen.reshape(H, W)
    dtype = np.dtype(rng.choice(["float32", "float32", "float32", "float64", "float16"]))
    scale = float(rng.choice(SCALES))
    y, x = np.mgrid[:H, :W] / max(H, W)
    waves = np.stack([np.sin(4 * x + rng.normal()) + y * rng.normal() + rng.normal() for _ in range(C)], -1)
    values = [waves, rng.normal(size=(H, W, C)), rng.normal(size=C) + 0 * waves, waves + 1e3, 0 * waves][
        rng.integers(5)
    ]
    values = np.clip(scale * values, *((-6e4, 6e4) if dtype == np.float16 else (-1e9, 1e9)))
    if rng.random() < 0.05:
        values = np.where(
            rng.random((H, W, 1)) < 0.3, rng.choice([-0.0, 1e-45, 1e9 if dtype != np.float16 else 6e4]), values
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(known[..., None], values, rng.choice(UNKNOWN, (H, W, C))).astype(dtype), known


def drawn_call(seed: int, index: int, names: list[str]) -> Call:
    """The call with this index."""
    rng = np.random.default_rng((seed, index))
    share = np.array([SHARES.get(name, 1.0) for name in names])
    method = str(rng.choice(names, p=share / share.sum()))
    H, W = drawn_size(rng)
    opencv = method.startswith("opencv")
    if opencv:
        H, W = max(H, 8), max(W, 8)
    C = 2 if opencv else int(rng.choice([1, 2, 2, 2, 3, 4]))
    flow, known = drawn_field(rng, H, W, C)
    if opencv and known.sum() < 4:
        known |= rng.random((H, W)) < 0.2
        known[0, :4] = True
        flow = np.where(known[..., None], rng.normal(size=flow.shape), flow).astype(flow.dtype)
    image = None if method in NEED_NO_IMAGE and rng.random() < 0.5 else drawn_image(rng, H, W)
    options: dict[str, Any] = {}
    if rng.random() < 0.15:
        options["fill_where"] = rng.random((H, W)) < 0.7
        options["fill_where"][0, 0] = True
    if rng.random() < 0.15:
        options["max_gap"] = float(rng.uniform(0.5, 20))
    if image is not None and rng.random() < 0.1:
        options["image_where"] = rng.random((H, W)) < 0.8
        options["image_where"][0, 0] = True
    if rng.random() < 0.1:
        lowest = float(np.min(np.abs(flow[known]).astype(float)))
        positive = np.where(known[..., None], np.abs(flow), 0).astype(float) + max(1e-3, lowest)
        flow = np.where(known[..., None], np.clip(positive, 1e-3, 6e4).astype(flow.dtype), flow)
        options["space"] = str(rng.choice(["inverse", "log"]))
    if rng.random() < 0.15:
        low, high = (float(x) for x in np.quantile(flow[known].astype(float), [0.1, 0.9]))
        if low < high and ((flow[known] >= low) & (flow[known] <= high)).any():
            options["bounds"] = (low, high) if rng.random() < 0.7 else (None, high)
    if method in JUDGING and rng.random() < 0.12:
        size = float(np.abs(flow[known]).max().astype(float)) or 1.0
        for name, value in (
            ("robust", True),
            ("noise", 0.05 * size if rng.random() < 0.5 else np.full((H, W), 0.05 * size)),
            ("confidence", float(rng.uniform(0.3, 1)) if rng.random() < 0.5 else rng.uniform(0.1, 1, (H, W))),
        ):
            if rng.random() < 0.5:
                options[name] = value
        if C == 2 and image is not None and size < 1e3 and "space" not in options and rng.random() < 0.2:
            options["second"] = drawn_image(rng, H, W)
    # Without a mask, whatever is finite counts as known; so the others become NaN.
    has_mask = rng.random() < 0.6
    mask = known.copy() if has_mask else None
    if not has_mask:
        flow = np.where(known[..., None], flow, flow.dtype.type(np.nan))
    is_clear = min(H, W) > 4  # of smaller tensors, the axis of the channels is ambiguous
    kind = "torch" if is_clear and rng.random() < 0.1 and (image is None or image.dtype != np.uint16) else "numpy"
    if C == 1 and kind == "numpy" and rng.random() < 0.3:
        kind = "flat"
    return Call(image, flow, mask, known, method, kind, options)


def as_numpy(call: Call, x: Any, is_field: bool = True) -> Array:
    """A result's field as (H, W, C), or its map as (H, W)."""
    kind, shape = (torch.Tensor if call.kind == "torch" else np.ndarray), call.flow.shape
    if not isinstance(x, kind) or str(x.dtype).rpartition(".")[2] != "float32":
        raise AssertionError(f"kind or type: {type(x).__name__} {getattr(x, 'dtype', None)}")
    array: Array = np.asarray(x)
    if is_field and call.kind == "torch":
        array = np.moveaxis(array, 0, -1)
    if not is_field and call.kind == "torch":
        array = array[0]
    if is_field and call.kind == "flat":
        array = array[..., None]
    if array.shape != (shape if is_field else shape[:2]):
        raise AssertionError(f"shape: {array.shape}")
    return array


def violations(call: Call, result: fi.Result) -> Iterator[str]:
    """The guarantees that a result breaks."""
    u, known, judged = as_numpy(call, result.flow), call.known, call.judged
    with np.errstate(over="ignore", invalid="ignore"):
        given = call.flow.astype(np.float32)
    changed = np.ascontiguousarray(u)[known].view(np.uint32) != given[known].view(np.uint32)
    if not judged and changed.any():
        yield f"{int(changed.any(-1).sum())} known vectors changed"
    where = call.options.get("fill_where", np.ones_like(known)) | known
    near = distance_transform_edt(~known) <= call.options.get("max_gap", np.inf)
    filled = np.asarray(np.isfinite(u).all(-1))
    if (filled & ~(where & near)).any() or (not judged and (~filled & where & near).any()):
        yield "filled pixels are not those of fill_where and max_gap"
    if not np.isnan(u[~filled]).all():
        yield "infinite values"
    low, high = call.options.get("bounds", (None, None))
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    free = u[filled & ~known].astype(np.float64)
    if free.size and not (np.float32(low) <= free.min() and free.max() <= np.float32(high)):
        yield f"bounds: {free.min()} to {free.max()}"
    if call.method in WITHIN_RANGE and not judged and free.size:
        slack = RANGE_TOLERANCE * float(np.abs(given[known]).max().astype(float))
        over = max(given[known].min() - free.min(), free.max() - given[known].max())
        if over > slack:
            yield f"{over:.2e} outside the range of the known values; allowed: {slack:.2e}"
    yield from wrong_maps(call, result, filled)


def wrong_maps(call: Call, result: fi.Result, filled: npt.NDArray[np.bool_]) -> Iterator[str]:
    """The guarantees that the maps of a result break."""
    if (result.expected_error is None) != (result.confidence is None):
        yield "expected error without confidence"
    if call.method == "neuroexplicit" and result.expected_error is None:
        yield "no expected error"
    if result.expected_error is not None:
        error, chance = (as_numpy(call, x, False) for x in (result.expected_error, result.confidence))
        if not (np.isfinite(error[filled]).all() and np.isfinite(chance[filled]).all()):
            yield "expected error or confidence is not finite"
        elif (error[filled] < 0).any() or (chance[filled] < 0).any() or (chance[filled] > 1).any():
            yield "expected error or confidence is outside its range"
        if not call.judged and error[filled & call.known].any():
            yield "expected error above 0 at known vectors"
        if not call.judged and not (error[filled & ~call.known] > 0).all():
            yield "expected error 0 at unknown pixels"
        if not np.isnan(error[~filled]).all():
            yield "expected error where nothing is filled"
    if call.judged != (result.inliers is not None):
        yield "inliers"
    elif call.judged:
        inliers = as_numpy(call, result.inliers, False)
        at = inliers[call.known]
        if not (np.isfinite(at).all() and (at >= 0).all() and (at <= 1).all() and np.isnan(inliers[~call.known]).all()):
            yield "inliers outside [0, 1], or not NaN where nothing is known"


def repeated(call: Call, result: fi.Result, rng: np.random.Generator, largest: dict[str, float]) -> Iterator[str]:
    """What differs if a call is repeated with other threads, or with the field times a power of two."""
    first, what = as_numpy(call, result.flow), rng.random()
    size = float(np.abs(call.flow[call.known].astype(float)).max()) or 1.0
    least = np.abs(call.flow[call.known].astype(float))
    least = least[least > 0]
    if what < 0.12:
        threads = torch.get_num_threads()
        torch.set_num_threads(int(rng.choice([1, 2, 4])))
        try:
            again = as_numpy(call, call.run().flow)
        finally:
            torch.set_num_threads(threads)
        bound = JUDGED_TOLERANCE if call.judged else THREADS.get(call.method, 0.0)
        name = f"other threads, {call.method}{' judged' * call.judged}"
    elif what < 0.25 and call.method not in NOT_SCALING and call.options.get("space") != "log":
        factor = float(2.0 ** rng.integers(-4, 5))
        top = 6e4 if call.flow.dtype == np.float16 else 1e9
        bottom = 1e-3 if call.flow.dtype == np.float16 else 1e-25
        if "second" in call.options or size * factor > top or (least.size and least.min() * min(factor, 1) < bottom):
            return
        back = 1 / factor
        again, name, bound = as_numpy(call, call.run(factor).flow) * np.float32(back), "times a power of two", 0.0
        name, bound = (f"judged, {name}", JUDGED_TOLERANCE) if call.judged else (name, bound)
    else:
        return
    if not np.array_equal(np.isnan(first), np.isnan(again)):
        yield f"{name}: other pixels are filled"
        return
    largest_value = max(size, float(np.nanmax(np.abs(first), initial=0.0)))
    difference = float(np.nanmax(np.abs(first.astype(float) - again), initial=0.0)) / largest_value
    largest[name] = max(largest.get(name, 0.0), difference)
    if difference > bound:
        yield f"{name}: relative difference {difference:.1e}"


def checked(call: Call, rng: np.random.Generator, largest: dict[str, float]) -> tuple[list[str], str]:
    """The violations of a call; and the message if it was rejected."""
    before = [x.tobytes() for x in call.arrays()]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = call.run()
            found = [*violations(call, result), *repeated(call, result, rng, largest)]
            rejected = ""
        except fi.InputError as error:
            found, rejected = [], str(error)
        except Exception as error:  # a foreign exception is what this looks for
            found, rejected = [f"{type(error).__name__}: {error}"], ""
    found += [f"warning of {w.filename}: {w.message}" for w in warned if w.filename != __file__]
    if [x.tobytes() for x in call.arrays()] != before:
        found.append("an input array was changed")
    return found, rejected


def main() -> int:
    """Run the calls; the number of violations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, metavar="INDEX")
    parser.add_argument("--methods", default="", help="comma-separated; by default all")
    options = parser.parse_args()
    names = options.methods.split(",") if options.methods else fi.methods()
    times, rejected, largest = defaultdict[str, list[float]](list), Counter[str](), dict[str, float]()
    bad, start = 0, time.perf_counter()
    chosen = range(options.count) if options.only is None else [options.only]
    for done, index in enumerate(chosen, 1):
        call = drawn_call(options.seed, index, names)
        if options.only is not None:
            print(call, flush=True)
        began = time.perf_counter()
        found, message = checked(call, np.random.default_rng((options.seed, index, 1)), largest)
        times[call.method + " judged" * call.judged].append(time.perf_counter() - began)
        rejected[message.partition(",")[0][:90]] += bool(message)
        for violation in found:
            bad += 1
            print(f"\n{violation}\n  --seed {options.seed} --only {index}: {call}", flush=True)
        if done % 100 == 0:
            print(f"{done} calls, {bad} violations, {time.perf_counter() - start:.0f} s", end="\r", file=sys.stderr)
    print(f"\n{len(chosen)} calls, {bad} violations, {time.perf_counter() - start:.0f} s")
    for message, count in rejected.items():
        if count:
            print(f"{count} rejected: {message}")
    for name, difference in largest.items():
        print(f"largest difference, {name}: {difference:.1e} of the largest value")
    for name, seconds in sorted(times.items()):
        print(f"{name}: {len(seconds)} calls, {1e3 * np.mean(seconds):.0f} ms on average, {max(seconds):.2f} s at most")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
