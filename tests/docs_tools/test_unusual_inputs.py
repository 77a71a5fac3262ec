"""The table of unusual inputs: it lists every case, says what the code does, and none is silently wrong."""

import re
from pathlib import Path

import pytest
from unusual_inputs import CASES, outcome

PAGE = Path(__file__).resolve().parents[2] / "docs/inputs.md"
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if len(cells := re.sub(r"^\| | \|$", "", line).split(" | ")) == 3 and cells[0] in CASES
}


def test_the_table_has_every_case() -> None:
    assert len(CASES) == 51
    assert list(ROWS) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_the_table_says_what_happens_and_nothing_is_silently_wrong(case: str) -> None:
    found = outcome(CASES[case])
    assert found == ROWS[case][1]
    assert "instead of" not in found or "warning: " in found
    assert found.startswith(("filled", "error: "))
