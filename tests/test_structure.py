"""Limits on the code's structure that reviews would otherwise have to check."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "flowinpaint"
FILES = sorted(PACKAGE.rglob("*.py"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_files_stay_short_enough_to_read() -> None:
    assert {str(p.relative_to(PACKAGE)): n for p in FILES if (n := len(lines_of(p))) > 350} == {}
    assert len(lines_of(PACKAGE / "neuroexplicit" / "method.py")) <= 150


def test_the_coarse_to_fine_loop_is_written_once() -> None:
    """Only `coarse_to_fine` and the loops that only collect levels may go through a reversed pyramid."""
    callers = [p for p in FILES if re.search(r"\bcoarse_to_fine\(", p.read_text(encoding="utf-8"))]
    assert {p.stem for p in callers} == {
        "amle",
        "coarse_to_fine",
        "eed",
        "method",
        "pyramid",
        "pyramid_gpu",
    }
    assert not [p for p in FILES if re.search(r"for .* in reversed\((levels|pyramid)\b", p.read_text(encoding="utf-8"))]


def test_layers_import_downwards_only() -> None:
    """The diffusion knows no network, and neither knows methods, training or the laboratory."""
    below = {
        "diffusion": ("networks", "neuroexplicit", "baselines", "methods", "training", "evaluation", "api", "cli"),
        "networks": ("methods", "training", "evaluation", "reproduction", "api", "cli"),
        "methods": ("training", "evaluation", "reproduction", "speed", "cli"),
        "io": ("diffusion", "networks", "methods", "training", "evaluation", "cli"),
    }
    for package, forbidden in below.items():
        for path in sorted((PACKAGE / package).rglob("*.py")):
            imports = re.findall(r"^\s*from flowinpaint\.(\w+)", path.read_text(encoding="utf-8"), flags=re.M)
            assert not set(imports) & set(forbidden), path
