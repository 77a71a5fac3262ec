"""OpenCV's interpolators: correct calls, and never with input that crashes the process."""

import math
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from flowinpaint.errors import InputError
from flowinpaint.extras import is_installed
from flowinpaint.methods import opencv
from flowinpaint.methods.opencv import MOST_MATCHES, opencv_edgeaware, opencv_ric
from flowinpaint.metrics import epe
from flowinpaint.result import Solution
from helpers import generator, sintel

Fill = Callable[..., Solution]
PEERS = pytest.mark.parametrize("fill", [opencv_edgeaware, opencv_ric])
CONTRIB = pytest.mark.skipif(not is_installed("peers"), reason="OpenCV without ximgproc")


def scene(H: int, W: int, known: int, channels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A random image and field, with this many known pixels."""
    g = generator(seed)
    image = torch.rand(1, 3, H, W, dtype=torch.float64, generator=g)
    f = 3 * torch.randn(1, channels, H, W, dtype=torch.float64, generator=g)
    c = torch.zeros(H * W, dtype=torch.float64)
    c[torch.randperm(H * W, generator=g)[:known]] = 1
    return image, f, c.view(1, 1, H, W)


def affine(H: int, W: int) -> Tensor:
    y, x = torch.meshgrid(torch.arange(H, dtype=torch.float64), torch.arange(W, dtype=torch.float64), indexing="ij")
    return torch.stack([2 + 0.05 * x - 0.02 * y, -1 + 0.01 * x + 0.03 * y])[None]


@CONTRIB
@PEERS
def test_an_affine_motion_is_found(fill: Fill) -> None:
    """So x and y, points and vectors are where OpenCV wants them."""
    image, _, c = scene(60, 80, known=600)  # without texture in the image, OpenCV's last filter flattens everything
    f = affine(60, 80)
    solution = fill(image, f * c, c)
    assert (solution.u - f)[..., 5:-5, 5:-5].abs().max() < 0.25
    assert solution.u.dtype == f.dtype
    assert solution.status == "complete"


@CONTRIB
def test_edge_aware_gives_the_same_field_for_the_same_input() -> None:
    image, _, c = scene(96, 128, known=123)
    fields = [opencv_edgeaware(image, affine(96, 128) * c, c).u for _ in range(3)]
    assert all(torch.equal(field, fields[0]) for field in fields[1:])


@CONTRIB
@pytest.mark.parametrize(
    ("fill", "density", "expected"),
    [
        (opencv_edgeaware, "01", 0.173),
        (opencv_edgeaware, "05", 0.124),
        (opencv_ric, "01", 0.343),
        (opencv_ric, "05", 0.189),
    ],
)
def test_a_real_frame(fill: Fill, density: str, expected: float) -> None:
    """The errors others measured with masks of the same density; with another mask, they differ by a sixth or so."""
    picture, truth, mask = sintel("alley_1_f0001", density)
    image, f = (torch.from_numpy(np.moveaxis(x, -1, 0)[None].astype(np.float64)) for x in (picture / 255, truth))
    u = fill(image, f, torch.from_numpy(mask[None, None]).double()).u[0].permute(1, 2, 0).numpy()
    assert epe(np.where(mask[..., None], truth, u), truth) == pytest.approx(expected, rel=0.25)


@CONTRIB
@PEERS
@pytest.mark.parametrize("size", [(8, 8), (8, 90), (90, 8), (33, 47)])
@pytest.mark.parametrize("known", [4, 5, 40, 64])
@pytest.mark.parametrize("case", ["plain", "constant image", "huge flow", "one corner"])
def test_any_input_gives_a_finite_field_or_a_named_error(
    fill: Fill, size: tuple[int, int], known: int, case: str
) -> None:
    image, f, c = scene(*size, known=known)
    if case == "constant image":
        image = torch.full_like(image, 0.5)
    elif case == "huge flow":
        f = f * 1e6
    elif case == "one corner":
        c = torch.zeros_like(c)
        c[..., :4, :4] = 1
    try:
        solution = fill(image, f, c)
    except InputError as error:
        assert "known vectors" in str(error)
    else:
        assert solution.u.shape == f.shape
        assert torch.isfinite(solution.u).all()


class StandIn:
    """Replaces OpenCV: records each k, fails above `most`, else returns `value`, after `bad` results of NaN."""

    def __init__(self, most: float, value: float, bad: int = 0) -> None:
        self.most, self.value, self.bad, self.k = most, value, bad, list[int]()

    def setK(self, k: int) -> None:
        self.k.append(k)

    def interpolate(self, guide: Any, *_: Any) -> Any:
        if self.k[-1] > self.most:
            raise cv2.error("k is too large")
        self.bad -= 1
        return np.full((*guide.shape[:2], 2), self.value if self.bad < 0 else math.nan, np.float32)

    def getMaxFlow(self) -> float:
        return 250.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return (lambda: self) if name.startswith("create") else (lambda _: None)


@pytest.mark.parametrize(
    ("fill", "k", "most", "given"),
    [
        (opencv_edgeaware, 500, math.inf, [300]),
        (opencv_edgeaware, 40, math.inf, [40]),
        (opencv_ric, 500, math.inf, [60]),
        (opencv_ric, 32, 10, [32, 16, 8]),
    ],
)
def test_k_is_lowered_to_what_opencv_takes(
    fill: Fill, k: int, most: float, given: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn(most, value=1.0)
    monkeypatch.setattr(opencv, "_contrib", lambda: stand_in)
    assert (fill(*scene(40, 50, known=300), k=k).u == 1).all()
    assert stand_in.k == given


def test_ric_uses_a_smaller_k_after_a_result_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(math.inf, value=1.0, bad=2)
    monkeypatch.setattr(opencv, "_contrib", lambda: stand_in)
    assert (opencv_ric(*scene(40, 50, known=300)).u == 1).all()
    assert stand_in.k == [32, 16, 8]


def test_ric_tries_larger_k_after_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(math.inf, value=1.0, bad=3)
    monkeypatch.setattr(opencv, "_contrib", lambda: stand_in)
    assert (opencv_ric(*scene(40, 50, known=300), k=4).u == 1).all()
    assert stand_in.k == [4, 2, 1, 8]


@pytest.mark.parametrize(
    ("fill", "most", "value"),
    [(opencv_edgeaware, math.inf, math.nan), (opencv_ric, math.inf, math.inf), (opencv_ric, 0, 1.0)],
)
def test_vectors_that_opencv_cannot_use_are_named(
    fill: Fill, most: float, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencv, "_contrib", lambda: StandIn(most, value))
    with pytest.raises(InputError, match=r"flow: opencv-\w+ produced a non-finite field from these 300 known vectors"):
        fill(*scene(40, 50, known=300))


@CONTRIB
@PEERS
@pytest.mark.parametrize("k", [4, 32, 100_000])
def test_any_k_gives_a_finite_field(fill: Fill, k: int) -> None:
    image, f, c = scene(40, 50, known=300)
    assert torch.isfinite(fill(image, f, c, k=k).u).all()


@CONTRIB
def test_ric_fits_motions_beyond_opencvs_limit() -> None:
    image, _, c = scene(60, 80, known=600)
    f = 100 * affine(60, 80)
    assert (opencv_ric(image, f, c).u - f).abs().mean() < 2


@CONTRIB
def test_edgeaware_draws_from_too_many_vectors_and_says_so() -> None:
    image, _, c = scene(190, 180, known=190 * 180)
    f = affine(190, 180)
    with pytest.warns(UserWarning, match=rf"{MOST_MATCHES} .* {190 * 180}"):
        first = opencv_edgeaware(image, f, c)
    with pytest.warns(UserWarning):
        again = opencv_edgeaware(image, f, c)
    assert torch.equal(first.u, again.u)
    assert (first.u - f).abs().mean() < 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        c.view(-1)[MOST_MATCHES:] = 0
        opencv_edgeaware(image, f, c)


@PEERS
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (scene(20, 20, known=50, channels=1), r"flow must have 2 channels for opencv-\w+, got 1"),
        (scene(20, 20, known=3), r"flow must have at least 4 known vectors for opencv-\w+, got 3"),
        (scene(7, 20, known=50), r"image must have at least 8 pixels on each side for opencv-\w+, got 7×20"),
        (scene(90, 1, known=50), r"image must have at least 8 pixels on each side for opencv-\w+, got 90×1"),
    ],
)
def test_what_would_end_the_process_is_an_error(
    fill: Fill, inputs: tuple[Tensor, Tensor, Tensor], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fill(*inputs)


@pytest.mark.parametrize(
    ("fill", "name", "value"),
    [
        *((fill, "k", k) for fill in (opencv_edgeaware, opencv_ric) for k in (0, 3, 4.5, math.nan, math.inf)),
        *((opencv_edgeaware, name, value) for name in ("sigma", "lam") for value in (0, -1, math.nan, math.inf)),
    ],
)
def test_a_bad_parameter_is_named(fill: Fill, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"{name} must be .*, got {value}"):
        fill(*scene(20, 20, known=50), **{name: value})


@PEERS
def test_without_contrib_the_command_is_named(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2, "ximgproc", raising=False)
    assert not is_installed("peers")
    with pytest.raises(InputError, match=r"needs OpenCV's contributed modules \(.*pip install opencv-contrib-python"):
        fill(*scene(20, 20, known=50))


@CONTRIB
def test_ric_is_the_same_in_concurrent_calls() -> None:
    image, f, c = scene(60, 80, 240)
    alone = opencv_ric(image, f, c).u
    with ThreadPoolExecutor(8) as threads:
        for u in threads.map(lambda _: opencv_ric(image, f, c).u, range(16)):
            assert torch.equal(u, alone)
