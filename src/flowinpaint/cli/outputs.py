"""`Outputs`: the files that `fill` and `depth` write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flowinpaint.cli.console import say, tell_written
from flowinpaint.errors import InputError
from flowinpaint.io import (
    Unit,
    check_flow_writable,
    check_image_writable,
    clip_to_format,
    new_folder,
    publishing,
    real_path,
    write_flow,
    write_image,
    write_map,
)
from flowinpaint.methods.builtin import DEFAULT_METHOD
from flowinpaint.methods.method import Method
from flowinpaint.result import Result
from flowinpaint.text_tables import write_text

MAP_SUFFIXES = (".pfm", ".npy", ".npz", ".tif", ".tiff")
"""Formats that can hold the value 0, which expected errors have where vectors are known."""
POINT_SUFFIXES = (".txt", ".csv")
"""Formats of one number per point."""


@dataclass(frozen=True)
class Outputs:
    """The dense field, maps of expected errors and of inlier probabilities, and a picture; None for those not wanted.

    unit: of a field in a 16-bit PNG of one channel. max_error: vectors with a larger expected error become unknown.
    durable: flush the files to disk.
    """

    field: Path
    errors: Path | None = None
    inliers: Path | None = None
    preview: Path | None = None
    unit: Unit | None = None
    max_error: float | None = None
    durable: bool = False

    def check_names(self, inputs: Sequence[Path | None], points: bool = False) -> None:
        """Raise InputError if an output would overwrite an input or another output, or a map has no suitable suffix.

        points: the input is a list of points, so that inliers may be a list, too.
        """
        taken = {real_path(path) for path in inputs if path is not None}
        for path in filter(None, (self.field, self.preview, self.errors, self.inliers)):
            if real_path(path) in taken:
                raise InputError(f"{path}: must not be an input or another output; choose another name")
            taken.add(real_path(path))
        for option, file in (("--errors", self.errors), ("--inliers", self.inliers)):
            suffixes = (*MAP_SUFFIXES, *(POINT_SUFFIXES if points and option == "--inliers" else ()))
            if file is not None and file.suffix.lower() not in suffixes:
                raise InputError(f"{option} must be a file name ending in {', '.join(suffixes)}, got {file}")

    def check_predicts(self, method: Method, judged: bool) -> None:
        """Raise InputError if an output needs expected errors, which the method predicts only if it judges vectors."""
        for option, wanted in (("--errors", self.errors), ("--max-error", self.max_error)):
            if wanted is not None and not (judged or method.gives_error):
                raise InputError(
                    f"{option} needs --robust, or a method that predicts its errors, such as {DEFAULT_METHOD}, got "
                    f"{method.name}"
                )

    def check_writable(self, channels: int) -> None:
        """Raise InputError if a file cannot be written."""
        check_flow_writable(self.field, channels, self.unit)
        for path in filter(None, (self.errors, self.inliers)):
            if path.suffix.lower() not in POINT_SUFFIXES:
                check_flow_writable(path, 1)
        if self.preview is not None:
            check_image_writable(self.preview)

    def _write_inliers(self, result: Result) -> None:
        """Write a map, or for the suffixes of lists of points one number per point, NaN for a skipped one."""
        assert result.arrays is not None
        if self.inliers is None or result.arrays.inliers is None:
            return
        if self.inliers.suffix.lower() not in POINT_SUFFIXES:
            write_map(self.inliers, result.arrays.inliers)
        elif result.points is not None:
            write_text(self.inliers, "".join(f"{p:.6g}\n" for p in result.points.inliers))

    def write(self, result: Result) -> Result:
        """Write the files of a result, after making their folders; all of them or, if one cannot be written, none.

        Returns the result as written.
        """
        assert result.arrays is not None
        for option, wanted in (("--errors", self.errors), ("--max-error", self.max_error)):
            if wanted is not None and result.arrays.expected_error is None:
                count = int(np.count_nonzero(result.arrays.known))
                raise InputError(f"{option} needs more known vectors for {result.info['method']}, got {count}")
        if self.max_error is not None:
            sure = replace(result, restore=None).trusted(self.max_error)
            result = replace(result, flow=sure, arrays=replace(result.arrays, flow=sure))
        arrays = result.arrays
        assert arrays is not None
        picture = None if self.preview is None else result.preview()
        stored = clip_to_format(self.field, arrays.flow, self.unit)
        files = filter(None, (self.field, self.errors, self.inliers, self.preview))
        with new_folder(*(path.parent for path in files), durable=self.durable), publishing(self.durable):
            write_flow(self.field, stored, unit=self.unit)
            if self.errors is not None and arrays.expected_error is not None:
                write_map(self.errors, arrays.expected_error)
            self._write_inliers(result)
            if self.preview is not None and picture is not None:
                write_image(self.preview, picture)
        filled = np.isfinite(arrays.flow).all(-1)
        if clipped := int((stored != arrays.flow).any(-1)[filled].sum()):
            say("Warning:", "yellow", f"{clipped} filled values were clipped to the range of a 16-bit PNG.")
        return result

    def tell_others(self) -> None:
        """Print the names of the files besides the field."""
        for path in filter(None, (self.errors, self.inliers, self.preview)):
            tell_written(path)
