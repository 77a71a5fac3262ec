"""Inputs of an evaluation as files, for programs that fill fields on their own.

    <folder>/<case>/<dataset>/<sample>/{image.png, given.flo, mask.png}

given.flo, or given.pfm for one channel, has the known vectors; the others are marked as unknown. mask.png is white
where they are known. Samples with a next image also have image2.png. A program that writes flow.flo into the same
folders makes <folder> an argument of `fields` (see `scored_fields`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from flowinpaint.data.folder import IMAGE, SECOND, Frame, Sample, find_samples
from flowinpaint.errors import InputError, sentence_of
from flowinpaint.evaluation.benchmark import check_cases, check_outside
from flowinpaint.io import (
    FLOW_SUFFIXES,
    StrPath,
    check_folder_writable,
    new_folder,
    publishing,
    read_flow,
    write_flow,
    write_mask,
)
from flowinpaint.io.files import write_bytes
from flowinpaint.masks.cases import Case, case_label


def export_inputs(
    root: StrPath,
    out: StrPath,
    densities: Sequence[float],
    *,
    patterns: Sequence[str] = (),
    inputs: Sequence[str] = (),
    datasets: Collection[str] | None = None,
    seed: int = 0,
) -> Iterator[tuple[Path, str]]:
    """Write the inputs that `evaluate` with the same arguments fills; yield each folder, and an error message or ""."""
    cases = check_cases(densities, patterns, inputs)
    samples = find_samples(root, datasets)
    check_outside(out, root)
    check_folder_writable(out)
    for sample in samples:
        for case in sample.possible(cases):
            home = Path(out) / case_label(case) / sample.dataset / sample.name
            try:
                _export(sample, case, seed, home)
            except (ValueError, OSError) as error:
                yield home, sentence_of(error)
            else:
                yield home, ""


def _export(sample: Sample, case: Case, seed: int, folder: Path) -> None:
    frame = sample.load(case, seed)
    given = folder / ("given.flo" if frame.given.shape[2] == 2 else "given.pfm")
    _check_earlier(folder, given.name, frame)
    with new_folder(folder), publishing():
        write_bytes(folder / IMAGE, sample.image.read_bytes())
        if sample.second is not None:
            write_bytes(folder / SECOND, sample.second.read_bytes())
        write_flow(given, frame.given, frame.mask)
        write_mask(folder / "mask.png", frame.mask)


def _check_earlier(folder: Path, given: str, frame: Frame) -> None:
    """InputError if the folder has a field that was computed from other vectors; it would count as one of these."""
    fields = [folder / f"flow{suffix}" for suffix in FLOW_SUFFIXES if (folder / f"flow{suffix}").exists()]
    if not fields or not (folder / given).exists():
        return
    vectors, mask = read_flow(folder / given)
    if not np.array_equal(mask, frame.mask) or not np.array_equal(vectors[mask], frame.given[mask]):
        raise InputError(
            f"{fields[0].name} must be of these vectors, got others; remove it, or export to another folder"
        )
