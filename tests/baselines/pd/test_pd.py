"""The probabilistic diffusion baseline: its sizes, its loss, and fields of any size and number of channels."""

import sys
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flowinpaint.baselines.pd.config import PDConfig, UNetConfig, paper_pd_config
from flowinpaint.baselines.pd.module import PD, block_mean, known_scale
from flowinpaint.config_parsing import build
from flowinpaint.counter_rng import Draws
from flowinpaint.errors import InputError
from flowinpaint.result import Progress
from helpers import generator

TINY = PDConfig(base=UNetConfig((8, 16), 1, (0, 1), 8), fine=UNetConfig((8, 8), 1, (0, 0), 8))
FEW: dict[str, Any] = {"sampling_steps": 4, "resampling_steps": 2}


@pytest.fixture(scope="module")
def model() -> PD:
    """A tiny one whose last layers are not zero, as if it had learned something."""
    torch.manual_seed(0)
    model = PD(TINY).eval()
    for unet in (model.base, model.fine):
        nn.init.normal_(unet.unet.conv_out.weight, std=0.1)
    return model


def problem(B: int, C: int, H: int, W: int, density: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(B + 7 * C + 31 * H + W)
    mask = torch.rand(B, 1, H, W, generator=g) < density
    return torch.rand(B, 3, H, W, generator=g), 3 + 5 * torch.randn(B, C, H, W, generator=g), mask


def count(config: PDConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in PD(config).parameters())


def test_the_small_one_has_its_size() -> None:
    assert count(PDConfig()) == 25_227_268


def test_the_papers_has_its_size() -> None:
    assert round(count(paper_pd_config()) / 1e6) == 977


@pytest.mark.parametrize("size", [(16, 24), (1, 1), (5, 17), (9, 8)])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_any_size_and_any_channels(model: PD, size: tuple[int, int], channels: int) -> None:
    image, flow, mask = problem(2, channels, *size)
    filled = model.complete(image, torch.where(mask, flow, torch.nan), mask, **FEW)
    assert filled.log_error is None
    assert filled.field.shape == flow.shape
    assert filled.field.dtype == torch.float32
    assert torch.isfinite(filled.field).all()
    known = mask.expand_as(flow)
    assert torch.equal(filled.field[known], flow[known])


def test_seeds(model: PD) -> None:
    image, flow, mask = problem(1, 2, 16, 16)
    first, again, other = (model.complete(image, flow, mask, seed=seed, **FEW).field for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_samples_do_not_hang_on_their_batch(model: PD) -> None:
    image, flow, mask = problem(3, 2, 16, 16)
    whole = model.complete(image, flow, mask, **FEW).field
    first = model.complete(image[:1], flow[:1], mask[:1], **FEW).field
    torch.testing.assert_close(whole[:1], first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("factor", "shift"), [(100.0, 0.0), (1.0, -40.0), (0.01, 2.0)])
def test_results_scale_and_shift_with_the_field(model: PD, factor: float, shift: float) -> None:
    image, flow, mask = problem(1, 2, 16, 16)
    expected = model.complete(image, flow, mask, **FEW).field
    found = model.complete(image, factor * flow + shift, mask, **FEW).field
    scale = factor * float(expected.abs().max())
    torch.testing.assert_close(found, factor * expected + shift, rtol=0, atol=1e-4 * (scale + abs(shift)))


def test_vectors_that_are_all_alike_are_continued(model: PD) -> None:
    image, flow, mask = problem(2, 2, 16, 16)
    flow = torch.full_like(flow, 7.0)
    flow[1] = 0
    torch.testing.assert_close(model.complete(image, flow, mask, **FEW).field, flow, rtol=0, atol=1e-3)


def test_the_image_matters(model: PD) -> None:
    image, flow, mask = problem(1, 2, 16, 16)
    fields = [model.complete(x, flow, mask, **FEW).field for x in (image, 1 - image)]
    assert float((fields[0] - fields[1]).abs().max()) > 1e-3


def test_progress_is_told_to_the_end(model: PD) -> None:
    told: list[Progress] = []
    model.complete(*problem(1, 2, 16, 16), told.append, sampling_steps=6, resampling_steps=30)
    shares = [p.share for p in told if p.share is not None]
    assert len(shares) == len(told) <= 102
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert {(p.level, p.levels) for p in told} == {(1, 2), (2, 2)}
    assert told[-1].iterations == 151
    assert model.iterations(16, 16, sampling_steps=6, resampling_steps=30) == 302


def test_fill_takes_the_configurations_steps() -> None:
    torch.manual_seed(0)
    model = PD(PDConfig(TINY.base, TINY.fine, **FEW))
    image, flow, mask = problem(1, 2, 16, 16)
    field = model(image, flow, mask)
    assert not field.requires_grad
    assert torch.equal(field, model.complete(image, flow, mask, seed=0, **FEW).field)
    assert model.config.parameters == {"sampling_steps": 4, "resampling_steps": 2, "seed": 0}
    assert model.iterations(16, 16) == 14


def loss_of(model: PD, *, seed: int = 0, channels: int = 2, broken: float | None = None) -> Tensor:
    """The loss of a batch of half planes; at its invalid pixels the truth may be broken."""
    image, _, mask = problem(3, channels, 29, 32)
    half = (torch.arange(32) > 15).float().expand(3, 1, 29, 32)
    truth = 4 * half * torch.arange(1, channels + 1).view(1, -1, 1, 1) + 1
    valid = torch.ones(3, 1, 29, 32)
    valid[..., :10, 5:9] = 0
    if broken is not None:
        truth = torch.where(valid > 0, truth, broken)
    mask = mask & (valid > 0)
    return model.denoising_loss(image + half, truth, mask, truth, valid, Draws(torch.arange(3), seed))


def test_the_loss_falls() -> None:
    torch.manual_seed(0)
    model = PD(TINY)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = loss_of(model)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_loss_is_a_function_of_its_draws(model: PD) -> None:
    with torch.no_grad():
        assert torch.equal(loss_of(model), loss_of(model))
        assert not torch.allclose(loss_of(model), loss_of(model, seed=1))


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("broken", [1e6, torch.nan])
def test_pixels_that_are_not_valid_do_not_count(model: PD, channels: int, broken: float) -> None:
    with torch.no_grad():
        loss = loss_of(model, channels=channels)
        assert torch.isfinite(loss)
        assert torch.equal(loss, loss_of(model, channels=channels, broken=broken))


def test_an_average_of_known_vectors() -> None:
    f = torch.arange(16.0).view(1, 1, 4, 4).expand(1, 2, 4, 4)
    known = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    known[..., 0, :2] = known[..., 3, 3] = True
    mean, any_known = block_mean(f, known, 2)
    assert mean[0, 1].tolist() == [[0.5, 0], [0, 15]]
    assert any_known[0, 0].tolist() == [[True, False], [False, True]]


def test_known_vectors_are_normalised() -> None:
    _, flow, mask = problem(3, 2, 20, 20)
    mean, scale = known_scale(torch.where(mask, flow, 0), mask)
    for b in range(3):
        values = ((flow - mean) / scale)[b][:, mask[b, 0]]
        torch.testing.assert_close(values.mean(1), torch.zeros(2), rtol=0, atol=1e-5)
        assert float(values.square().mean()) == pytest.approx(1, rel=1e-4)


def test_a_configuration_survives_a_file() -> None:
    fields = asdict(TINY)
    fields["sigma_max"] = list(fields["sigma_max"])
    fields["base"]["widths"] = list(fields["base"]["widths"])
    assert build(PDConfig, fields) == TINY


BAD_UNETS: list[dict[str, Any]] = [
    {"widths": (12, 16)},
    {"widths": ()},
    {"widths": (8,) * 7, "attention": (0,) * 7},
    {"widths": (8, 1_000_000)},
    {"widths": 8},
    {"blocks": 0},
    {"blocks": 1000},
    {"blocks": True},
    {"attention": (0,)},
    {"attention": (0, 2)},
    {"head": 3},
    {"head": 0},
]
BAD: list[dict[str, Any]] = [
    {"base": 3},
    {"kind": "dp"},
    {"reduction": 1},
    {"reduction": 4.0},
    {"sigma_min": 0.0},
    {"sigma_max": (80.0,)},
    {"sigma_max": (80.0, 1e9)},
    {"sigma_max": 80.0},
    {"sigma_data": float("nan")},
    {"rho": "7"},
    {"p_std": -1.0},
    {"s_noise": 0.0},
    {"low_noise": -0.1},
    {"sampling_steps": 1},
    {"sampling_steps": 10**9},
    {"resampling_steps": 0},
]


@pytest.mark.parametrize("fields", BAD_UNETS)
def test_bad_unets_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=refusal(fields)):
        UNetConfig(**(asdict(TINY.base) | fields))


@pytest.mark.parametrize("fields", BAD)
def test_bad_configurations_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=refusal(fields)):
        PDConfig(**fields)


def refusal(fields: dict[str, Any]) -> str:
    return rf"^{next(iter(fields))} must .*, got .*$"


@pytest.mark.parametrize(
    "parameters", [{"sampling_steps": 0}, {"resampling_steps": 1.5}, {"seed": "x"}, {"seed": -1}, {"lam": 1}]
)
def test_bad_parameters_are_refused(model: PD, parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{next(iter(parameters))}(: | must be )"):
        model.complete(*problem(1, 2, 8, 8), **parameters)


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffusers.models.unets.unet_2d", None)
    with pytest.raises(InputError, match=r"pip install diffusers"):
        PD(TINY)


@pytest.mark.gpu
def test_sampling_on_cuda_is_that_of_the_cpu(model: PD) -> None:
    image, flow, mask = problem(2, 2, 40, 48)
    expected = model.complete(image, flow, mask, **FEW).field
    try:
        found = model.cuda().complete(image.cuda(), flow.cuda(), mask.cuda(), **FEW).field.cpu()
    finally:
        model.cpu()
    # In bfloat16 there; the fields are some 5 px large.
    assert float((found - expected).abs().mean()) < 0.2
    known = mask.expand_as(flow)
    assert torch.equal(found[known], flow[known])


@pytest.mark.gpu
def test_sampling_on_cuda_takes_weights_of_the_inference_mode() -> None:
    image, flow, mask = (x.cuda() for x in problem(1, 2, 40, 48))
    with torch.inference_mode():
        own = PD(TINY).cuda()
        zeros = own.complete(image, flow, mask, **FEW).field
        nn.init.normal_(own.fine.unet.conv_out.weight, std=0.1)  # which PyTorch does not count
        assert not torch.equal(own.complete(image, flow, mask, **FEW).field, zeros)


@pytest.mark.gpu
def test_the_loss_runs_in_a_cuda_graph(model: PD) -> None:
    image, flow, mask = (x.cuda() for x in problem(2, 2, 40, 48))
    samples, valid = torch.arange(2, device="cuda"), torch.ones(2, 1, 40, 48, device="cuda")
    try:
        model.cuda()

        def loss() -> Tensor:
            with torch.no_grad():
                return model.denoising_loss(image, flow, mask, flow, valid, Draws(samples))

        loss()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = loss()
        for _ in range(2):
            graph.replay()
            torch.testing.assert_close(captured, loss(), rtol=1e-4, atol=1e-4)
            samples += 2
    finally:
        model.cpu()


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # compilers warn
def test_compiled_sampling_is_that_of_plain_calls_and_follows_the_weights(model: PD) -> None:
    image, flow, mask = (x.cuda() for x in problem(2, 2, 40, 48))
    try:
        model.cuda()
        plain = model.complete(image, flow, mask, **FEW).field
        model.compile_parts()
        compiled = model.complete(image, flow, mask, **FEW).field
        assert float((compiled - plain).abs().mean()) < 0.2
        with torch.no_grad():
            model.fine.unet.conv_out.weight *= 2
        assert float((model.complete(image, flow, mask, **FEW).field - compiled).abs().mean()) > 0.1
    finally:
        with torch.no_grad():
            model.fine.unet.conv_out.weight /= 2
        model.cpu()
