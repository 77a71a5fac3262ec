"""`evaluate`: every method on every frame of a folder, at every density, with every pattern and every input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from flowinpaint.checks import check_device
from flowinpaint.data.folder import Sample, file_hash, find_samples
from flowinpaint.errors import InputError
from flowinpaint.evaluation.paper_figures import PAPER_DENSITIES
from flowinpaint.evaluation.records import Record, RecordStore, open_store
from flowinpaint.evaluation.runner import Job, Step, complete, frame_key
from flowinpaint.evaluation.scored_fields import field_folders
from flowinpaint.evaluation.variants import ROBUST, SECOND, Variant, parse_variant
from flowinpaint.io import StrPath, new_folder, real_path
from flowinpaint.masks.cases import Case, case_label, case_text, check_inputs, check_patterns, why_left_out
from flowinpaint.methods.functions import fingerprint
from flowinpaint.methods.registry import all_methods, get_method
from flowinpaint.networks.weights import WEIGHTS_SUFFIX, check_shipped

Parameters = Callable[[str, Case], dict[str, float | str]]
"""Parameters of a method, by its name and the density, pattern or input."""


def evaluate(
    root: StrPath,
    methods: Sequence[str],
    densities: Sequence[float] = PAPER_DENSITIES,
    *,
    patterns: Sequence[str] = (),
    inputs: Sequence[str] = (),
    fields: Mapping[str, StrPath] | None = None,
    datasets: Collection[str] | None = None,
    out: StrPath | None = None,
    parameters: Parameters = lambda method, case: {},
    seed: int = 0,
    device: str | torch.device = "auto",
    jobs: int = 1,
    pictures: bool = False,
    fresh: bool = False,
    durable: bool = False,
    progress: Callable[[Step], None] | None = None,
) -> list[Record]:
    """Fill every frame below root (see `data.folder`) by every method, and measure the errors.

    methods: names, paths of .safetensors files, or "module:function", perhaps with options ("neuroexplicit+robust"; see
    `variants`). fields: folders of fields that another program computed, by a name (see `scored_fields`).
    densities: fractions of the pixels in (0, 1]; frames with too few valid pixels for a density are skipped.
    patterns, inputs: names of `masks.cases.PATTERNS` and `INPUTS`; frames that lack the files of an input are skipped.
    out: a folder for the finished records (records.jsonl); a second call continues from there. It repeats runs
    whose files, parameters or version changed, or all runs if `fresh`. pictures: also draw
    out/previews/<dataset>/<sample>_<case>.png. jobs: processes; more than one needs a main program that can be
    imported. A method that raises on a frame gives a record with an error. durable: flush records and pictures to disk
    as they are written.
    """
    if pictures and out is None:
        raise InputError("out must be a folder if pictures is True, got None")
    cases = check_cases(densities, patterns, inputs)
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    if unnamed := [method for method in methods if not isinstance(method, str)]:
        kind = type(unnamed[0]).__name__
        raise InputError(f"methods must be names; register_method gives a function a name; got an object, {kind}")
    variants = {variant.name: variant for variant in map(parse_variant, methods)}
    weights = {name: check_variant(variant) for name, variant in variants.items()}
    if not weights and not fields:
        raise InputError("methods must name at least one method, got none")
    chosen = str(check_device(device))
    samples = find_samples(root, datasets)
    runs = {(m, c): parameters(m, c) for m in weights for c in cases}
    for (name, _), values in runs.items():
        get_method(variants[name].method).check_parameters(values)

    folder = None if out is None else Path(out)
    scored = field_folders(fields or {}, cases, samples, weights)
    plan = []
    for sample in samples:
        for case in sample.possible(cases):
            key = frame_key(sample, case, seed, chosen)
            second = "" if sample.second is None else file_hash(sample.second)
            named = tuple(
                replace(key, method=m, parameters=runs[m, case], weights=w, second=second if variants[m].second else "")
                for m, w in weights.items()
                if second or not variants[m].second
            )
            files = {own.name: own.file(sample, case) for own in scored}
            named += tuple(
                replace(key, method=name, weights=file_hash(file) if file.exists() else "")
                for name, file in files.items()
            )
            picture = f"previews/{sample.dataset}/{sample.name}_{case_label(case)}.png"
            if named:
                drawn = folder / picture if pictures and folder else None
                plan.append(Job(sample, named, drawn, files, durable))
    if not plan:
        raise InputError(_nothing_to_run(cases, variants.values(), samples))
    if folder is None:
        return complete(RecordStore(), plan, jobs, progress)
    check_outside(folder, root)
    with new_folder(folder, durable=durable), open_store(folder / "records.jsonl", fresh, durable) as store:
        return complete(store, plan, jobs, progress)


def check_cases(densities: Sequence[float], patterns: Sequence[str] = (), inputs: Sequence[str] = ()) -> list[Case]:
    """The densities, patterns and inputs, each once; InputError unless there is at least one and all are valid."""
    named: list[Case] = [*check_patterns(list(patterns)), *check_inputs(list(inputs))]
    if not densities and not named:
        raise InputError("densities must have at least one share, got none")
    for density in densities:
        if not 0 < density <= 1:
            raise InputError(f"densities must be shares above 0 and at most 1, got {density:g}")
    return [*dict.fromkeys(densities), *named]


def check_outside(out: StrPath, root: StrPath) -> None:
    """InputError if an output folder lies inside the root, where it would be read as a data set."""
    if real_path(out).is_relative_to(real_path(root)):
        raise InputError(f"{out}: must lie outside of the root {root}")


def check_variant(variant: Variant, argument: str = "methods") -> str:
    """A hash of the weights or the source that a variant needs, else ""; InputError unless it can run."""
    weights = check_method(variant.method, argument)
    judged = variant.robust or variant.second
    if judged and not get_method(variant.method, argument).takes_weights:
        fit = ", ".join(method.name for method in all_methods() if method.takes_weights)
        option = ROBUST if variant.robust else SECOND
        raise InputError(
            f"{argument} must have {option} only after {fit} or a file of their kind, got {variant.name!r}"
        )
    return weights


def check_method(method: str, argument: str = "methods") -> str:
    """A hash of a method's weights or of a user's function, else ""; InputError unless the method can run."""
    if method.endswith(WEIGHTS_SUFFIX):
        if not Path(method).is_file():
            raise InputError(f"{argument}: there is no file {method!r}")
        return file_hash(Path(method))
    found = get_method(method, argument)
    if found.weights is None:
        return fingerprint(found)
    if found.shipped:
        check_shipped(found.weights)  # once, not in every run
    return file_hash(found.weights)


def _nothing_to_run(cases: Sequence[Case], variants: Iterable[Variant], samples: Sequence[Sample]) -> str:
    """The message of the error if no frame has a run."""
    if all(variant.second for variant in variants) and not any(sample.second for sample in samples):
        return f"methods: {SECOND} needs frames with image2.png, got none"
    densities = [case for case in cases if not isinstance(case, str)]
    if densities:
        return f"densities: {100 * min(densities):g} % needs more valid pixels than any frame has"
    reasons = " and ".join(dict.fromkeys(map(why_left_out, cases)))
    return f"inputs: {', '.join(map(case_text, cases))} must have vectors in a frame, got none: {reasons}"
