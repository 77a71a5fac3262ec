"""Measurements of filled fields against the truth of their frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from flowinpaint.data.folder import Frame
from flowinpaint.evaluation.given_vectors import inlier_auc, wrong_share
from flowinpaint.evaluation.records import Measurement
from flowinpaint.evaluation.uncertainty import uncertainty_quality
from flowinpaint.metrics import epe, errors_over, fl_outliers
from flowinpaint.result import Result

Field = npt.NDArray[np.floating[Any]]


def measure(result: Result, frame: Frame) -> Measurement:
    """Compare the result of a method with the truth of its frame."""
    info, inliers = result.info, result.inliers
    noise: Any = info.get("noise")
    return Measurement(
        **_errors(result.flow, frame),
        seconds=info["seconds"],
        iterations=info["iterations"],
        residual=info["residual"],
        status=info["status"],
        threads=torch.get_num_threads(),
        uncertainty=uncertainty_quality(result, frame),
        noise=None if noise is None else float(noise),
        inlier_auc=inlier_auc(inliers, frame) if frame.vectors is not None and inliers is not None else None,
    )


def measure_field(flow: Field, frame: Frame) -> Measurement:
    """Compare a field (H, W, C) that was computed elsewhere with the truth of its frame."""
    return Measurement(
        **_errors(flow, frame),
        seconds=None,
        iterations=0,
        residual=None,
        status="complete",
        threads=torch.get_num_threads(),
    )


def _errors(flow: Field, frame: Frame) -> dict[str, Any]:
    """The fields of `Measurement` that any field has."""
    truth, valid = frame.truth, frame.valid
    hidden: npt.NDArray[np.bool_] = valid & ~frame.mask
    return {
        "epe": epe(flow, truth, valid),
        "epe_unknown": epe(flow, truth, hidden) if hidden.any() else None,
        "fl": fl_outliers(flow, truth, valid),
        "over_1": errors_over(flow, truth, 1, valid),
        "over_3": errors_over(flow, truth, 3, valid),
        "given": float(frame.mask.mean()),
        "wrong": wrong_share(frame) if frame.vectors is not None else None,
    }
