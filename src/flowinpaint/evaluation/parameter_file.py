"""Parameter files: parameters of a method in a small JSON file, one set for all densities or one for each.

{"method": "eed", "lam": 1e-4, "alpha": 0.3}
{"method": "eed", "by_density": {"0.01": {"lam": 1e-4, "alpha": 0.42}, "0.05": {"lam": 1e-4, "alpha": 0.3}}}
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowinpaint.errors import FileFormatError, InputError, check_file
from flowinpaint.io import StrPath
from flowinpaint.io.files import existing_file
from flowinpaint.methods.registry import get_method
from flowinpaint.text_tables import write_text

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class ParameterTable:
    """Parameters of a method by the density they were tuned for; a single entry serves all densities."""

    method: str
    by_density: dict[float, dict[str, float | str]]

    def at(self, density: float) -> dict[str, float | str]:
        """The parameters of the nearest density, by ratio."""
        nearest = min(self.by_density, key=lambda tuned: abs(math.log(tuned / density)))
        return dict(self.by_density[nearest])


def read_parameters(path: StrPath) -> ParameterTable:
    """Read a parameter file, and check that its method has these parameters."""
    path = existing_file(path)
    size = path.stat().st_size
    check_file(path, size > _LARGEST_FILE and f"must be a small JSON file of parameters, got {size} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("method"), str):
        raise InputError(f'{path}: must be an object with a "method", such as {{"method": "eed", "lam": 1e-4}}')
    method = content.pop("method")
    if ":" in method:  # it would load code
        raise InputError(f"{path}: method must be the name of a method, got {method!r}; pass parameters by --set")
    if get_method(method, f"{path}: method").is_network:
        raise InputError(f"{path}: method must be one without a network, got {method!r}")
    if "by_density" not in content:
        return ParameterTable(method, {1.0: _checked(path, method, content)})
    table = content.pop("by_density")
    if content:
        raise InputError(f'{path}: "by_density" must have only "method" next to it, got {next(iter(content))!r}')
    if not isinstance(table, dict) or not table:
        raise InputError(f'{path}: "by_density" must be an object of parameters by density, got {table!r}')
    return ParameterTable(method, {_density(path, key): _checked(path, method, table[key]) for key in table})


def write_parameters(path: StrPath, table: ParameterTable) -> None:
    """Write a file for `read_parameters`, atomically."""
    by_density = {f"{density:g}": values for density, values in sorted(table.by_density.items())}
    write_text(Path(path), json.dumps({"method": table.method, "by_density": by_density}, indent=1) + "\n")


def _checked(path: Path, method: str, values: Any) -> dict[str, float | str]:
    if not isinstance(values, dict):
        raise InputError(f"{path}: a density must have an object of parameters, got {values!r}")
    try:
        get_method(method).check_parameters(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if bad := [key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)]:
        raise InputError(f"{path}: {bad[0]} must be finite, got {values[bad[0]]}")
    return values


def _density(path: Path, key: str) -> float:
    with suppress(ValueError):
        if 0 < (density := float(key)) <= 1:
            return density
    raise InputError(f'{path}: a density must be a share above 0 and at most 1, such as "0.05", got {key!r}')
