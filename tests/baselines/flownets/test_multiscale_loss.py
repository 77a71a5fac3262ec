import math

import pytest
import torch

from flowinpaint.baselines.flownets.objective import SCALE_WEIGHTS
from flowinpaint.training.config import TrainingConfig
from flowinpaint.training.loop import build_step
from tiny_runs import CPU, tiny

pytestmark = pytest.mark.usefixtures("simple_scenes")


def config_of(**tables: dict[str, object]) -> TrainingConfig:
    return tiny(baseline={"kind": "flownets", "width": 4}, **tables)


def test_the_multiscale_loss_of_the_truth_is_nothing_and_weights_are_the_papers() -> None:
    training = build_step(config_of(data={"size": [64, 64], "batch": 2}), CPU)
    task = training.make_task(training.samples)
    truth = task.batch.flow
    scales = [torch.nn.functional.avg_pool2d(truth, 2**k) for k in range(len(SCALE_WEIGHTS))]
    assert training.objective.loss(scales, task).item() < 1e-2
    for k, weight in enumerate(SCALE_WEIGHTS):
        off = [scale + (torch.tensor([3.0, 4.0]).view(1, 2, 1, 1) if j == k else 0) for j, scale in enumerate(scales)]
        assert math.isclose(training.objective.loss(off, task).item(), 5 * weight, rel_tol=1e-2, abs_tol=2e-3)


def test_pixels_that_are_not_valid_do_not_count() -> None:
    training = build_step(config_of(data={"size": [64, 64], "batch": 2}), CPU)
    task = training.make_task(training.samples)
    valid = torch.ones_like(task.batch.valid)
    valid[..., :32] = 0
    task = task._replace(batch=task.batch._replace(valid=valid))
    predictions = training.model.predictions(task.batch.image, task.given, task.mask)  # type: ignore[operator]
    wrong = task._replace(batch=task.batch._replace(flow=torch.where(valid > 0, task.batch.flow, 1e6)))
    torch.testing.assert_close(*(training.objective.loss(predictions, t) for t in (task, wrong)))
