"""The results page and the README's table, written from finished evaluations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from flowinpaint.errors import FileFormatError, InputError
from flowinpaint.evaluation.paper_figures import PAPER_TABLES
from flowinpaint.evaluation.report import parameters_text, short_names
from flowinpaint.masks.cases import Case, case_text
from flowinpaint.neuroexplicit.config import PAPER_STEPS
from flowinpaint.text_tables import wrapped
from results_page.evaluations import Evaluation, Results
from results_page.inputs import PEERS, error_table, judgement_table, relative_errors, relative_table
from results_page.tables import (
    case_groups,
    dataset_table,
    paper_table,
    score_table,
    uncertainty_table,
)

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
"""The markers around the table of the README."""

ABOUT = """\
*`python docs/write_results.py` writes this page and the table of the README from the output of \
`flowinpaint evaluate`. Changes made here by hand are lost.*"""

_MEASURES = """\
**R** is a method's mean EPE over that of `{reference}` on the same frames, and over data sets the geometric mean; \
below 1 is better. **EPE** (px) is over all valid pixels, the given ones included. **Fl** is the per cent of them \
that is off by more than 3 px and 5 %. Figures are means over a data set's frames, then over data sets; the best of \
a column is bold. [More on the measures](evaluate.md#what-is-measured) and on [the patterns](evaluate.md#patterns)."""

_ZOOM_CAPTION = """\
*5 % given at random. Below each picture is its part in the red box, where the truth has its strongest edges; EPE is \
in px, over the picture and in the box. One row is a landscape, the other a scene of the training generator, with a \
number that training does not reach. `flowinpaint zoom` draws the same for your own frames.*"""

_PLOT_CAPTION = "*All measured densities; R at those for which every data set has enough pixels.*"

_UNCERTAINTY = """\
Networks with `confidence` also predict their endpoint error (`result.expected_error`) and the chance that a vector \
is within 1 px (`result.confidence`). The table has means over all frames, and over the pixels that were not given. \
If pixels are removed in the order of the expected error, the largest first, the error of the rest falls; **AUSE** \
is the area between that curve and the one of an oracle that knows the errors, so 0 is best. The last column is the \
AUSE of the distance to the nearest given pixel. Expected errors scale with the spread of the given vectors, so a \
single vector gives none, and `single` has no row."""

_INPUTS = f"""\
Here the given vectors are not the truth: they are computed from two images, or corrupted ([the \
inputs](evaluate.md#imperfect-inputs)). The first table has the EPE relative to that of the better of {PEERS[0]} and \
{PEERS[1]} on each data set, as geometric mean over data sets; below 1 is better. The next ones have the EPE (px) by \
data set, with the share of pixels that is given, and the share of these that is wrong (off by more than 3 px)."""

_OTHER_PAGE = "Imperfect given vectors, such as matches and tracks, have [a page of their own](results-imperfect.md)."

_JUDGEMENT = """\
How well methods that judge the given vectors tell right from wrong ones, as the area under the ROC curve (AUC): 1 is \
perfect, 0.5 chance. Means over a data set's frames, then over data sets:"""

_DIFFERENCES = f"""\
Figures of the paper and of this page are not of the same frames, so do not compare them one by one. R, in brackets, \
depends less on the frames: it is a method's EPE over that of Laplace-Beltrami on the same frames. The paper's R \
follow from its rounded figures. The differences:
- **Frames.** The paper uses the middle 384×384 pixels of Sintel's frames (final pass, according to its published \
code) and KITTI 2015's training set. Here whole frames count; their number stands above each table.
- **Pixels.** Here all valid pixels count, the given ones included. The paper does the same, except that its text on \
KITTI mentions only those that were not given.
- **Masks.** Both are drawn at random, and on KITTI both draw a share of all pixels from the measured ones; they are \
different masks.
- **Training.** The paper trained its networks on FlyingThings3D (final pass), one for each density, and tuned EED \
there; AMLE and LB have the parameters that their authors chose for Sintel. Here networks are trained on [generated \
scenes](training-data.md), and other methods have their default parameters unless the commands above say otherwise.
- **Steps.** The paper's diffusion has 5, 15, 30, 45 steps from coarse to fine, and so did `neuroexplicit-paper` in \
training; here it has {", ".join(map(str, PAPER_STEPS))}. [The effect](training-experiments.md#the-papers-network).
- **Fl.** The paper's text counts errors above 3 px *or* 5 %; KITTI's rule, the paper's code and this page count \
those above both."""


def without_dead_links(text: str, folder: Path) -> str:
    """The text of a page in a folder, with links to missing pages replaced by plain words."""
    link = re.compile(r"(?<!!)\[([^\]]*)\]\(([\w-]+\.md)[^)]*\)")
    return link.sub(lambda found: found[0] if (folder / found[2]).is_file() else found[1], text)


def page_text(results: Results, plot: str | None, zoom: str | None, sparsification: str | None) -> str:
    """The page in Markdown; plot, zoom and sparsification are links to its pictures, None for missing ones."""
    parts = [
        "# Results",
        ABOUT,
        _MEASURES.format(reference=results.reference),
        "## What was measured",
        "\n".join(f"- {command_text(evaluation)}, {machine_text(evaluation)}." for evaluation in results.evaluations),
        dataset_table(results),
        *_failures(results),
        *([] if results.inputs else [_OTHER_PAGE]),
    ]
    if zoom is not None:
        parts += [f"![Samples, their given vectors, and the results of methods]({zoom})", _ZOOM_CAPTION]
    for title, groups in case_groups(results.cases).items():
        parts.append(f"## {title}")
        for dataset in (None, *results.datasets):
            measured_groups = [_measured(results, cases, dataset) for cases in groups]
            tables = [score_table(results, cases, dataset) for cases in measured_groups if cases]
            parts += [f"**{dataset or 'All data sets'}**", *tables] if tables else []
    parts += _input_parts(results)
    if plot is not None:
        parts += ["## Over the density", f"![EPE and R over the density, on logarithmic axes]({plot})", _PLOT_CAPTION]
    if predicted := uncertainty_table(results):
        parts += ["## Expected errors", _UNCERTAINTY, predicted]
        parts += [] if sparsification is None else [f"![Sparsification curves, and the oracle's]({sparsification})"]
    parts += ["## Comparison with the paper", _DIFFERENCES]
    for table in PAPER_TABLES:
        figure = "EPE (px), in brackets R" if table.figure == "epe" else "Fl (%)"
        measured: list[str | None] = [name for name in results.datasets if table.is_of(name)]
        for dataset in measured or [None]:
            where = "not measured here" if dataset is None else f"{results.samples(dataset)} frames here"
            parts += [f"**{table.title}**: {figure}; {where}", paper_table(results, table, dataset)]
    return "\n\n".join(map(wrapped, parts)) + "\n"


def _input_parts(results: Results) -> list[str]:
    """The section on imperfect inputs; empty without any."""
    if not results.inputs:
        return []
    errors = relative_errors(results)
    relative, judged = relative_table(results, errors), judgement_table(results)
    parts = ["## Imperfect inputs", _INPUTS, *(["**All data sets**: relative EPE", relative] if relative else [])]
    for dataset in results.datasets:
        if table := error_table(results, errors, dataset):
            parts += [f"**{dataset}**: EPE (px)", table]
    return [*parts, *([_JUDGEMENT, judged] if judged else [])]


def readme_block(results: Results, page: str) -> str:
    """The text between the markers of the README; page is the link to the results page."""
    table = relative_table(results, relative_errors(results))
    if not table:
        raise InputError(f"evaluations must have {PEERS[0]} or {PEERS[1]} for the table of --readme, got neither")
    frames = sum(results.samples(dataset) for dataset in results.datasets)
    names = ", ".join(results.datasets)
    what = (
        f"EPE divided by the lower EPE of OpenCV's two interpolators, geometric mean of {len(results.datasets)} data "
        f"sets ({names}), {frames} frames; `flowinpaint evaluate` {_machines(results)}"
    )
    return "\n\n".join([wrapped(f"{what}:"), table, f"[Each data set, the command and the inputs]({page})"])


def replace_block(path: Path, text: str, block: str) -> str:
    """The text of a file with a new block between its markers; it must have one of each marker."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise FileFormatError(f"{path}: must have one line {BEGIN} and below it one line {END}.")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def command_text(evaluation: Evaluation) -> str:
    """The command that made an evaluation, without the folders of its machine."""
    settings = evaluation.settings
    names = short_names(settings["methods"])
    options = {
        "--datasets": ",".join(settings["datasets"] or []),
        "--methods": ",".join(names.values()),
        "--densities": ",".join(f"{100 * density:g}" for density in settings["densities"]),
        "--patterns": ",".join(settings.get("patterns", [])),
        "--inputs": ",".join(settings.get("inputs", [])),
        "--seed": str(settings["seed"] or ""),
        "--jobs": str(settings["jobs"]) if settings["jobs"] != 1 else "",
        "--device": evaluation.machine["device"],
    }
    chosen = (f"{key} {value}" for key, value in options.items() if value)
    command = " ".join(["flowinpaint evaluate --root …", *chosen])
    used = {
        f"{names[method]} at {key}: {parameters_text(values)}"
        for method, by_case in settings["parameters"].items()
        for key, values in by_case.items()
    }
    return f"`{command}`" + (f" (parameters of {'; '.join(sorted(used))})" if used else "")


def machine_text(evaluation: Evaluation) -> str:
    """The machine and software of an evaluation."""
    machine = evaluation.machine
    threads = {record.measured.threads for record in evaluation.records if record.measured is not None}
    count = " or ".join(map(str, sorted(threads)))
    own = f", {count} thread{'' if count == '1' else 's'}" if machine["device"] == "cpu" else ""
    software = (
        f"{machine['platform'].partition('-')[0]}, torch {machine['torch']}, flowinpaint {machine['flowinpaint']}"
    )
    return f"on {machine['device_name']}{own} ({software})"


def _machines(results: Results) -> str:
    """The machines of the evaluations, with their methods if there are several."""
    names = short_names(results.methods)
    methods: dict[str, list[str]] = {}
    for method in results.methods:
        for place in results.sources[method]:
            text = machine_text(results.evaluations[place])
            methods[text] = [*methods.get(text, []), names[method]]
    if len(methods) == 1:
        return next(iter(methods))
    return "; ".join(f"{text}: {', '.join(dict.fromkeys(own))}" for text, own in methods.items())


def _failures(results: Results) -> list[str]:
    """The methods that failed on frames, as a list; empty without any."""
    names = short_names(results.methods)
    failed: dict[str, list[str]] = {}
    for score in results.scores:
        if score.dataset is None and score.failures:
            text = f"{case_text(score.case)} ({score.failures} of {score.samples} frames)"
            failed.setdefault(names[score.method], []).append(text)
    if not failed:
        return []
    head = "Figures are of the runs that succeeded, and R is of the frames where both methods did:"
    return ["\n".join([head, *(f"- {name} failed at {', '.join(texts)}." for name, texts in failed.items())])]


def _measured(results: Results, cases: Sequence[Case], dataset: str | None) -> list[Case]:
    """The cases that were measured on a data set."""
    return [case for case in cases if any((s.case, s.dataset) == (case, dataset) for s in results.scores)]
