"""`flowinpaint results`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint.cli.console import output, say
from flowinpaint.cli.options import Device
from flowinpaint.cli.zoom import draw_figure
from flowinpaint.errors import MissingFileError
from flowinpaint.evaluation.density_plot import FEWEST, plotted_densities, write_density_plot
from flowinpaint.evaluation.finished import Results, merge, read_evaluation, short_names
from flowinpaint.evaluation.foresight import mean_foresight
from flowinpaint.evaluation.plotting import can_plot
from flowinpaint.evaluation.results_page import BEGIN, page_text, readme_block, replace_block, without_dead_links
from flowinpaint.evaluation.results_tables import foresights, ordered_methods
from flowinpaint.evaluation.sparsification_plot import write_sparsification_plot
from flowinpaint.evaluation.zoom_figure import own_frames
from flowinpaint.io import atomic_path, make_folder
from flowinpaint.methods import registry

_PAGE = "page.md"
_PICTURES = ("density.png", "zoom.jpg", "sparsification.png")
_ZOOM_CASE = 0.05
_ZOOM_METHODS = 5


def command(
    evaluations: Annotated[list[Path], typer.Argument(help="Folders that 'flowinpaint evaluate' wrote to.")],
    page: Annotated[
        Path | None,
        typer.Option(
            help=f"The page to write, pictures beside it; without it {_PAGE} in the first evaluation's folder."
        ),
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help=f"A file whose table between {BEGIN} and its end is renewed.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write a page of results and its pictures from finished evaluations, and renew a README's table.

    Of a run that several evaluations have, the first one's counts. The samples of the picture are filled anew.
    """
    results = merge([read_evaluation(folder) for folder in evaluations])
    page = page or evaluations[0] / _PAGE
    if readme is not None:  # before anything is written
        if not readme.is_file():
            raise MissingFileError(f"{readme}: there is no such file")
        link = Path(os.path.relpath(page, readme.parent)).as_posix()
        text = replace_block(readme, readme.read_text(encoding="utf-8"), readme_block(results, link))
    make_folder(page.parent)
    plot, zoom, foresight = (page.with_name(f"{page.stem}-{end}") for end in _PICTURES)
    drawn = _draw_plot(plot, results), _draw_zoom(zoom, results, device), _draw_foresight(foresight, results)
    pictures = [picture for picture in drawn if picture]
    content = page_text(results, *(None if picture is None else picture.name for picture in drawn))
    _write(page, without_dead_links(content, page.parent))
    if readme is not None:
        _write(readme, text)
    written = [page, *([] if readme is None else [readme]), *pictures]
    output.print(Text(f"Wrote {', '.join(map(str, written))}."), soft_wrap=True)


def _draw_plot(path: Path, results: Results) -> Path | None:
    path.unlink(missing_ok=True)  # an earlier one, of other figures
    if len(plotted_densities(results)) < FEWEST:
        return None
    if not can_plot():
        say("Note:", "yellow", "no plot was drawn; it needs matplotlib, the extra 'plots'.")
        return None
    write_density_plot(path, results)
    return path


def _draw_zoom(path: Path, results: Results, device: str) -> Path | None:
    """A picture of the best methods that can be run here."""
    path.unlink(missing_ok=True)
    known = registry.methods()
    there = [m for m in ordered_methods(results, results.cases) if m in known or Path(m).is_file()]
    if not there:
        return None
    draw_figure(path, own_frames(_ZOOM_CASE), there[:_ZOOM_METHODS], _ZOOM_CASE, device)
    return path


def _draw_foresight(path: Path, results: Results) -> Path | None:
    """Sparsification curves of the methods that foresee their errors, in the middle one of the cases."""
    path.unlink(missing_ok=True)
    case = _ZOOM_CASE if _ZOOM_CASE in results.cases else results.cases[len(results.cases) // 2]
    told = {method: parts for method in results.methods if (parts := foresights(results, method, case))}
    if not told or not can_plot():
        return None
    names, curves = short_names(results.methods), {}
    for method, parts in told.items():
        mean = mean_foresight(parts)
        curves[f"{names[method]}, expected error"] = mean.by_expected
        curves[f"{names[method]}, distance to the nearest given pixel"] = mean.by_distance
    write_sparsification_plot(path, curves)
    return path


def _write(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
