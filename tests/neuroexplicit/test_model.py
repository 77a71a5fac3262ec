import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from flowinpaint.diffusion.data_term import data_term
from flowinpaint.diffusion.tensor import eigenvalues, structure_tensor
from flowinpaint.errors import InputError
from flowinpaint.networks.network import IMAGENET_MEAN, IMAGENET_STD
from flowinpaint.neuroexplicit.backends.pytorch import TorchBackend
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.neuroexplicit.method import Reference, fill
from flowinpaint.neuroexplicit.model import Neuroexplicit
from helpers import FLOW_AWARE, generator, golden, maps_of, reference

ABLATIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "-mu": {"learn_eigenvalues": False},
    "-v": {"learn_eigenvectors": False},
    "-alpha": {"learn_alpha": False},
    "+beta": {"learn_beta": True},
    "+W": {"learn_kernels": True},
    "kernel 2, width 48": {"decoder_kernel": 2, "width": 48},
}
SMALL: dict[str, Any] = {"width": 4, "steps": (2, 3, 3, 4)}
DT_INPUTS = 352 + 264 + 132 + 88
"""A channel of z costs one 3×3 kernel per input channel of each of the four dt layers, and four biases."""


def inputs(
    batch: int = 2,
    H: int = 20,
    W: int = 27,
    channels: int = 2,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    density: float = 0.2,
) -> tuple[Tensor, Tensor, Tensor]:
    g = generator(seed)
    image = torch.rand(batch, 3, H, W, generator=g, dtype=dtype)
    flow = 8 * torch.randn(batch, channels, H, W, generator=g, dtype=dtype)
    mask = torch.rand(batch, 1, H, W, generator=g) < density
    mask[..., H // 2, W // 2] = True
    return image, flow, mask


def model(seed: int = 0, **config: Any) -> Neuroexplicit:
    torch.manual_seed(seed)
    return Neuroexplicit(NeuroexplicitConfig(**config))


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_trainable_parameters_of_the_model_and_its_ablations() -> None:
    channel = 9 * DT_INPUTS + 4
    full = 1_308_408
    assert count(model()) == full
    assert count(model(learn_eigenvalues=False)) == full - 2 * channel
    assert count(model(learn_eigenvectors=False)) == full - 2 * channel
    assert count(model(learn_alpha=False)) == full - channel
    assert count(model(learn_beta=True)) == full + channel
    assert count(model(learn_kernels=True)) == full + 95 * 32


def test_output_equals_the_authors_away_from_their_border() -> None:
    data = golden("model.npz")
    net = model()
    # The authors order z as v (rows, columns), mu1, mu2, alpha; ours is the paper's, v along columns first.
    order = [4, 2, 3, 1, 0]
    weights = load_file(reference("golden/authors/dtm_weights.safetensors"))
    net.dtm.load_state_dict({k: v[order] if k.startswith("dt") else v for k, v in weights.items()})
    mean, std = (torch.tensor(x).view(1, 3, 1, 1) for x in (IMAGENET_MEAN, IMAGENET_STD))
    image = data["image"] * std + mean
    with torch.inference_mode():
        maps = maps_of(net, image)
        output = net(image, data["flow"], data["mask"])
    for level, z in enumerate(maps):
        torch.testing.assert_close(z, data[f"z_coarse_to_fine_{level}"][:, order], rtol=0, atol=1e-4)
    interior = (..., slice(0, -24), slice(0, -24))
    assert float((output - data["output"])[interior].abs().mean()) < 1e-3


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_configuration_fills_keeps_known_vectors_and_learns_all_its_parameters(name: str) -> None:
    net = model(**ABLATIONS[name])
    image, flow, mask = inputs(H=37, W=50, density=0.01)
    out = net(image, flow, mask)
    assert out.shape == flow.shape
    assert torch.isfinite(out).all()
    known = mask.expand_as(flow)
    assert torch.equal(out[known], flow[known])
    ((out - flow).square().mean()).backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        # The paper's decoder passes nothing on where all its inputs died; anything else must get a gradient.
        if not parameter_name.startswith("dtm"):
            assert parameter.grad.any(), parameter_name
    assert net.lam.grad is not None
    assert (net.lam.grad != 0).all()


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_image_does_not_depend_on_its_batch(name: str) -> None:
    net = model(**ABLATIONS[name])
    together = inputs(batch=3)
    with torch.inference_mode():
        out = net(*together)
        for k in range(3):
            alone = net(*(x[k : k + 1] for x in together))
            torch.testing.assert_close(alone, out[k : k + 1], rtol=0, atol=1e-4)


def test_the_network_sees_the_image_normalised_as_imagenet_is() -> None:
    net = model(**SMALL)
    seen: list[Tensor] = []
    net.dtm.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    image = torch.tensor([0.485, 0.456 + 0.224, 0.406 - 0.225]).view(1, 3, 1, 1).expand(1, 3, 16, 16)
    maps_of(net, image)
    torch.testing.assert_close(seen[0].amax((0, 2, 3)), torch.tensor([0.0, 1.0, -1.0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("level", range(4))
def test_the_process_is_what_the_paper_says(name: str, level: int) -> None:
    """Every part of the diffusion against its definition, written out with numpy's eigenvectors."""
    net = model(**{**ABLATIONS[name], **SMALL}).double()
    config = net.config
    with torch.no_grad():
        net.lam.copy_(torch.tensor([0.5, 0.8, 1.1, 1.7]))
    net.requires_grad_(False)
    lam = (0.5, 0.8, 1.1, 1.7)[level]
    image = torch.rand(1, 3, 6, 7, dtype=torch.float64, generator=generator(1))
    z = torch.randn(1, config.predicted, 6, 7, dtype=torch.float64, generator=generator(2))
    D, alpha, beta = net.process(z, image, level)
    S = structure_tensor(image, 0.5)
    for y, x in ((0, 0), (3, 5), (4, 2)):
        values = iter(z[0, :, y, x].tolist())
        expected_alpha = 0.5 / (1 + math.exp(-next(values))) if config.learn_alpha else 0.3
        s = np.array([[float(S.a[0, 0, y, x]), float(S.b[0, 0, y, x])], [0, float(S.c[0, 0, y, x])]])
        contrast, axes = np.linalg.eigh(s, UPLO="U")
        if config.learn_eigenvalues:
            mu1, mu2 = (1 / (1 + next(values) ** 2 / (lam**2 + 1e-8)) for _ in range(2))
        else:
            mu1, mu2 = 1 / (1 + contrast[1] ** 2 / (lam**2 + 1e-8)), 1.0
        v1 = np.array([next(values), next(values)]) if config.learn_eigenvectors else axes[:, 1]
        v1 = v1 / np.linalg.norm(v1)
        v2 = np.array([-v1[1], v1[0]])
        expected = mu1 * np.outer(v1, v1) + mu2 * np.outer(v2, v2)
        found = [float(entry[0, 0, y, x]) for entry in (*D, alpha, beta)]
        stable = (1 - 2 * expected_alpha) * np.sign(expected[0, 1])
        expected_beta = math.tanh(next(values)) if config.learn_beta else stable
        wanted = [expected[0, 0], expected[0, 1], expected[1, 1], expected_alpha, expected_beta]
        assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("name", ["full", "-mu", "+W"])
def test_autocast_leaves_the_diffusion_in_the_type_of_the_field(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the network's maps held fixed, nothing of the rest may change under autocast."""
    net = model(**{**ABLATIONS[name], **SMALL})
    image, flow, mask = inputs(H=37, W=50, density=0.02)
    with torch.inference_mode():
        maps = maps_of(net, image)
        monkeypatch.setattr(TorchBackend, "network", lambda *_: maps)
        expected = net(image, flow, mask)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(net(image, flow, mask), expected)


def test_learned_kernels_start_as_the_full_model_at_a_quarter_time_step() -> None:
    blocks = model(seed=3, learn_kernels=True)
    plain = model(seed=3, time_step="quarter")
    plain.backend = "torch"
    with torch.inference_mode():
        torch.testing.assert_close(blocks(*inputs()), plain(*inputs()), rtol=0, atol=1e-4)


def test_constrain_reaches_every_block() -> None:
    net = model(learn_kernels=True, **SMALL)
    with torch.no_grad():
        for parameter in net.blocks.parameters():
            parameter.mul_(7)
    net.constrain_()
    assert all(float(p.detach().abs().sum((-2, -1)).max()) <= 2 + 1e-6 for p in net.blocks.parameters())
    model(**SMALL).constrain_()


@given(H=st.integers(1, 40), W=st.integers(1, 40), channels=st.integers(1, 4))
@settings(max_examples=40)
def test_any_size_and_channel_count(H: int, W: int, channels: int) -> None:
    image, flow, mask = inputs(1, H, W, channels)
    with torch.inference_mode():
        out = model(**SMALL)(image, flow, mask)
    assert out.shape == flow.shape
    assert torch.isfinite(out).all()
    known = mask.expand_as(flow)
    assert torch.equal(out[known], flow[known])


def test_predicted_maps_have_the_sizes_of_the_pyramid() -> None:
    net = model(**SMALL)
    image, _, _ = inputs(1, 32, 48)
    with torch.inference_mode():
        z = maps_of(net, image)
        assert [tuple(x.shape[-2:]) for x in z] == [(4, 6), (8, 12), (16, 24), (32, 48)]
        odd = maps_of(net, image[..., :31, :41])
    assert [tuple(x.shape[-2:]) for x in odd] == [(4, 6), (8, 11), (16, 21), (31, 41)]


def test_result_is_linear_in_the_field() -> None:
    net = model(**SMALL).double()
    image, flow, mask = inputs(dtype=torch.float64)
    other = inputs(seed=5, dtype=torch.float64)[1]
    with torch.inference_mode():
        combined = net(image, 2 * flow - 3 * other, mask)
        torch.testing.assert_close(combined, 2 * net(image, flow, mask) - 3 * net(image, other, mask))


def test_float64_fields_pass_through_a_float32_network_exactly() -> None:
    image, flow, mask = inputs(dtype=torch.float64)
    with torch.inference_mode():
        out = model(**SMALL)(image, flow, mask)
    assert out.dtype == torch.float64
    known = mask.expand_as(flow)
    assert torch.equal(out[known], flow[known])


def test_unknown_vectors_may_be_nan_and_do_not_matter() -> None:
    net = model(**SMALL)
    image, flow, mask = inputs()
    spoiled = torch.where(mask, flow, float("nan"))
    with torch.inference_mode():
        assert torch.equal(net(image, spoiled, mask), net(image, flow, mask))


def test_inputs_need_not_be_contiguous() -> None:
    net = model(**SMALL)
    image, flow, mask = inputs()
    strided = [x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for x in (image, flow, mask)]
    with torch.inference_mode():
        torch.testing.assert_close(net(*strided), net(image, flow, mask), rtol=0, atol=1e-5)


def test_gradcheck_of_the_whole_model() -> None:
    net = model(width=1, steps=(1, 2, 2, 2)).double()
    image, flow, mask = inputs(1, 9, 10, dtype=torch.float64)

    def run(image: Tensor, flow: Tensor) -> Tensor:
        out: Tensor = net(image, flow, mask)
        return out

    assert torch.autograd.gradcheck(run, (image.requires_grad_(), flow.requires_grad_()), nondet_tol=1e-9)


def test_gradients_are_those_of_the_graph_through_every_step() -> None:
    net = model().double()
    image, flow, mask = inputs(dtype=torch.float64)
    leaves = [image.requires_grad_(), flow.requires_grad_(), *net.parameters()]

    ours = torch.autograd.grad(net(image, flow, mask).square().sum(), leaves)
    oracle = fill(image, data_term(flow, mask), 4, net.config, Reference(net.dtm, net.lam, net.config), None).field
    for a, b in zip(ours, torch.autograd.grad(oracle.square().sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8 * float(b.abs().max()))


# Dynamo looks at .grad of whatever it is given.
NON_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute")


@NON_LEAF
@pytest.mark.parametrize(("name", "parts"), [("full", 1), ("+W", 1 + 4)])
def test_compiled_parts_give_the_same_and_leave_the_parameters(
    name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model(**{**ABLATIONS[name], **SMALL})
    expected, names = net(*inputs()), net.state_dict().keys()
    calls: list[object] = []
    compile_ = torch.compile

    def compile_quickly(function: Any, **options: Any) -> Any:
        calls.append(function)
        return compile_(function, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", compile_quickly)
    net.compile_parts()
    assert len(calls) == parts
    assert net.state_dict().keys() == names
    torch.testing.assert_close(net(*inputs()), expected)
    net(*inputs()).sum().backward()
    assert net.lam.grad is not None
    torch.testing.assert_close(copy.deepcopy(net)(*inputs()), expected)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda i, f, m: (i[:, :1], f, m), "image"),
        (lambda i, f, m: ((i * 255).byte(), f, m), "image"),
        (lambda i, f, m: (i[..., :-1], f, m), "image"),
        (lambda i, f, m: (i, f, m[:, 0]), "mask"),
        (lambda i, f, m: (i, f, m[:1]), "mask"),
        (lambda i, f, m: (i, f[0], m), "flow"),
        (lambda i, f, m: (i, f.half(), m), "flow"),
        (lambda i, f, m: (i, f.long(), m), "flow"),
        (lambda i, f, m: (i, f[:, :0], m), "flow"),
    ],
)
def test_wrong_tensors_are_named(change: Any, argument: str) -> None:
    with pytest.raises(InputError, match=f"^{argument} must be .*, got "):
        model(**SMALL)(*change(*inputs()))


def test_learned_kernels_refuse_another_channel_count() -> None:
    with pytest.raises(InputError, match=r"flow must have 2 channels .*, got 3"):
        model(learn_kernels=True, **SMALL)(*inputs(channels=3))


@pytest.mark.parametrize(
    "config",
    [
        {"steps": (5, 15)},
        {"steps": (0, 1, 1, 1)},
        {"decoder_kernel": 3},
        {"width": 0},
        {"alpha": 0.7},
        {"rho": float("nan")},
        {"rho": 1e5},
        {"steps": (1, 1, 1, 10**12)},
        {"steps": (1.5, 1, 1, 1)},
        {"channels": 2.5},
        {"direction_floor": 0},
        {"direction_floor": float("nan")},
        {"learn_eigenvalues": False, "learn_eigenvectors": False, "learn_alpha": False},
    ],
)
def test_impossible_configurations_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        NeuroexplicitConfig(**config)


@pytest.mark.parametrize("config", [{}, {"learn_alpha": False}, {**FLOW_AWARE, "direction_floor": 1e-12}])
def test_a_new_network_diffuses_along_its_directions_more_than_across(config: dict[str, Any]) -> None:
    net = model(width=8, **config)
    image, flow, mask = inputs(H=32, W=48)
    guess = flow if net.config.flow_aware else None
    for level, z in enumerate(maps_of(net, image, guess, mask)):
        across, along = eigenvalues(net.process(z.detach(), image, level).tensor)
        larger, smaller = torch.maximum(across, along), torch.minimum(across, along)
        assert (larger > smaller + 0.1).all()
        assert larger.mean() > 0.9
        assert 0.15 < smaller.mean() < 0.3


def test_a_new_network_whose_guess_is_good_already_can_still_learn_directions() -> None:
    """Where both eigenvalues are 1, neither they nor the directions have a gradient."""
    net = model(**SMALL, **FLOW_AWARE)
    image, flow, mask = inputs(H=64, W=96, density=0.01)
    net(image, flow, mask).sum().backward()
    heads = (net.dtm.dt4, net.dtm.dt3, net.dtm.dt2, net.dtm.dt1)
    learned = [float(head.weight.grad[channel].norm()) for head in heads for channel in range(5)]  # type: ignore[index]
    with torch.no_grad():
        for head in heads:
            head.weight[1:3] = 0
            head.bias[1:3] = 0  # type: ignore[index]
    net.zero_grad()
    net(image, flow, mask).sum().backward()
    stuck = [float(head.weight.grad[channel].norm()) for head in heads for channel in (1, 2, 3, 4)]  # type: ignore[index]
    assert min(learned) > 1e-4
    assert max(stuck) < 1e-6
