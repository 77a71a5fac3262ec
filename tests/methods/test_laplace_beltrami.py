import csv

import numpy as np
import pytest
import torch

from flowinpaint.api import inpaint
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import InputError
from flowinpaint.io import read_flow, read_image, read_mask
from flowinpaint.methods.laplace_beltrami import distance_weights, laplace_beltrami
from flowinpaint.metrics import endpoint_error, epe, fl_outliers
from helpers import generator, reference


def test_weights_are_one_over_the_distance() -> None:
    image = torch.rand(2, 3, 4, 5, dtype=torch.float64, generator=generator(0))
    weights = distance_weights(image, 0.01, 3)
    right = ((image[..., 2, 3] - image[..., 2, 4]) ** 2).mean(1)
    below = ((image[..., 1, 0] - image[..., 2, 0]) ** 2).mean(1)
    torch.testing.assert_close(weights[:, 0, 2, 3], 1 / (0.99 * right + 0.01))
    torch.testing.assert_close(weights[:, 1, 1, 0], 1 / (0.99 * below + 0.01))
    assert not weights[:, 0, :, -1].any()
    assert not weights[:, 1, -1].any()
    assert not weights[:, 2:].any()


def test_the_field_jumps_where_the_colour_does() -> None:
    image = torch.zeros(1, 3, 20, 20, dtype=torch.float64)
    image[..., 10:] = 1
    truth = torch.where(image[:, :2] > 0.5, 4.0, -3.0).double()
    c = torch.zeros(1, 1, 20, 20, dtype=torch.float64)
    c[..., 3, 2] = c[..., 15, 17] = 1
    assert (laplace_beltrami(image, truth, c).u - truth).abs().max() < 0.01


def test_the_three_distances_differ_and_keep_within_the_known_values() -> None:
    image = torch.rand(1, 3, 24, 30, dtype=torch.float64, generator=generator(1))
    f = torch.randn(1, 1, 24, 30, dtype=torch.float64, generator=generator(2))
    c = (torch.rand(1, 1, 24, 30, generator=generator(3)) < 0.1).double()
    fields = [laplace_beltrami(image, f, c, distance=kind).u for kind in (1, 2, 3)]
    known = f[c > 0]
    for u in fields:
        assert known.min() - 1e-5 <= u.min() <= u.max() <= known.max() + 1e-5
    assert (fields[0] - fields[2]).abs().max() > 0.01
    assert (fields[0] - fields[1]).abs().max() > 1e-5


@pytest.mark.parametrize(("parameter", "value"), [("lam", 0.0), ("lam", 2.0), ("distance", 4), ("distance", 0)])
def test_bad_parameters_are_named(parameter: str, value: float) -> None:
    x = torch.zeros(1, 3, 4, 4, dtype=torch.float64)
    with pytest.raises(InputError, match=f"^{parameter} must be "):
        laplace_beltrami(x, x[:, :2], torch.ones_like(x[:, :1]), **{parameter: value})  # type: ignore[arg-type]


def test_agrees_with_the_ipol_program() -> None:
    """Its λ of 1e-6 goes with the sum over the colours, ours with their mean."""
    frame, golden = reference("realflow/MPI-Sintel/alley_1_f0001"), reference("golden/ipol")
    truth, _ = read_flow(frame / "flow.flo")
    theirs, _ = read_flow(golden / "lb_occ.flo")
    unknown = read_mask(golden / "mask_occ.png")
    image = read_image(frame / "image.png")
    ours = inpaint(image, truth, ~unknown, "laplace-beltrami", "cpu", lam=1e-6 / 3).flow
    assert endpoint_error(ours, theirs)[unknown].mean() < 1e-4
    assert epe(ours, truth) == pytest.approx(0.0135, abs=5e-5)


FRAMES = [
    ("MPI-Sintel", "market_5_f0002"),
    ("KITTI2015", "000002_10"),
    ("KITTI2012", "000027_10"),
    ("Middlebury", "Urban2"),
    ("FlyingChairs", "00001"),
]


@pytest.mark.parametrize(("dataset", "name"), FRAMES)
def test_reproduces_the_reference_figures(dataset: str, name: str) -> None:
    with reference("realflow/reference.csv").open() as file:
        rows = {(row["dataset"], row["sample"], row["density"], row["method"]): row for row in csv.DictReader(file)}
    (sample,) = [s for s in find_samples(reference("realflow"), [dataset]) if s.name == name]
    for density in ("01", "05", "10"):
        expected = rows[dataset, name, density, "laplace-beltrami"]
        frame = sample.load(int(density) / 100, 0, 0)
        given = np.where(frame.mask[..., None], frame.truth, np.nan)
        u = inpaint(frame.image, given, None, "laplace-beltrami", "cpu").flow
        assert epe(u, frame.truth, frame.valid) == pytest.approx(float(expected["epe"]), rel=0.02)
        assert fl_outliers(u, frame.truth, frame.valid) == pytest.approx(float(expected["fl"]), rel=0.02, abs=0.01)


def test_the_result_stays_within_the_known_range_although_the_solver_stops_at_a_tolerance() -> None:
    """Areas of one colour, with edges of weight 1e6 between pixels and of about 1 between areas."""
    image = torch.rand(1, 3, 7, 1, generator=generator(5), dtype=torch.float64).repeat_interleave(7, 2)[:, :, :47]
    mask = torch.zeros(1, 1, 47, 1, dtype=torch.float64)
    mask[..., [3, 40], 0] = 1
    flow = mask * torch.linspace(-0.6, 0.7, 47, dtype=torch.float64).view(1, 1, 47, 1)
    u = laplace_beltrami(image, flow, mask).u
    assert flow.min() <= u.min()
    assert u.max() <= flow.max()
