import numpy as np
import pytest
import torch

from flowinpaint.api import inpaint
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.masks import random_mask
from flowinpaint.methods.eed import eed, tuned_alpha
from flowinpaint.methods.harmonic import harmonic
from flowinpaint.methods.registry import get_method
from flowinpaint.metrics import epe
from helpers import sintel


def test_alpha_follows_the_papers_table_between_and_beyond_its_densities() -> None:
    assert [tuned_alpha(d) for d in (0.01, 0.05, 0.1)] == pytest.approx([0.42, 0.3, 0.1])
    assert tuned_alpha(0.0001) == pytest.approx(0.42)
    assert tuned_alpha(1.0) == pytest.approx(0.1)
    assert 0.1 < tuned_alpha(0.07) < 0.3


def test_lambda_is_the_papers() -> None:
    assert get_method("eed").parameters["lam"] == 1e-4


def test_an_edge_in_the_image_keeps_the_fields_apart() -> None:
    image = torch.zeros(1, 3, 24, 32, dtype=torch.float64)
    image[..., 16:] = 1
    truth = torch.where(image[:, :2] > 0.5, 5.0, -5.0).double()
    c = torch.zeros(1, 1, 24, 32, dtype=torch.float64)
    c[..., 3, 2] = c[..., 20, 29] = 1
    # A cell that holds the edge blurs it by one pixel on each side.
    error = (eed(image, truth, c, rho=0.0).u - truth).norm(dim=1)
    assert error.max() < 0.01
    assert (harmonic(image, truth, c).u - truth).norm(dim=1).mean() > 1


def test_both_solvers_end_at_the_same_field() -> None:
    scene, truth = sample_scene(61, 80, seed=3)
    mask = random_mask((61, 80), 0.03, 0)
    multigrid, fsi = (
        inpaint(scene, truth, mask, "eed", "cpu", solver=solver, tolerance=1e-8) for solver in ("multigrid", "fsi")
    )
    np.testing.assert_allclose(multigrid.flow, fsi.flow, atol=1e-3)
    assert 10 * multigrid.info["iterations"] < fsi.info["iterations"]


def test_an_unknown_solver_is_named() -> None:
    x = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    with pytest.raises(InputError, match="solver must be multigrid or fsi, got 'gauss'"):
        eed(x, x[:, :2], torch.ones_like(x[:, :1]), solver="gauss")


@pytest.mark.parametrize(
    ("parameter", "value"), [("lam", 0.0), ("lam", -1.0), ("alpha", 0.6), ("alpha", -0.1), ("rho", -1.0)]
)
def test_bad_parameters_are_named(parameter: str, value: float) -> None:
    x = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    with pytest.raises(InputError, match=parameter):
        eed(x, x[:, :2], x[:, :1] + 1, **{parameter: value})  # type: ignore[arg-type]


def test_on_real_frames_it_converges_and_beats_harmonic() -> None:
    errors: dict[str, list[float]] = {"eed": [], "harmonic": []}
    for sample in ("alley_1_f0001", "cave_2_f0002", "market_5_f0002", "ambush_4_f0004"):
        image, truth, mask = sintel(sample, "05")
        for method, values in errors.items():
            result = inpaint(image, truth, mask, method=method, device="cpu")
            assert result.info["status"] == "converged"
            values.append(epe(result.flow, truth))
    assert np.mean(errors["eed"]) < 0.95 * np.mean(errors["harmonic"])
