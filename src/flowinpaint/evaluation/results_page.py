"""The page of results and the table of the README, written from finished evaluations."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from flowinpaint.errors import FileFormatError
from flowinpaint.evaluation.finished import Evaluation, Results, short_names
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES, PAPER_TABLES
from flowinpaint.evaluation.report import masks_text, parameters_text
from flowinpaint.evaluation.results_tables import (
    WIDEST,
    case_groups,
    dataset_table,
    foresight_table,
    paper_table,
    readme_table,
    score_table,
)
from flowinpaint.masks.cases import Case, case_text
from flowinpaint.methods.neural import PAPER_STEPS

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
"""What stands between them in the README is replaced."""

_STEPS = ", ".join(map(str, PAPER_STEPS))

_DIFFERENCES = f"""\
Figures of the paper and of this page cannot be compared one by one, for they are not of the same frames. R, in
brackets, depends less on that: a method's EPE over that of Laplace-Beltrami on the same frames. The paper's R are of
its rounded figures. What differs:
- **Frames.** The paper takes the 384×384 pixels in the middle of Sintel's frames (final pass; so its published code has
  it) and KITTI 2015's training set. Here whole frames count, as many as stand above each table.
- **Pixels.** Here all valid pixels count. So they do in the paper, but that its text on KITTI speaks of those that were
  left out.
- **Masks.** Both are drawn at random, and on KITTI both take a share of all pixels from the measured ones; they are not
  the same masks.
- **Training.** The paper's networks learned from FlyingThings3D (final pass), one for each density, and EED was tuned
  there; AMLE and LB have the parameters that their authors chose for Sintel. Here networks learned from
  [generated scenes](training-data.md), and other methods have their default parameters unless the commands above say
  otherwise.
- **Steps.** The paper's diffusion takes 5, 15, 30, 45 steps from coarse to fine, and so did `neuroexplicit-paper` in
  training; here it takes {_STEPS}. [What that changes](training.md#the-papers-network).
- **Fl.** The paper's text counts errors above 3 px *or* 5 %; KITTI's rule, its code and this page count those above
  both."""


_ZOOM_CAPTION = """\
*5 % given at random. Below each picture is its part in the red box, where the truth has its strongest edges; EPE is in
px, over the picture and in the box. A landscape, and a scene of the kind that networks here learn from, with a number
that training does not get to. `flowinpaint zoom` draws the like of your own frames.*"""

_PLOT_CAPTION = "*All densities that were measured; R at those that every data set has pixels enough for.*"


_FORESIGHT = """\
Networks with `confidence` also tell how far off they expect to be (`result.expected_error`), and how likely a vector
is within 1 px (`result.confidence`). Means over all frames, and over the pixels that were not given. If pixels are
removed in the order of what is expected, the largest first, the error of the rest falls; **AUSE** is the area between
that curve and the one of an oracle that knows the errors, so 0 is best. Beside it stands that of the distance to the
nearest given pixel. Errors are measured in how much the given vectors differ; a single one tells nothing, and `single`
has no row."""


def without_dead_links(text: str, folder: Path) -> str:
    """The text for a page in a folder, where links to files that are not there are plain words."""
    link = re.compile(r"(?<!!)\[([^\]]*)\]\(([\w-]+\.md)[^)]*\)")
    return link.sub(lambda found: found[0] if (folder / found[2]).is_file() else found[1], text)


def page_text(results: Results, plot: str | None, zoom: str | None, foresight: str | None) -> str:
    """The page in Markdown; plot, zoom and foresight are links to its pictures, None where there is none."""
    parts = [
        "# Results",
        "*`flowinpaint results` writes this page and the table of the README from what `flowinpaint evaluate` "
        "measured. What is changed here by hand is lost.*",
        f"**R** is a method's mean EPE over that of `{results.reference}` on the same frames, and over data sets the "
        "geometric mean; below 1 is better. **EPE** (px) is over all valid pixels, the given ones included. **Fl** is "
        "the per cent of them that is off by more than 3 px and 5 %. Figures are means over a data set's frames, then "
        "over data sets; the best of a column is bold. [More on the measures](evaluate.md#what-is-measured) and on "
        "[the patterns](evaluate.md#patterns).",
        "## What was measured",
        "\n".join(f"- {command_text(evaluation)}, {machine_text(evaluation)}." for evaluation in results.evaluations),
        dataset_table(results),
        *_failures(results),
    ]
    if zoom is not None:
        parts += [f"![Samples, what is given of them, and what methods make of it]({zoom})", _ZOOM_CAPTION]
    for title, groups in case_groups(results.cases).items():
        parts.append(f"## {title}")
        for dataset in (None, *results.datasets):
            tables = [
                score_table(results, present, dataset) for cases in groups if (present := _in(results, cases, dataset))
            ]
            parts += [f"**{dataset or 'All data sets'}**", *tables] if tables else []
    if plot is not None:
        parts += ["## Over the density", f"![EPE and R over the density, on logarithmic axes]({plot})", _PLOT_CAPTION]
    if foreseen := foresight_table(results):
        parts += ["## How far off it may be", _FORESIGHT, foreseen]
        parts += [] if foresight is None else [f"![Sparsification curves, and the oracle's]({foresight})"]
    parts += ["## Beside the paper's figures", _DIFFERENCES]
    for table in PAPER_TABLES:
        figure = "EPE (px), in brackets R" if table.figure == "epe" else "Fl (%)"
        measured: list[str | None] = [name for name in results.datasets if table.is_of(name)]
        for dataset in measured or [None]:
            where = "not measured here" if dataset is None else f"{results.samples(dataset)} frames here"
            parts += [f"**{table.title}**: {figure}; {where}", paper_table(results, table, dataset)]
    return "\n\n".join(map(_wrapped, parts)) + "\n"


def readme_block(results: Results, page: str) -> str:
    """What stands between the markers of the README; page is the link to the page of results."""
    densities = [case for case in results.cases if case in PAPER_DENSITIES] or results.cases[:WIDEST]
    middle = densities[len(densities) // 2]
    counts = ", ".join(f"{results.samples(dataset)} of {dataset}" for dataset in results.datasets)
    frames = sum(results.samples(dataset) for dataset in results.datasets)
    scores = [score for score in results.scores if score.dataset is None and score.case == middle]
    what = f"On {frames} frames ({counts}), {masks_text(scores)}, means over data sets"
    return "\n\n".join(
        [
            _wrapped(f"{what}; `flowinpaint evaluate` {_machines(results)}:"),
            readme_table(results, densities, middle),
            f"[All data sets, patterns and densities, and the paper's figures beside them]({page})",
        ]
    )


def replace_block(path: Path, text: str, block: str) -> str:
    """The text of a file with what stands between its markers replaced; an error if it has not one of each."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise FileFormatError(f"{path}: has no place for the table; one line {BEGIN} and below it one {END} is taken")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def command_text(evaluation: Evaluation) -> str:
    """The command that an evaluation was made by, without the folders of its machine."""
    settings = evaluation.settings
    names = short_names(settings["methods"])
    options = {
        "--datasets": ",".join(settings["datasets"] or []),
        "--methods": ",".join(names.values()),
        "--densities": ",".join(f"{100 * density:g}" for density in settings["densities"]),
        "--patterns": ",".join(settings.get("patterns", [])),
        "--seed": str(settings["seed"] or ""),
        "--jobs": str(settings["jobs"]) if settings["jobs"] != 1 else "",
        "--device": evaluation.machine["device"],
    }
    command = " ".join(
        ["flowinpaint evaluate --root …", *(f"{key} {value}" for key, value in options.items() if value)]
    )
    used = {
        f"{names[method]} at {key}: {parameters_text(values)}"
        for method, by_case in settings["parameters"].items()
        for key, values in by_case.items()
    }
    return f"`{command}`" + (f" (parameters of {'; '.join(sorted(used))})" if used else "")


def machine_text(evaluation: Evaluation) -> str:
    """The machine of an evaluation, and the versions, in a few words."""
    machine = evaluation.machine
    threads = {record.measured.threads for record in evaluation.records if record.measured is not None}
    count = " or ".join(map(str, sorted(threads)))
    own = f", {count} thread{'' if count == '1' else 's'}" if machine["device"] == "cpu" else ""
    system = machine["platform"].partition("-")[0]
    return (
        f"on {machine['device_name']}{own} ({system}, torch {machine['torch']}, flowinpaint {machine['flowinpaint']})"
    )


def _machines(results: Results) -> str:
    """Where it was measured, with the methods of each machine if there are several."""
    names = short_names(results.methods)
    methods: dict[str, list[str]] = {}
    for method in results.methods:
        for place in results.sources[method]:
            text = machine_text(results.evaluations[place])
            methods[text] = [*methods.get(text, []), names[method]]
    if len(methods) == 1:
        return next(iter(methods))
    return "; ".join(f"{text}: {', '.join(dict.fromkeys(own))}" for text, own in methods.items())


def _wrapped(text: str) -> str:
    """A paragraph or a list in lines of 120 characters, a table or a picture as it is."""
    if text.startswith(("|", "!", "#")):
        return text
    return "\n".join(_fill(line) for line in text.splitlines())


def _fill(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _failures(results: Results) -> list[str]:
    """A list of the methods that failed on frames, if there are any: their figures are of the other frames."""
    names = short_names(results.methods)
    failed: dict[str, list[str]] = {}
    for score in results.scores:
        if score.dataset is None and score.failures:
            text = f"{case_text(score.case)} ({score.failures} of {score.samples} frames)"
            failed.setdefault(names[score.method], []).append(text)
    if not failed:
        return []
    lines = [f"- {name} failed at {', '.join(texts)}." for name, texts in failed.items()]
    return [
        "\n".join(["Figures are of the runs that succeeded, and R is of the frames where both methods did:", *lines])
    ]


def _in(results: Results, cases: Sequence[Case], dataset: str | None) -> list[Case]:
    """Those of the cases that a data set was measured in."""
    return [case for case in cases if any((s.case, s.dataset) == (case, dataset) for s in results.scores)]
