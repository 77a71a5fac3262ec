"""Measuring methods on folders of frames with ground truth, and tuning them there."""

from flowinpaint.evaluation.benchmark import evaluate
from flowinpaint.evaluation.records import Record
from flowinpaint.evaluation.summary import Score, summarise

__all__ = ["Record", "Score", "evaluate", "summarise"]
