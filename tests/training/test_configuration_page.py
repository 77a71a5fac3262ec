"""The documentation page on training lists every key of a configuration, with its default."""

import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from flowinpaint.training.config import TrainingConfig

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "training.md").read_text(encoding="utf-8")
SCENES = (DOCS / "training-data.md").read_text(encoding="utf-8")
ELSEWHERE = {"masks"}
"""Tables that are documented on another page."""


def rows(table: str, page: str = PAGE) -> dict[str, Any]:
    """Keys and defaults as the page's table has them."""
    section = re.search(rf"^### `\[{re.escape(table)}\]`\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert section, f"no section for [{table}]"
    found = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \|$", section[1], re.MULTILINE)
    assert len(found) == section[1].count("\n") - 2, f"a row of [{table}] is not written like the others"
    return {key: tomllib.loads(f"value = {default}")["value"] for key, default in found}


@pytest.mark.parametrize("table", [field.name for field in fields(TrainingConfig) if field.name not in ELSEWHERE])
def test_every_key_is_on_the_page_with_its_default(table: str) -> None:
    config = getattr(TrainingConfig(), table)
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items() if not is_dataclass(v)}
    assert rows(table) == plain


def test_every_range_of_scenes_is_on_its_page_with_its_default() -> None:
    config = TrainingConfig().data.layered
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    assert rows("data.layered", SCENES) == {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def test_every_table_has_a_section() -> None:
    sections = re.findall(r"^### `\[(\w+)\]`$", PAGE, re.MULTILINE)
    assert sections == [field.name for field in fields(TrainingConfig)]
