"""Each kernel of the network's gradient alone: which one is wrong where the whole is.

Without a CUDA device Triton's interpreter runs the kernels on the CPU (conftest.py sets it).
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flowinpaint.neural.dtm import DiffusionTensorModule
from helpers import generator

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux only")
from flowinpaint.diffusion.kernels.launch import launch
from flowinpaint.neural.kernels import dtm_training_loops, dtm_training_sums
from flowinpaint.neural.kernels.dtm_training import TrainableDtm, _Backward

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
W = 48 if torch.cuda.is_available() else 16  # channels of which none are padded
Z = 5
BATCH, HEIGHT, WIDTH = (3, 24, 40) if torch.cuda.is_available() else (2, 6, 10)


@pytest.fixture
def trainable(monkeypatch: pytest.MonkeyPatch) -> TrainableDtm:
    if not torch.cuda.is_available():
        monkeypatch.setattr(dtm_training_sums, "_PROGRAMS", 9)  # the interpreter runs them one after the other
    torch.manual_seed(0)
    dtm = DiffusionTensorModule(6, Z, W, 2).half().float()
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
    """Against the gradient (B, C, h, w) of an activation, zero where that is, and its sums over all pixels."""
    exact = torch.where(first(active) > 0, exact, 0.0)
    check(first(ours), exact)
    check(biases, exact.sum((0, 2, 3)), 5e-3)


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
    launch(dtm_training_loops.gather_sums, (-(-count // 256),), memory.to(DEVICE), *tables, out, count, 256)
    torch.testing.assert_close(out[:-1].cpu().double(), exact, rtol=1e-5, atol=1e-5)
    assert out[-1] == 3


@pytest.mark.parametrize(
    ("name", "rows", "columns", "stride", "side"),
    [
        ("cnv1_1", W, W, 1, 3),
        ("cnv3", 2 * W, 4 * W, 2, 3),
        ("dcnv3", 4 * W, 4 * W, 2, 2),
        ("dcnv1.skipped", W, W, 2, 2),
    ],
)
def test_gradient_of_a_weight(
    trainable: TrainableDtm, name: str, rows: int, columns: int, stride: int, side: int
) -> None:
    source, other = field(rows, stride), field(columns, seed=1)
    trainable.sums[name].fill_(torch.nan)
    _Backward(trainable)._weight(name, source, other, stride, side)
    check(trainable.sums[name].sum(0), products(source, other, stride, side), 1e-4)


@pytest.mark.parametrize(("name", "upper", "skip"), [("cnv0", W, 0), ("dt1", W, W), ("dt3", 4 * W, 2 * W)])
def test_gradient_of_a_weight_of_few_channels(trainable: TrainableDtm, name: str, upper: int, skip: int) -> None:
    source, others = field(8), [field(n, seed=n) for n in (upper, skip) if n]
    trainable.sums[name].fill_(torch.nan)
    _Backward(trainable)._taps_weight(name, source, others[0], others[1] if skip else None)
    check(trainable.sums[name].sum(0), products(source, torch.cat(others, 3), 1, 3), 1e-4)


def test_gradient_through_the_finest_z(trainable: TrainableDtm) -> None:
    dz, active = map_gradient(), field(W)
    ours = _Backward(trainable)._through_head("dcnv1", dz, active)
    exact = through_head(trainable.dtm.dt1, dz)[:, :W]
    check_active(ours, trainable.sums["dcnv1.bias"], exact, active)


def test_gradient_through_a_convolution(trainable: TrainableDtm) -> None:
    g, active = field(2 * W), field(2 * W, seed=1)
    ours = _Backward(trainable)._through_convolution("cnv2_1", "cnv2", g, active)
    exact = F.conv_transpose2d(first(g), trainable.dtm.cnv2_1.weight.double(), padding=1)
    check_active(ours, trainable.sums["cnv2.bias"], exact, active)


@pytest.mark.parametrize(("name", "maker", "wide"), [("cnv1", "cnv0", 1), ("cnv2", "cnv1_1", 2), ("cnv4", "cnv3_1", 8)])
def test_gradient_through_a_stride(trainable: TrainableDtm, name: str, maker: str, wide: int) -> None:
    weight = trainable.dtm.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    g, active = field(wide * W), field(weight.shape[1], 2, 1)
    skipped = map_gradient(2) if name == "cnv1" else field(weight.shape[1], 2, 2)
    ours = _Backward(trainable)._through_stride(name, maker, g, active, skipped)
    exact = F.conv_transpose2d(first(g), weight.double(), stride=2, padding=1, output_padding=1)
    exact = exact + (through_head(trainable.dtm.dt1, skipped)[:, W:] if name == "cnv1" else first(skipped))
    check_active(ours, trainable.sums[f"{maker}.bias"], exact, active)


@pytest.mark.parametrize(("name", "maker"), [("dcnv1", "dcnv2"), ("dcnv3", "dcnv4"), ("dcnv4", "cnv4")])
def test_gradient_through_a_decoder(trainable: TrainableDtm, name: str, maker: str) -> None:
    dtm = trainable.dtm
    head = {"dcnv1": dtm.dt2, "dcnv3": dtm.dt4}.get(name)
    weight = dtm.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    seam = {"dcnv1": 2 * W, "dcnv3": 4 * W, "dcnv4": 8 * W}[name]
    g, upper, dz = field(weight.shape[1], 2), field(seam, seed=1), map_gradient()
    exact = F.conv2d(first(g), weight.double(), stride=2)
    rest = (dz, field(weight.shape[0] - seam, seed=2)) if head is not None else (None, None)
    ours, skipped = _Backward(trainable)._through_decoder(name, maker, g, upper, *rest)
    if head is not None:
        exact = exact + through_head(head, dz)
        check(first(skipped), exact[:, seam:])
    check_active(ours, trainable.sums[f"{maker}.bias"], exact[:, :seam], upper)
