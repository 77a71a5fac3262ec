"""`progress=`: every method calls it from the start to the end, and an exception raised there stops the method."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import flowinpaint as fi
from flowinpaint.methods.registry import usual_methods
from flowinpaint.neuroexplicit.backends import cpu
from flowinpaint.neuroexplicit.backends.tiles import tiled_maps
from flowinpaint.progress import Reporter, level_share, part_of, reporting, solver_share
from flowinpaint.result import Progress, Solution
from helpers import random_field

METHODS = pytest.mark.parametrize("method", usual_methods())
pytestmark = pytest.mark.filterwarnings("ignore:amle stopped")  # on a random field
NETWORKS = pytest.mark.parametrize("method", ["neuroexplicit", "neuroexplicit-paper"])


def states(method: str, **arguments: Any) -> tuple[list[Progress], fi.Result]:
    """What `inpaint` reports on a small field, and its result."""
    seen: list[Progress] = []
    image, flow, mask = random_field(40, 52)
    result = fi.inpaint(image, flow, mask, method=method, device="cpu", progress=seen.append, **arguments)
    return seen, result


def check(seen: list[Progress]) -> None:
    """Shares are known, do not decrease, and go from 0 to 1."""
    shares = [p.share for p in seen if p.share is not None]
    assert len(shares) == len(seen) >= 2
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares.count(1.0) == 1
    assert all(1 <= p.level <= p.levels and p.iterations >= 0 for p in seen)


@METHODS
def test_every_method_reports_from_its_start_to_its_end(method: str) -> None:
    seen, result = states(method)
    check(seen)
    assert seen[-1].iterations == result.info["iterations"]
    assert seen[-1].residual == result.info["residual"]


@METHODS
def test_the_result_is_the_same_with_progress(method: str) -> None:
    image, flow, mask = random_field(40, 52)
    alone = fi.inpaint(image, flow, mask, method=method, device="cpu")
    assert np.array_equal(states(method)[1].flow, alone.flow)


@METHODS
@pytest.mark.parametrize("call", [1, 2])
def test_an_exception_in_the_callback_stops_the_method(method: str, call: int) -> None:
    image, flow, mask = random_field(40, 52)
    calls = list[Progress]()

    def stop(state: Progress) -> None:
        calls.append(state)
        if len(calls) == call:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fi.inpaint(image, flow, mask, method=method, device="cpu", progress=stop)
    assert len(calls) == call


@NETWORKS
def test_the_network_reports_in_its_middle_and_then_every_level(method: str) -> None:
    seen, _ = states(method)
    before = [p.share for p in seen if p.iterations == 0 and p.share is not None]
    assert len([share for share in before if 0.02 < share < 0.9]) >= 2
    after = [p for p in seen if p.iterations > 0]
    assert [p.level for p in after] == list(range(1, after[0].levels + 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@NETWORKS
def test_a_size_is_reported_when_it_is_new_recorded_and_replayed(method: str) -> None:
    image, flow, mask = random_field(41, 57)  # no other test has this size
    for call in range(3):
        seen: list[Progress] = []
        fi.inpaint(image, flow, mask, method=method, device="cuda", progress=seen.append)
        check(seen)
        assert (len(seen) > 2) == (call == 0)  # a graph reports its start and its end


def test_every_tile_of_the_network_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = states("neuroexplicit-paper")
    monkeypatch.setattr(cpu, "TILE", 16)
    tiles, _ = states("neuroexplicit-paper")
    check(tiles)
    assert len(tiles) > len(whole) + 9  # 3 × 4 tiles


def test_tiles_tell_their_share_of_the_network() -> None:
    def network(x: torch.Tensor, tell: Callable[[float], None]) -> list[torch.Tensor]:
        tell(0.5)
        return [x]

    shares = list[float]()
    tiled_maps(
        network, lambda rows, columns: torch.zeros(1, 1, 32, 64)[..., rows, columns], (32, 64), 32, 16, shares.append
    )
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_the_fills_of_robust_are_parts_of_one_computation() -> None:
    seen, _ = states("neuroexplicit", robust=True)
    check(seen)
    assert max(p.levels for p in seen) == 7
    assert len({p.share for p in seen if p.level == 7}) > 3


@pytest.mark.parametrize("count", [1, 3])
def test_robust_reports_with_too_few_vectors_to_judge(count: int) -> None:
    image, flow, _ = random_field(40, 52)
    mask = np.zeros((40, 52), np.bool_)
    mask[3, :count] = True
    seen: list[Progress] = []
    fi.inpaint(image, flow, mask, device="cpu", robust=True, progress=seen.append)
    check(seen)


def test_fsi_steps_report_shares_of_the_pyramid() -> None:
    check(states("eed", solver="fsi", tolerance=1e-3)[0])


@pytest.mark.filterwarnings("ignore:eed stopped")
def test_a_solver_that_stops_early_still_reports_its_end() -> None:
    seen, result = states("eed", max_iterations=2)
    check(seen)
    assert result.info["status"] == "max_iterations"
    assert (seen[-1].iterations, seen[-1].residual) == (2, result.info["residual"])


class TestReporter:
    def test_shares_never_decrease_and_end_once(self) -> None:
        seen: list[Progress] = []
        reporter = Reporter(seen.append)
        for share in (0.4, 0.2, 1.7):
            reporter(Progress(1, 2, 3, share=share))
        reporter.finish(9)
        assert [p.share for p in seen] == [0, 0.4, 0.4, 1]
        assert seen[-1].iterations == 3

    def test_a_method_without_shares_keeps_its_residuals(self) -> None:
        seen: list[Progress] = []

        def fill(x: torch.Tensor, *, progress: Callable[[Progress], None] | None = None) -> Solution:
            assert progress is not None
            progress(Progress(1, 2, 5, residual=0.1))
            return Solution(x, 8, 0.01)

        reporting(fill)(torch.zeros(1, 1, 1, 1), progress=seen.append)
        assert seen == [Progress(1, 1, 0, share=0.0), Progress(1, 2, 5, 0.1), Progress(2, 2, 8, 0.01, 1.0)]


@pytest.mark.parametrize(
    ("residual", "goal", "first", "share"),
    [
        (1.0, 1e-6, 1.0, 0.0),
        (1e-3, 1e-6, 1.0, 0.5),
        (1e-7, 1e-6, 1.0, 1.0),
        (5.0, 1e-6, 1.0, 0.0),
        (0.0, 1e-3, 0.0, 1.0),
    ],
)
def test_the_share_of_a_solver_is_that_of_the_logarithm(
    residual: float, goal: float, first: float, share: float
) -> None:
    assert solver_share(residual, goal, first) == pytest.approx(share)


def test_levels_cost_four_times_the_coarser_one() -> None:
    assert level_share(0, 1, 0.3) == pytest.approx(0.3)
    assert [level_share(k, 3, 1) for k in range(3)] == pytest.approx([1 / 21, 5 / 21, 1])
    assert level_share(2, 3, 0) == level_share(1, 3, 1)


def test_parts_of_parts() -> None:
    shares = list[float]()
    tell = part_of(part_of(shares.append, 0.5, 1), 0.5, 0.6)
    tell(0)
    tell(1)
    assert shares == pytest.approx([0.75, 0.8])
