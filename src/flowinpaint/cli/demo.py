"""`flowinpaint demo`: a generated scene, its sparse flow filled by every method, and a picture of the results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from flowinpaint.api import inpaint
from flowinpaint.cli.console import output, solver_bar, warnings_told
from flowinpaint.cli.options import Device
from flowinpaint.data.demo_scene import sample_scene
from flowinpaint.errors import InputError
from flowinpaint.io import check_folder_writable, new_folder, publishing, write_flow, write_image, write_mask
from flowinpaint.masks import random_mask
from flowinpaint.methods.registry import get_method, usual_methods
from flowinpaint.metrics import epe, fl_outliers
from flowinpaint.opencv import load_opencv
from flowinpaint.viz.sheet import preview


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("demo"),
    density: Annotated[float, typer.Option(help="Share of known pixels, from 0 to 1.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scene and the mask.")] = 0,
    device: Device = "auto",
) -> None:
    """Fill the sparse flow of a generated scene with every method, and draw the results.

    The files are image.png, truth.flo, given.flo (unknown vectors marked), mask.png, one .flo per method, and demo.png.
    """
    check_folder_writable(out)
    load_opencv()  # raises its error before the fills
    if not 0 < density <= 1:
        raise InputError(f"--density must be above 0 and at most 1, got {density}")
    image, truth = sample_scene(seed=seed)
    mask = random_mask((truth.shape[0], truth.shape[1]), density, seed)
    given = np.where(mask[..., None], truth, np.nan).astype(np.float32)
    results = {}
    with solver_bar() as report, warnings_told():
        for method in usual_methods():
            if get_method(method).is_network:
                inpaint(image, given, method=method, device=device)  # the first call may compile, which is not timed
            results[method] = inpaint(image, given, method=method, device=device, progress=partial(report, method))
    errors = {method: epe(result.flow, truth) for method, result in results.items()}
    best_first = sorted(results, key=lambda method: errors[method])

    labelled = {method: (results[method].flow, f"{results[method].info['seconds']:.2f} s") for method in best_first}
    picture = preview(image, given, mask, labelled, truth)
    with new_folder(out), publishing():
        write_image(out / "image.png", image)
        write_flow(out / "truth.flo", truth)
        write_flow(out / "given.flo", given)
        write_mask(out / "mask.png", mask)
        for method, result in results.items():
            write_flow(out / f"{method}.flo", result.flow)
        write_image(out / "demo.png", picture)

    table = Table(title=f"Sample scene {seed}, {100 * density:g} % of the vectors given")
    table.add_column("method", min_width=max(map(len, results)))
    for heading in ("EPE (px)", "Fl (%)", "seconds", "iterations", "status"):
        table.add_column(heading, justify="left" if heading == "status" else "right")
    for method in best_first:
        info, outliers = results[method].info, fl_outliers(results[method].flow, truth)
        numbers = (f"{errors[method]:.3f}", f"{outliers:.2f}", f"{info['seconds']:.2f}", str(info["iterations"]))
        table.add_row(method, *numbers, info["status"])
    output.print(table)
    output.print(f"Look at {out / 'demo.png'}; the fields are in the same folder as .flo files.", highlight=False)
