"""`flowinpaint evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from flowinpaint.cli.console import output, print_table, runs_bar, say, tell_written
from flowinpaint.cli.options import (
    Device,
    Durable,
    Jobs,
    MaxBytes,
    ParameterFile,
    Root,
    Seed,
    parse_list,
    parse_percents,
    parse_setting,
)
from flowinpaint.data.folder import find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.benchmark import check_variant, evaluate
from flowinpaint.evaluation.exported_inputs import export_inputs
from flowinpaint.evaluation.parameter_file import read_parameters
from flowinpaint.evaluation.report import (
    R_COLUMN,
    kinds_of_notes,
    left_out,
    overall_tables,
    partial_methods,
    run_text,
    write_reports,
)
from flowinpaint.evaluation.summary import summarise
from flowinpaint.evaluation.variants import Variant, parse_variant
from flowinpaint.interrupts import exit_code
from flowinpaint.masks.cases import INPUTS, PATTERNS, Case, check_inputs, check_patterns, nominal_share
from flowinpaint.methods.registry import usual_methods

_SHOWN = 3
_DENSITIES = "1,5,10"


def command(
    root: Root,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Names, .safetensors files or module:function, with +robust or +second; default all but the paper's "
            "baselines.",
        ),
    ] = None,
    densities: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Percentages of known pixels; default {_DENSITIES} unless --patterns or --inputs is set.",
        ),
    ] = None,
    patterns: Annotated[str | None, typer.Option(metavar="LIST", help=f"Mask patterns: {', '.join(PATTERNS)}.")] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="LIST", help=f"Imperfect inputs, computed or corrupted: {', '.join(INPUTS)}.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="Also measure another program's fields FOLDER/<case>/<dataset>/<sample>.flo; repeatable.",
        ),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(metavar="LIST", help="Names of the data sets to use; default all.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("evaluation"),
    reference: Annotated[str, typer.Option(help="Reference method of R; it is measured too.")] = "laplace-beltrami",
    preview: Annotated[bool, typer.Option("--preview", help="Also draw a picture per sample and mask.")] = False,
    jobs: Jobs = 1,
    seed: Seed = 0,
    device: Device = "auto",
    max_bytes: MaxBytes = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="METHOD.KEY=VALUE", help="Parameter of a method, such as eed.lam=1e-4; repeatable."
        ),
    ] = None,
    params: ParameterFile = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier runs in the output folder.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export-inputs",
            metavar="DIR",
            help="Only write images, known vectors and masks for other programs; --fields reads their results.",
        ),
    ] = None,
    durable: Durable = False,
) -> None:
    """Measure methods on frames with ground truth: errors, time, and R, the error relative to a reference method.

    If interrupted, the same command continues from there.
    """
    scored = _parse_fields(fields or [])
    baseline = [] if reference in scored else [parse_variant(reference)]
    for variant in baseline:
        check_variant(variant, "--reference")
        reference = variant.name
    asked = usual_methods() if methods is None else parse_list("--methods", methods)
    variants = {variant.name: variant for variant in (*map(parse_variant, asked), *baseline)}
    names = list(variants)
    named = [] if patterns is None else check_patterns(parse_list("--patterns", patterns), "--patterns")
    imperfect = [] if inputs is None else check_inputs(parse_list("--inputs", inputs), "--inputs")
    if densities is None and not named and not imperfect:
        densities = _DENSITIES
    shares = [] if densities is None else parse_percents(densities)
    chosen = None if datasets is None else parse_list("--datasets", datasets)
    if export is not None:
        if methods is not None or scored:
            raise InputError(
                "--export-inputs must not be combined with --methods or --fields, because it runs no methods"
            )
        _export(
            export, export_inputs(root, export, shares, patterns=named, inputs=imperfect, datasets=chosen, seed=seed)
        )
        return
    table = None if params is None else read_parameters(params)
    if table is not None and table.method not in {variant.method for variant in variants.values()}:
        raise InputError(f"{params}: must hold parameters of one of --methods, got those of {table.method}")
    given = _parse_settings(setting or [], variants)

    def parameters(name: str, case: Case) -> dict[str, float | str]:
        method = variants[name].method
        tuned = {} if table is None or table.method != method else table.at(nominal_share(case))
        return tuned | given.get(method, {}) | given.get(name, {})

    with runs_bar() as report:
        try:
            records = evaluate(
                root,
                names,
                shares,
                patterns=named,
                inputs=imperfect,
                fields=scored,
                datasets=chosen,
                out=out,
                parameters=parameters,
                seed=seed,
                device=device,
                jobs=jobs,
                pictures=preview,
                fresh=fresh,
                durable=durable,
                progress=report,
            )
        except KeyboardInterrupt:
            say("Stopped:", "yellow", f"finished runs are in {out}; the same command continues from there.")
            raise typer.Exit(exit_code()) from None
    scores = summarise(records, reference)
    settings = {
        "root": str(root),
        "datasets": chosen,
        "methods": names,
        "fields": {name: str(folder) for name, folder in scored.items()},
        "densities": shares,
        "patterns": named,
        "inputs": imperfect,
        "samples": [f"{sample.dataset}/{sample.name}" for sample in find_samples(root, chosen)],
        "seed": seed,
        "jobs": jobs,
        "parameters": {m: {str(c): p for c in [*shares, *named, *imperfect] if (p := parameters(m, c))} for m in names},
    }
    written = write_reports(out, records, scores, reference, settings, durable)
    for text_table in overall_tables(scores, reference):
        print_table(text_table, bold=R_COLUMN)
    tell_written(*written)
    for sentence in (*left_out(records, settings), *partial_methods(scores)):
        say("Note:", "yellow", sentence)
    if noted := sum(bool(record.notes) for record in records):
        say("Note:", "yellow", f"{noted} of {len(records)} runs left notes; results.md lists them all.")
        _say_some(kinds_of_notes(records))
    if failed := [record for record in records if record.measured is None]:
        advice = "results.md lists them all. The same command tries them again, for example after a fix."
        say("Failed:", "red", f"{len(failed)} of {len(records)} runs; {advice}")
        _say_some([f"{run_text(record.key)}: {record.error}" for record in failed])
        raise typer.Exit(1)


def _say_some(sentences: list[str]) -> None:
    """Print the first few sentences, and the number of the others."""
    for sentence in sentences[:_SHOWN]:
        say("  ", "", sentence)
    if len(sentences) > _SHOWN:
        say("  ", "", f"… and {len(sentences) - _SHOWN} more.")


def _parse_fields(texts: list[str]) -> dict[str, Path]:
    """Folders of fields by name, from NAME=FOLDER."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise InputError(f"--fields must be NAME=FOLDER, such as mine=results/mine, got {text!r}")
        if name in found:
            raise InputError(f"--fields must have different names, got {name!r} twice")
        found[name] = Path(folder)
    return found


def _export(out: Path, folders: Iterator[tuple[Path, str]]) -> None:
    """Write the inputs and tell where; exit with code 1 if one could not be written."""
    written: list[tuple[Path, str]] = []
    failed: list[tuple[Path, str]] = []
    for folder, error in folders:
        (failed if error else written).append((folder, error))
    if written:
        sentence = f"Wrote {len(written)} inputs to {out}; the first is in {written[0][0]}."
        output.print(Text(sentence), soft_wrap=True)
    for folder, error in failed[:_SHOWN]:
        say("Failed:", "red", f"{folder}: {error}")
    if failed:
        say("Failed:", "red", f"{len(failed)} of {len(written) + len(failed)} inputs were not written.")
        raise typer.Exit(1)


def _parse_settings(settings: list[str], variants: dict[str, Variant]) -> dict[str, dict[str, float | str]]:
    """Parameters by method or variant, from METHOD.KEY=VALUE."""
    known = dict.fromkeys(name for variant in variants.values() for name in (variant.method, variant.name))
    given: dict[str, dict[str, float | str]] = {}
    for text in settings:
        name, value = parse_setting(text, "METHOD.KEY=VALUE, such as eed.lam=1e-4")
        method, _, key = name.rpartition(".")  # the method may be a file name with dots
        if not method or not key:
            raise InputError(f"--set must be METHOD.KEY=VALUE, such as eed.lam=1e-4, got {text!r}")
        if (method := parse_variant(method).name) not in known:
            raise InputError(f"--set must name one of the methods {', '.join(known)}, got {text!r}")
        if key in given.setdefault(method, {}):
            raise InputError(f"--set must have each parameter once, got {method}.{key} twice")
        given[method][key] = value
    return given
