"""`flowinpaint evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from flowinpaint.cli.console import messages, output, runs_bar, say
from flowinpaint.cli.options import (
    Device,
    Jobs,
    ParameterFile,
    Root,
    Seed,
    parse_list,
    parse_percents,
    parse_setting,
)
from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_method, evaluate, failures
from flowinpaint.evaluation.parameter_file import ParameterTable, read_parameters
from flowinpaint.evaluation.records import Record
from flowinpaint.evaluation.report import (
    R_COLUMN,
    TextTable,
    left_out,
    left_out_text,
    overall_tables,
    write_reports,
)
from flowinpaint.evaluation.summary import summarise
from flowinpaint.masks.cases import PATTERNS, Case, case_text, check_patterns, nominal_share
from flowinpaint.methods.registry import usual_methods

_SHOWN_FAILURES = 3
_METHOD_WIDTH = 24
_DENSITIES = "1,5,10"


def command(
    root: Root,
    methods: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Names or .safetensors files; without it, all but the paper's baselines."),
    ] = None,
    densities: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Shares of the pixels that are given, in per cent; {_DENSITIES} without it and --patterns.",
        ),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(metavar="LIST", help=f"Masks of other kinds: {', '.join(PATTERNS)}."),
    ] = None,
    datasets: Annotated[str | None, typer.Option(metavar="LIST", help="Only these data sets.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("evaluation"),
    reference: Annotated[str, typer.Option(help="The method R compares with; it is run too.")] = "laplace-beltrami",
    preview: Annotated[bool, typer.Option("--preview", help="Also draw a picture per sample and mask.")] = False,
    jobs: Jobs = 1,
    seed: Seed = 0,
    device: Device = "auto",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.KEY=VALUE", help="A parameter of a method, e.g. eed.lam=1e-4."),
    ] = None,
    params: ParameterFile = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier runs left in the folder.")] = False,
) -> None:
    """Measure methods on frames with ground truth: errors, time, and R, the error relative to a reference method.

    Stopped and called again with the same folder, it goes on where it was.
    """
    check_method(reference, "--reference")
    names = usual_methods() if methods is None else parse_list("--methods", methods)
    names = list(dict.fromkeys([*names, reference]))
    named = [] if patterns is None else check_patterns(parse_list("--patterns", patterns), "--patterns")
    if densities is None and not named:
        densities = _DENSITIES
    shares = [] if densities is None else parse_percents(densities)
    chosen = None if datasets is None else parse_list("--datasets", datasets)
    table = None if params is None else read_parameters(params)
    if table is not None and table.method not in names:
        raise InputError(f"{params}: holds parameters of {table.method}, which is none of --methods")
    given = _parse_settings(setting or [], names)

    def parameters(method: str, case: Case) -> dict[str, float | str]:
        return _from_table(table, method, case) | given.get(method, {})

    with runs_bar() as report:
        try:
            records = evaluate(
                root,
                names,
                shares,
                patterns=named,
                datasets=chosen,
                out=out,
                parameters=parameters,
                seed=seed,
                device=device,
                jobs=jobs,
                pictures=preview,
                fresh=fresh,
                progress=report,
            )
        except KeyboardInterrupt:
            say("Stopped:", "yellow", f"what is finished is in {out}; the same command goes on from there.")
            raise typer.Exit(130) from None
    scores = summarise(records, reference)
    settings = {
        "root": str(root),
        "datasets": chosen,
        "methods": names,
        "densities": shares,
        "patterns": named,
        "seed": seed,
        "jobs": jobs,
        "parameters": {m: {str(c): p for c in [*shares, *named] if (p := parameters(m, c))} for m in names},
    }
    written = write_reports(out, records, scores, reference, settings)
    for text_table in overall_tables(scores, reference):
        output.print(_rich_table(text_table))
    output.print(Text(f"Wrote {', '.join(map(str, written))}."), soft_wrap=True)
    for case, missing in left_out(records).items():
        say("Note:", "yellow", left_out_text(case, missing))
    _say_notes(records)
    if failed := failures(records):
        _say_failures(failed, len(records))
        raise typer.Exit(1)


def _from_table(table: ParameterTable | None, method: str, case: Case) -> dict[str, float | str]:
    return {} if table is None or table.method != method else table.at(nominal_share(case))


def _parse_settings(settings: list[str], methods: list[str]) -> dict[str, dict[str, float | str]]:
    """Parameters by method, from METHOD.KEY=VALUE."""
    form = "METHOD.KEY=VALUE, for example eed.lam=1e-4"
    given: dict[str, dict[str, float | str]] = {}
    for text in settings:
        name, value = parse_setting(text, form)
        method, _, key = name.rpartition(".")  # the method may be a file, with a point of its own
        if not method or not key:
            raise InputError(f"--set must be {form}, got {text!r}")
        if method not in methods:
            raise InputError(f"--set: {text!r} was given; its method is none of {', '.join(methods)}")
        given.setdefault(method, {})[key] = value
    return given


def _rich_table(table: TextTable) -> Table:
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))  # to fit 80 characters
    drawn.add_column(table.headings[0], min_width=min(_METHOD_WIDTH, max(len(row[0]) for row in table.rows)))
    for i, heading in enumerate(table.headings[1:], 1):
        drawn.add_column(
            heading.replace("EPE unknown", "EPE\nunknown"),
            justify="right",
            style="bold green" if i == R_COLUMN else None,
        )
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    return drawn


def _say_notes(records: list[Record]) -> None:
    if noted := sum(bool(record.notes) for record in records):
        say("Note:", "yellow", f"methods left notes on {noted} of {len(records)} runs; results.md lists them.")


def _say_failures(failed: list[Record], total: int) -> None:
    say("Failed:", "red", f"{len(failed)} of {total} runs; the same command tries them again.")
    for record in failed[:_SHOWN_FAILURES]:
        key = record.key
        say("  ", "", f"{key.dataset}/{key.sample}, {case_text(key.case)}, {key.method}: {record.error}")
    if len(failed) > _SHOWN_FAILURES:
        messages.print("   …")
