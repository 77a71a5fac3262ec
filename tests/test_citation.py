"""CITATION.cff names the version and its date."""

import re
from datetime import date
from pathlib import Path

import flowinpaint as fi

CITATION = (Path(__file__).resolve().parents[1] / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_has_the_version_and_a_date() -> None:
    about = dict(re.findall(r"^([\w-]+): \"?([^\"\n]+)\"?$", CITATION, re.M))
    assert about["version"] == fi.__version__
    assert date(2024, 1, 1) < date.fromisoformat(about["date-released"])
