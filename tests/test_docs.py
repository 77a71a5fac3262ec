"""The documentation: its links resolve, its Python code runs, and its tables of parameters are correct."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from flowinpaint.methods import registry
from flowinpaint.methods.builtin import BUILTIN

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CARDS = sorted((ROOT / "src/flowinpaint").rglob("card*.md"))
METHOD_PAGES = [page for page in sorted((DOCS / "methods").glob("*.md")) if page.name != "README.md"]
METHODS = {name: method for name, method in BUILTIN.items() if not method.is_network}
GUIDES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
SOURCES = ("src", "tests", "docs", "examples", "benchmarks")
LARGEST_PICTURE = 250_000


def links(page: Path) -> list[str]:
    """The targets of the page's links and pictures, those elsewhere in the net left out."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def source_paths(page: Path) -> list[str]:
    """The Python files that a page names; `a/{b,c}.py` is two, and `NEW` stands for a file to write."""
    paths = []
    for path in re.findall(r"`([\w/{},]+\.py)`", page.read_text(encoding="utf-8")):
        before, names, after = re.fullmatch(r"([^{]*)\{?([^}]*)\}?(.*)", path).groups()  # type: ignore[union-attr]
        paths += [before + name + after for name in names.split(",")] if "{" in path else [path]
    return [path for path in paths if "NEW" not in path]


def parameter_tables() -> dict[str, dict[str, Any]]:
    """Parameters with their defaults by method, as the pages' tables have them."""
    tables: dict[str, dict[str, Any]] = {}
    for page in METHOD_PAGES:
        text = page.read_text(encoding="utf-8")
        tables |= {name: {} for name in re.findall(r"^`([\w-]+)` takes no parameters\.$", text, re.MULTILINE)}
        for name, table in re.findall(r"^Parameters of `([\w-]+)`:\n\n((?:\|.*\n)+)", text, re.MULTILINE):
            rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \| \S.* \|$", table, re.MULTILINE)
            assert len(rows) == table.count("\n") - 2, f"{page.name}: a row of {name} is not written like the others"
            tables[name] = {key: ast.literal_eval(default) for key, default in rows}
    return tables


def python_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{page.relative_to(DOCS)}-{i}")
        for page in PAGES
        for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    ]


def test_there_are_pages_to_check() -> None:
    assert {"README.md", "steady-state.md", "evaluate.md", "eed.md"} <= {page.name for page in PAGES}
    assert len(python_blocks()) >= 3
    assert {"methods/registry.py", "diffusion/kernels/fsi_cpu.py"} <= set(source_paths(ROOT / "CONTRIBUTING.md")) | set(
        source_paths(DOCS / "architecture.md")
    )
    assert all(links(page) for page in METHOD_PAGES)


@pytest.mark.parametrize("page", [*GUIDES, *PAGES, *CARDS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [*GUIDES, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_that_are_named_exist(page: Path) -> None:
    files = [str(file.relative_to(ROOT)) for folder in SOURCES for file in (ROOT / folder).rglob("*.py")]
    missing = [path for path in source_paths(page) if not any(f"/{file}".endswith(f"/{path}") for file in files)]
    assert missing == []


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_parameters_on_a_page(method: str) -> None:
    assert parameter_tables()[method] == METHODS[method].parameters


def test_no_page_tells_of_a_method_that_is_not_there() -> None:
    assert parameter_tables().keys() == METHODS.keys()


@pytest.mark.parametrize("method", METHODS)
def test_the_index_lists_every_method(method: str) -> None:
    rows = re.findall(
        r"^\| \[`([\w-]+)`\]\(", (DOCS / "methods" / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows.count(method) == 1


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.name)
def test_a_method_page_has_all_parts(page: Path) -> None:
    parts = {"equation", "discretisation", "parameters", "cost", "when-to-use-it-and-when-not", "limits"}
    assert parts <= anchors(page)
    assert any(link.endswith(".jpg") for link in links(page))


def test_pictures_are_small_and_shown() -> None:
    kinds = (".jpg", ".png")
    pictures = {path for kind in kinds for path in DOCS.rglob(f"*{kind}")} - {DOCS / "demo.jpg"}  # the README's
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page) if link.endswith(kinds)}
    assert pictures == shown
    assert all(picture.stat().st_size < LARGEST_PICTURE for picture in pictures)


@pytest.mark.parametrize("block", python_blocks())
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "METHODS", registry.METHODS.copy())  # a block may register a method
    exec(compile(block, "docs", "exec"), {})
