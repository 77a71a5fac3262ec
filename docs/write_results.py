"""Write the results page and its pictures from finished evaluations, and update the README's table.

    python docs/write_results.py evaluation [MORE...] --page docs/results.md --readme README.md

If two evaluations contain the same run, the first one counts. The samples of the picture are filled again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from results_page.evaluations import Results, mean_quality, merge, read_evaluation
from results_page.page import BEGIN, page_text, readme_block, replace_block, without_dead_links
from results_page.plots import plotted_densities, write_density_plot, write_sparsification_plot
from results_page.tables import ordered_methods

from flowinpaint.cli.console import say, tell_written
from flowinpaint.cli.zoom import draw_figure
from flowinpaint.errors import FileFormatError, InputError, MissingFileError
from flowinpaint.evaluation.report import short_names
from flowinpaint.evaluation.zoom_figure import own_frames
from flowinpaint.io import make_folder
from flowinpaint.methods import registry
from flowinpaint.text_tables import write_text
from flowinpaint.viz.plots import NO_PLOT, can_plot

_PAGE = "page.md"
_PICTURES = ("density.png", "zoom.jpg", "sparsification.png")
_ZOOM_CASE = 0.05
_ZOOM_METHODS = 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script; it exits with a sentence if an argument or a file is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluations", nargs="+", type=Path, help="folders that 'flowinpaint evaluate' wrote")
    parser.add_argument(
        "--page",
        type=Path,
        help=f"the page to write, with its pictures next to it; default {_PAGE} in the first folder",
    )
    parser.add_argument("--readme", type=Path, help=f"a file whose table between {BEGIN} and its end is renewed")
    parser.add_argument("--device", default="auto", help="where the samples are filled: auto, cpu, cuda, ...")
    options = parser.parse_args(arguments)
    try:
        write(options.evaluations, options.page or options.evaluations[0] / _PAGE, options.readme, options.device)
    except (InputError, FileFormatError, OSError) as error:
        sys.exit(f"Error: {error}")


def write(evaluations: Sequence[Path], page: Path, readme: Path | None, device: str) -> None:
    """Write the page and its pictures, and renew the table of the README, if one is named."""
    results = merge([read_evaluation(folder) for folder in evaluations])
    if readme is not None:  # before anything is written
        if not readme.is_file():
            raise MissingFileError(f"{readme}: there is no such file.")
        link = Path(os.path.relpath(page, readme.parent)).as_posix()
        text = replace_block(readme, readme.read_text(encoding="utf-8"), readme_block(results, link))
    make_folder(page.parent)
    pictures = [page.with_name(f"{page.stem}-{end}") for end in _PICTURES]
    for picture in pictures:
        picture.unlink(missing_ok=True)  # left by an earlier run with other results
    plot, zoom, sparsification = pictures
    _draw_plot(plot, results)
    _draw_zoom(zoom, results, device)
    _draw_sparsification(sparsification, results)
    drawn = [picture for picture in pictures if picture.exists()]
    content = page_text(results, *(picture.name if picture in drawn else None for picture in pictures))
    write_text(page, without_dead_links(content, page.parent))
    if readme is not None:
        write_text(readme, text)
    tell_written(page, *([] if readme is None else [readme]), *drawn)


def _draw_plot(path: Path, results: Results) -> None:
    if len(plotted_densities(results)) < 2:
        return
    if not can_plot():
        say("Note:", "yellow", NO_PLOT)
        return
    write_density_plot(path, results)


def _draw_zoom(path: Path, results: Results, device: str) -> None:
    """Draw the best methods that can run here."""
    known = registry.methods()
    found = [m for m in ordered_methods(results, results.cases) if m in known or Path(m).is_file()]
    if found:
        draw_figure(path, own_frames(_ZOOM_CASE), found[:_ZOOM_METHODS], _ZOOM_CASE, device)


def _draw_sparsification(path: Path, results: Results) -> None:
    """Draw sparsification curves of the methods that predict their errors, for one of the cases."""
    if not results.cases:
        return
    case = _ZOOM_CASE if _ZOOM_CASE in results.cases else results.cases[len(results.cases) // 2]
    names, curves = short_names(results.methods), {}
    for method in results.methods:
        if parts := results.qualities(method, case):
            mean = mean_quality(parts)
            curves[f"{names[method]}, expected error"] = mean.by_expected
            curves[f"{names[method]}, distance to the nearest given pixel"] = mean.by_distance
    if curves and can_plot():
        write_sparsification_plot(path, curves)


if __name__ == "__main__":
    main()
