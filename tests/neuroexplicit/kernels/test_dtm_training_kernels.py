"""Each kernel of the network's gradient separately, to locate an error in the whole gradient.

Without a CUDA device Triton's interpreter runs the kernels on the CPU (conftest.py sets it).
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from helpers import generator

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.neuroexplicit.kernels import dtm_training_sums, dtm_training_triton
from flowinpaint.neuroexplicit.kernels.dtm_training import TrainableDtm, _Backward

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
W = 48 if torch.cuda.is_available() else 16  # channels of which none are padded
Z = 5
BATCH, HEIGHT, WIDTH = (3, 24, 40) if torch.cuda.is_available() else (2, 6, 10)


@pytest.fixture(params=[False, True], ids=["joined", "merged"])
def trainable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TrainableDtm:
    if not torch.cuda.is_available():
        monkeypatch.setattr(dtm_training_sums, "_PROGRAMS", 9)  # the interpreter runs them one after the other
    torch.manual_seed(0)
    dtm = DiffusionTensorModule(6, Z, W, 2, request.param).half().float()
    return TrainableDtm(dtm.to(DEVICE), torch.float16, torch.float16)


def field(channels: int, scale: int = 1, seed: int = 0) -> Tensor:
    """(B, scale · h, scale · w, channels) of float16."""
    shape = BATCH, scale * HEIGHT, scale * WIDTH, channels
    return torch.randn(shape, generator=generator(seed)).half().to(DEVICE)


def map_gradient(scale: int = 1) -> Tensor:
    """A gradient of z, (B, h, w, 8), zero in the channels that z has not."""
    return F.pad(field(Z, scale, 5), (0, 8 - Z))


def first(x: Tensor) -> Tensor:
    """(B, h, w, C) of float16 as (B, C, h, w) of float64."""
    return x.permute(0, 3, 1, 2).double()


def through_head(head: torch.nn.Conv2d, dz: Tensor) -> Tensor:
    """From dz (B, h, w, 8) to the gradient (B, C, h, w) of what a 3×3 to z reads."""
    return F.conv_transpose2d(first(dz)[:, :Z], head.weight.double(), padding=1)


def check(ours: Tensor, exact: Tensor, tolerance: float = 1e-3) -> None:
    assert ours.shape == exact.shape
    assert (ours.double() - exact).norm() < tolerance * exact.norm()


def check_active(ours: Tensor, biases: Tensor, exact: Tensor, active: Tensor) -> None:
    """Against the gradient (B, C, h, w) of an activation, zero where that is, and its first sums over all pixels."""
    exact = torch.where(first(active) > 0, exact, 0.0)
    check(first(ours), exact)
    check(biases, exact.sum((0, 2, 3))[: len(biases)], 5e-3)


def half(channels: int, scale: int = 1, seed: int = 0) -> Tensor:
    """As `field`, and every pixel followed by others' numbers."""
    return field(2 * channels, scale, seed)[..., channels:]


def width_of(layer: torch.nn.Module, dimension: int) -> int:
    assert isinstance(layer.weight, Tensor)
    return layer.weight.shape[dimension]


def products(source: Tensor, other: Tensor, stride: int, side: int) -> Tensor:
    """Σ source ⊗ other, (side² · C, N), source being read at each tap of each of other's pixels."""
    taps = F.unfold(first(source), side, padding=side // 3, stride=stride)  # (B, C · side², h · w), taps innermost
    sums = torch.einsum("bkp,bnp->kn", taps, first(other).flatten(2))
    return sums.view(source.shape[3], side**2, -1).transpose(0, 1).flatten(0, 1)


@pytest.mark.parametrize(("seed", "count"), [(0, 700), (1, 700), (2, 256), (3, 1)])
def test_sums_of_parts(seed: int, count: int) -> None:
    """Many parts and few, and one, side by side in the same block; on a device all but the first by its binary."""
    g = generator(seed)
    parts = torch.tensor([1, 1, 7, 8, 9, 40])[torch.randint(6, (count,), generator=g)]
    stride = torch.randint(1, 50, (count,), generator=g)
    place = torch.randint(1000, (count,), generator=g)
    memory = torch.randn(1000 + 40 * 50, generator=g)
    at = place[:, None] + torch.arange(40) * stride[:, None]
    exact = torch.where(torch.arange(40) < parts[:, None], memory.double()[at], 0.0).sum(1)
    tables = [table.int().to(DEVICE) for table in (place, parts, stride)]
    out = torch.full((count + 1,), 3.0, device=DEVICE)
    launch(dtm_training_triton.gather_sums, (-(-count // 256),), memory.to(DEVICE), *tables, out, count, 256)
    torch.testing.assert_close(out[:-1].cpu().double(), exact, rtol=1e-5, atol=1e-5)
    assert out[-1] == 3


@pytest.mark.parametrize(("name", "stride"), [("cnv1_1", 1), ("cnv3", 2), ("dcnv3", 2), ("dcnv1", 2), ("mrg2", 1)])
@pytest.mark.parametrize("apart", [False, True])
def test_gradient_of_a_weight(trainable: TrainableDtm, name: str, stride: int, apart: bool) -> None:
    if name not in trainable.sums.parts:
        pytest.skip("this network has no such layer")
    layer, side = trainable.dtm.get_submodule(name), 2 if name.startswith("dcnv") else 3
    # Of a transposed layer the source is what it made, of others what they read: in either case the second dimension.
    source = (half if apart else field)(width_of(layer, 1), stride)
    other = field(width_of(layer, 0), seed=1)
    trainable.sums[name].fill_(torch.nan)
    _Backward(trainable)._weight(name, source, other, stride, side)
    assert source.is_contiguous() != apart
    check(trainable.sums[name].sum(0), products(source, other, stride, side), 1e-4)


@pytest.mark.parametrize("name", ["cnv0", "dt1", "dt3"])
def test_gradient_of_a_weight_of_few_channels(trainable: TrainableDtm, name: str) -> None:
    layer = trainable.dtm.get_submodule(name)
    source, other = field(8), field(width_of(layer, 0 if name == "cnv0" else 1), seed=1)
    trainable.sums[name].fill_(torch.nan)
    _Backward(trainable)._taps_weight(name, source, other)
    check(trainable.sums[name].sum(0), products(source, other, 1, 3), 1e-4)


def test_gradient_through_the_finest_z(trainable: TrainableDtm) -> None:
    dtm = trainable.dtm
    dz, active = map_gradient(), field(dtm.dt1.in_channels)
    ours = _Backward(trainable)._through_head(dz, active)
    maker = "mrg1.bias" if dtm.merge else "dcnv1.bias"
    check_active(ours, trainable.sums[maker], through_head(dtm.dt1, dz), active)


@pytest.mark.parametrize(("name", "maker"), [("cnv2_1", "cnv2"), ("cnv0_1", "cnv0"), ("mrg3", "dcnv3")])
def test_gradient_through_a_convolution(trainable: TrainableDtm, name: str, maker: str) -> None:
    if name not in trainable.sums.parts:
        pytest.skip("this network has no such layer")
    layer = trainable.dtm.get_submodule(name)
    assert isinstance(layer, torch.nn.Conv2d)
    g, active = field(layer.out_channels), field(layer.in_channels, seed=1)
    ours = _Backward(trainable)._through_convolution(name, maker, g, active)
    exact = F.conv_transpose2d(first(g), layer.weight.double(), padding=1)
    check_active(ours, trainable.sums[f"{maker}.bias"], exact, active)


@pytest.mark.parametrize(("name", "maker"), [("cnv1", "cnv0"), ("cnv2", "cnv1_1"), ("cnv4", "cnv3_1")])
def test_gradient_through_a_stride(trainable: TrainableDtm, name: str, maker: str) -> None:
    layer = trainable.dtm.get_submodule(name)
    assert isinstance(layer, torch.nn.Conv2d)
    g, active, skipped = field(layer.out_channels), half(layer.in_channels, 2, 1), half(layer.in_channels, 2, 2)
    ours = _Backward(trainable)._through_stride(name, maker, g, active, skipped)
    exact = F.conv_transpose2d(first(g), layer.weight.double(), stride=2, padding=1, output_padding=1)
    check_active(ours, trainable.sums[f"{maker}.bias"], exact + first(skipped), active)


@pytest.mark.parametrize("level", [1, 3, 4])
@pytest.mark.parametrize("apart", [False, True])
def test_gradient_through_a_decoder(trainable: TrainableDtm, level: int, apart: bool) -> None:
    dtm = trainable.dtm
    layer = dtm.get_submodule(f"dcnv{level}")
    assert isinstance(layer, torch.nn.ConvTranspose2d)
    g, active, dz = (half if apart else field)(layer.out_channels, 2), field(layer.in_channels, seed=1), map_gradient()
    ours = _Backward(trainable)._through_decoder(level, g, active, dz if level < 4 else None)
    exact = F.conv2d(first(g), layer.weight.double(), stride=2)
    if level < 4:
        head = dtm.get_submodule(f"dt{level + 1}")
        assert isinstance(head, torch.nn.Conv2d)
        exact = exact + through_head(head, dz)
    maker = "cnv4" if level == 4 else f"{'mrg' if dtm.merge else 'dcnv'}{level + 1}"
    check_active(ours, trainable.sums[f"{maker}.bias"], exact, active)
