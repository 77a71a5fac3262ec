"""The demonstration: a generated scene, its sparse flow filled by every method, and a picture of the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from flowinpaint.api import inpaint
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.io import check_folder_writable, make_folder, write_flow, write_image, write_mask
from flowinpaint.masks import random_mask
from flowinpaint.methods.registry import get_method, usual_methods
from flowinpaint.metrics import epe, fl_outliers
from flowinpaint.result import Progress
from flowinpaint.viz.sheet import preview


@dataclass(frozen=True)
class Row:
    """One method on the demo scene: errors over all pixels, time and convergence."""

    method: str
    epe: float
    fl: float
    seconds: float
    iterations: int
    status: str


def run_demo(
    folder: Path,
    density: float,
    seed: int,
    device: str | torch.device,
    progress: Callable[[str, Progress], None] | None = None,
) -> list[Row]:
    """Fill the sample scene's flow from a random share of its vectors, and write everything to a folder.

    The files are image.png, truth.flo, given.flo (unknown vectors marked), mask.png, one .flo per method, and demo.png.
    Returns one row per method, the best first.
    """
    folder = Path(folder)
    check_folder_writable(folder)
    if not 0 < density <= 1:
        raise InputError(f"density must be above 0 and at most 1, got {density}")
    image, truth = sample_scene(seed=seed)
    mask = random_mask((truth.shape[0], truth.shape[1]), density, seed)
    given = np.where(mask[..., None], truth, np.nan).astype(np.float32)

    rows, flows = [], {}
    for method in usual_methods():
        if get_method(method).is_network:
            inpaint(image, given, method=method, device=device)  # the first call compiles, which must not count
        report = None if progress is None else (lambda p, method=method: progress(method, p))
        result = inpaint(image, given, method=method, device=device, progress=report)
        info = result.info
        error, outliers = epe(result.flow, truth), fl_outliers(result.flow, truth)
        rows.append(Row(method, error, outliers, info["seconds"], info["iterations"], info["status"]))
        flows[method] = result.flow

    rows.sort(key=lambda row: row.epe)
    make_folder(folder)
    write_image(folder / "image.png", image)
    write_flow(folder / "truth.flo", truth)
    write_flow(folder / "given.flo", given)
    write_mask(folder / "mask.png", mask)
    for method, flow in flows.items():
        write_flow(folder / f"{method}.flo", flow)
    labelled = {row.method: (flows[row.method], f"{row.seconds:.2f} s") for row in rows}
    write_image(folder / "demo.png", preview(image, given, mask, labelled, truth))
    return rows
