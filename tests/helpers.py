"""Shared test helpers: reference data, random diffusion processes, and the operator as a matrix."""

import os
import stat
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from typer.testing import CliRunner

from flowinpaint.cli import app
from flowinpaint.diffusion.data_term import DataTerm
from flowinpaint.diffusion.stencil import EDGES, cell_delta, divergence, edge_weights, stable_beta
from flowinpaint.diffusion.tensor import SymmetricTensor, orientation_from_vector, tensor_from_eigen
from flowinpaint.networks.network import Network
from flowinpaint.neuroexplicit.dtm import DiffusionTensorModule
from flowinpaint.neuroexplicit.method import Reference
from flowinpaint.neuroexplicit.model import Neuroexplicit

REFERENCE = Path(os.environ.get("FLOWINPAINT_REFERENCE", Path(__file__).resolve().parents[2] / "shared"))
"""Outputs of other programs (golden/) and real frames (realflow/); not part of the repository."""


def disk_events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with each flush of a "file" or a "folder" to disk, and each rename of a file to its "name"."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def logged_fsync(handle: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def logged_replace(self: Path, target: Path) -> Path:
        events.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(Path, "replace", logged_replace)
    return events


def reference(name: str) -> Path:
    """A file or folder of the reference data, or a skip where there is none."""
    path = REFERENCE / name
    if not path.exists():
        pytest.skip(f"reference data not present ({name}); set FLOWINPAINT_REFERENCE to their folder")
    return path


def golden(name: str) -> dict[str, Tensor]:
    """The arrays of a golden .npz file as batches of one, (1, C, H, W)."""
    with np.load(reference(f"golden/authors/{name}")) as file:
        arrays = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    return {key: value[(None,) * (4 - value.ndim)] if value.ndim else value for key, value in arrays.items()}


def sintel(sample: str, density: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Image, true flow and fixed mask of a real frame."""
    folder = reference(f"realflow/MPI-Sintel/{sample}")
    image = cv2.imread(str(folder / "image.png"))
    mask = cv2.imread(str(folder / f"mask_{density}.png"), cv2.IMREAD_GRAYSCALE)
    assert image is not None
    assert mask is not None
    return image[..., ::-1], np.asarray(cv2.readOpticalFlow(str(folder / "flow.flo"))), np.asarray(mask) > 0


FLOW_AWARE: dict[str, Any] = {
    "flow_aware": True,
    "start": "pull",
    "time_step": "quarter",
    "direction_floor": 0.01,
    "decoder_kernel": 2,
    "merge": True,
    "confidence": True,
}
"""Settings of the flagship's configuration, except its widths."""

Part = TypeVar("Part", Neuroexplicit, DiffusionTensorModule)

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(2, 7), st.integers(2, 7))


def run_cli(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `flowinpaint` with these arguments, in this process."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moderate(network: Part, factor: float, seed: int = 0) -> Part:
    """The network with weights as PyTorch makes them, times a factor.

    Those of a new one make more of small differences than tests of how things are computed have bounds for.
    """
    torch.manual_seed(seed)
    dtm = network.dtm if isinstance(network, Neuroexplicit) else network
    with torch.no_grad():
        for layer in dtm.children():
            assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
            layer.reset_parameters()
        if isinstance(network, Neuroexplicit) and network.config.learn_eigenvalues:
            network._begin_anisotropic()
        for parameter in dtm.parameters():
            parameter.mul_(factor)
    return network


def random_process(
    seed: int, H: int, W: int, batch: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[SymmetricTensor, Tensor]:
    """A random tensor with eigenvalues in [0, 1], many of them extreme, and alpha in [0, 1/2], in the cells of H×W."""
    g = generator(seed)
    shape = (batch, 1, H - 1, W - 1)
    # Stretching and clipping puts a good share of the values on 0 and 1, where bounds are tight.
    mu1, mu2, alpha = ((torch.rand(shape, generator=g, dtype=dtype) * 1.5 - 0.25).clamp(0, 1) for _ in range(3))
    vx, vy = (torch.randn(shape, generator=g, dtype=dtype) for _ in range(2))
    return tensor_from_eigen(mu1, mu2, orientation_from_vector(vx, vy)), alpha / 2


def dense_matrix(weights: Tensor) -> Tensor:
    """A as a matrix (HW, HW), column by column from the operator itself."""
    H, W = weights.shape[-2:]
    basis = torch.eye(H * W, dtype=weights.dtype).view(1, H * W, H, W)
    return divergence(weights, basis)[0].reshape(H * W, H * W).T


def random_field(
    height: int, width: int, channels: int = 2
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """A random image, field and mask."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    flow = rng.normal(size=(height, width, channels)).astype(np.float32) * 4
    mask = rng.random((height, width)) < 0.3
    mask[0, 0] = True
    return image, flow, mask


def random_graph(
    images: int, H: int, W: int, seed: int = 0, density: float = 0.15, negative: bool = False
) -> tuple[Tensor, Tensor]:
    """Edge weights (B, 4, H, W) over three decades, and known pixels (B, 1, H, W) bool, at least one in each image.

    negative: weights of an anisotropic diffusion tensor, some of them negative; otherwise all are positive.
    """
    g = generator(seed)
    known = torch.rand(images, 1, H, W, generator=g) < density
    known[:, :, H // 2, W // 2] = True
    if negative:
        tensor, alpha = random_process(seed, H, W, images)
        # A little of the identity, so that no pixel is cut off.
        tensor = SymmetricTensor(tensor.a + 0.01, tensor.b, tensor.c + 0.01)
        return edge_weights(tensor, cell_delta(tensor, alpha, stable_beta(tensor, alpha))), known
    weights = torch.exp(7 * torch.rand(images, 4, H, W, generator=g, dtype=torch.float64) - 5)
    rows, columns = torch.arange(H)[:, None], torch.arange(W)
    for k, (dy, dx) in enumerate(EDGES):
        weights[:, k] *= (rows + dy < H) & (columns + dx < W) & (columns + dx >= 0)
    return weights, known


def maps_of(net: Neuroexplicit, image: Tensor, guess: Tensor | None = None, mask: Tensor | None = None) -> list[Tensor]:
    """The maps of a network for an image, and for a guess that serves as the field too."""
    f = torch.zeros_like(image[:, :2]) if guess is None else guess
    known = torch.zeros_like(image[:, :1], dtype=torch.bool) if mask is None else mask
    return Reference(net.dtm, net.lam, net.config).network(image, guess, DataTerm(f, known))


def neuroexplicit(model: Network | None) -> Neuroexplicit:
    """A network of which a test knows the kind."""
    assert isinstance(model, Neuroexplicit)
    return model
