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

from flowinpaint.config_parsing import convert
from flowinpaint.errors import FileFormatError, shown
from flowinpaint.io import StrPath
from flowinpaint.io.text import checking_content, read_json
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
    path = Path(path)
    content = read_json(path, _LARGEST_FILE)
    if not isinstance(content, dict) or not isinstance(content.get("method"), str):
        raise FileFormatError(f'{path}: must be an object with a "method", such as {{"method": "eed", "lam": 1e-4}}')
    method = content.pop("method")
    if ":" in method:  # it would load code
        raise FileFormatError(f"{path}: method must be a name, got {shown(method)}; pass parameters by --set")
    with checking_content(path):
        known = get_method(method, "method")
    if known.is_network:
        raise FileFormatError(f"{path}: method must be one without a network, got {shown(method)}")
    if "by_density" not in content:
        return ParameterTable(method, {1.0: _checked(path, method, content)})
    table = content.pop("by_density")
    if content:
        raise FileFormatError(
            f'{path}: "by_density" must have only "method" next to it, got {shown(next(iter(content)))}'
        )
    if not isinstance(table, dict) or not table:
        raise FileFormatError(f'{path}: "by_density" must be an object of parameters by density, got {shown(table)}')
    return ParameterTable(method, {_density(path, key): _checked(path, method, table[key]) for key in table})


def write_parameters(path: StrPath, table: ParameterTable) -> None:
    """Write a file for `read_parameters`, atomically."""
    by_density = {f"{density:g}": values for density, values in sorted(table.by_density.items())}
    write_text(Path(path), json.dumps({"method": table.method, "by_density": by_density}, indent=1) + "\n")


def _checked(path: Path, method: str, values: Any) -> dict[str, float | str]:
    if not isinstance(values, dict):
        raise FileFormatError(f"{path}: a density must have an object of parameters, got {shown(values)}")
    with checking_content(path):
        parameters: dict[str, float | str] = {
            key: convert(value, float | str, key[:100]) for key, value in values.items()
        }
        get_method(method).check_parameters(parameters)
    return parameters


def _density(path: Path, key: str) -> float:
    with suppress(ValueError):
        if 0 < (density := float(key)) <= 1:
            return density
    raise FileFormatError(f'{path}: a density must be a share above 0 and at most 1, such as "0.05", got {shown(key)}')
