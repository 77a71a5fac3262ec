from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.flownets.module import FlowNetS
from flowinpaint.neuroexplicit.config import START_STEPS, NeuroexplicitConfig
from flowinpaint.neuroexplicit.model import Neuroexplicit
from flowinpaint.speed.cases import SpeedCase
from flowinpaint.speed.roofline import StageCount, counts_of, level_sizes, network_count, neuroexplicit_counts

PAPER = NeuroexplicitConfig(width=5)
FLOW_AWARE = NeuroexplicitConfig(width=6, decoder_kernel=2, flow_aware=True, start="pull", time_step="quarter")


class ConvolutionTraffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The numbers that convolutions read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            self.numbers += sum(x.numel() for x in (*args[:3], out))
        return out


def by_stage(config: NeuroexplicitConfig, height: int, width: int, element: int = 2) -> dict[str, StageCount]:
    return {count.stage: count for count in neuroexplicit_counts(Neuroexplicit(config), height, width, element)}


@pytest.mark.parametrize("config", [PAPER, FLOW_AWARE])
@pytest.mark.parametrize("size", [(32, 48), (30, 33)])
def test_operations_of_the_network_are_those_that_pytorch_counts(
    config: NeuroexplicitConfig, size: tuple[int, int]
) -> None:
    model = Neuroexplicit(config)
    padded = torch.zeros(1, model.dtm.cnv0.in_channels, 32, 48)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.dtm(padded)
    assert network_count(model, *size, element=4).operations == counter.get_total_flops()


@pytest.mark.parametrize("element", [2, 4])
def test_bytes_of_the_network_are_what_its_convolutions_read_and_write(element: int) -> None:
    model = Neuroexplicit(FLOW_AWARE)
    with ConvolutionTraffic() as traffic, torch.no_grad():
        model.dtm(torch.zeros(1, 6, 32, 48))
    assert network_count(model, 32, 48, element).bytes == element * traffic.numbers


def test_a_baseline_counts_the_convolutions_of_its_fill() -> None:
    model = FlowNetS(FlowNetSConfig(width=4))
    inputs = torch.zeros(1, 3, 64, 128), torch.zeros(1, 2, 64, 128), torch.ones(1, 1, 64, 128)
    with FlopCounterMode(display=False) as counter, ConvolutionTraffic() as traffic, torch.no_grad():
        model.fill(*inputs)
    count = network_count(model, 64, 128, element=2)
    assert count.operations == counter.get_total_flops()
    assert count.bytes == 2 * traffic.numbers


def test_operations_of_the_diffusions_follow_steps_and_levels() -> None:
    counts = by_stage(FLOW_AWARE, 128, 64)
    pixels = [128 * 64, 64 * 32, 32 * 16, 16 * 8]
    for stage, steps, each in (("diffusion", FLOW_AWARE.steps, 28), ("first guess", FLOW_AWARE.guess_steps, 13)):
        visits = sum(n * size for n, size in zip(steps[::-1], pixels, strict=True))
        assert counts[stage].operations == 2 * each * visits
    assert counts["start"].operations == 2 * 13 * START_STEPS * pixels[-1]


def test_larger_images_have_more_levels_with_the_pull_start_only() -> None:
    config = NeuroexplicitConfig(width=6, start="pull")
    more = by_stage(config, 512, 512)["diffusion"].operations - by_stage(PAPER, 512, 512)["diffusion"].operations
    assert more == 2 * 28 * 5 * 32 * 32


def test_the_paper_has_no_guess() -> None:
    assert "first guess" not in by_stage(PAPER, 64, 64)
    assert by_stage(FLOW_AWARE, 64, 64).keys() == {
        "pyramid", "start", "first guess", "input", "network", "edge weights", "diffusion",
    }  # fmt: skip


def test_only_the_diffusions_move_more_step_by_step() -> None:
    counts = by_stage(FLOW_AWARE, 96, 80)
    moving_more = {stage for stage, count in counts.items() if count.stepwise > count.bytes}
    assert moving_more == {"start", "first guess", "diffusion"}
    weights_in_half, weights_in_float = (by_stage(FLOW_AWARE, 96, 80, element)["diffusion"] for element in (2, 4))
    assert weights_in_float.bytes - weights_in_half.bytes == 8 * sum(level_sizes(96, 80, 4))


def test_a_diffusion_reads_its_start_and_weights_once_and_writes_once() -> None:
    pixels = level_sizes(64, 64, 4)
    field, known, weights = 2 * 4, 1, 4 * 2
    once = sum((field + known + weights + field) * n for n in pixels) + field * sum(pixels[1:])
    assert by_stage(FLOW_AWARE, 64, 64)["diffusion"].bytes == once


def test_levels_end_at_a_single_pixel() -> None:
    assert level_sizes(5, 9) == [45, 15, 6, 2, 1]
    assert level_sizes(8, 8) == [64, 16, 4, 1]
    assert level_sizes(1, 1) == [1]


def test_a_tiny_image_is_counted_as_extended() -> None:
    assert neuroexplicit_counts(Neuroexplicit(PAPER), 1, 2, 4) == neuroexplicit_counts(Neuroexplicit(PAPER), 9, 9, 4)


def test_without_a_network_only_input_and_output_count() -> None:
    case = SpeedCase("nearest", 10, 20, "cpu", "auto")
    assert counts_of(case) == [StageCount("input and output", 0, 4 * 200 * 8, 4 * 200 * 8)]
