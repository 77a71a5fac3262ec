"""Conversion of tables from anywhere to dataclasses."""

import math
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowinpaint.baselines.flownets.config import FlowNetSConfig
from flowinpaint.baselines.pd.config import PDConfig
from flowinpaint.baselines.wgain.config import WGAINConfig
from flowinpaint.config_parsing import build
from flowinpaint.errors import InputError
from flowinpaint.evaluation.records import Measurement, Record, RunKey
from flowinpaint.neuroexplicit.config import NeuroexplicitConfig
from flowinpaint.training.config import TrainingConfig

KEY = RunKey("A", "one", 0.05, 0, "fixed", 0, "eed", {"lam": 1e-4, "steps": 3}, "cpu", "abc", "", "1.0")
RECORD = asdict(Record(KEY, Measurement(0.5, 0.55, 1.0, 4.0, 1.5, 0.1, 12, 1e-7, "converged", 1)))
CLASSES: dict[type[Any], dict[str, Any]] = {
    TrainingConfig: asdict(TrainingConfig()),
    Record: RECORD,
    RunKey: RECORD["key"],
    NeuroexplicitConfig: asdict(NeuroexplicitConfig()),
    PDConfig: asdict(PDConfig()),
    FlowNetSConfig: asdict(FlowNetSConfig()),
    WGAINConfig: asdict(WGAINConfig()),
}
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
ODD = {
    "deep": DEEP,
    "huge": 10**400,
    "negative and huge": -(10**400),
    "above 64 bits": 2**63,
    "more digits than Python prints": 10**5000,
    "nan": math.nan,
    "inf": math.inf,
    "date": datetime(2026, 1, 1, tzinfo=UTC),
}
ODD_VALUES = st.sampled_from(sorted(ODD)).map(lambda name: ODD[name])
"""By name, since repr() fails for some."""
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=5) | ODD_VALUES
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_value_in_any_place_is_built_or_an_input_error(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(list(CLASSES)))

    def changed(table: dict[str, Any]) -> dict[str, Any]:
        name = data.draw(st.sampled_from(sorted(table)))
        inside = isinstance(table[name], dict) and table[name] and data.draw(st.booleans())
        return {**table, name: changed(table[name]) if inside else data.draw(VALUES)}

    table = changed(CLASSES[cls]) if data.draw(st.integers(0, 9)) else data.draw(VALUES)
    try:
        built = build(cls, table)
    except InputError as error:
        assert len(str(error)) < 2000
    else:
        assert type(built) is cls


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measured": []}, r"measured must be a table \[measured\], got \[\]"),
        ({"notes": {}}, "notes must be a list, each a text in quotes, got {}"),
        ({"notes": [1]}, "notes must be a text in quotes, got 1"),
        ({"error": None}, "error must be a text in quotes, got None"),
        ({"key": None}, r"key must be a table \[key\], got None"),
        ({"key": {"dataset": "A"}}, "key.sample must be set"),
        ({"key": RECORD["key"] | {"parameters": {"a": []}}}, "key.parameters.a must be a number"),
        ({"key": RECORD["key"] | {"parameters": []}}, "key.parameters must be a table of keys"),
        ({"key": RECORD["key"] | {"mask": "lidar"}}, "key.density must be null for patterns"),
        ({"key": RECORD["key"] | {"density": None}}, "key.density must be null for patterns"),
        ({"key": RECORD["key"] | {"mask": ["fixed"]}}, "key.mask must be 'fixed' or"),
        ({"key": RECORD["key"] | {"seed": 10**400}}, "key.seed must be an integer of at most 64 bits"),
        ({"measured": RECORD["measured"] | {"epe": "x"}}, "measured.epe must be a number, got 'x'"),
        ({"measured": RECORD["measured"] | {"epe": True}}, "measured.epe must be a number, got True"),
        ({"measured": RECORD["measured"] | {"epe": math.nan}}, "measured.epe must be a finite number, got nan"),
        ({"measured": RECORD["measured"] | {"epe": 10**400}}, "measured.epe must be a number, got 1000"),
        ({"measured": RECORD["measured"] | {"epe": 10**5000}}, "measured.epe must be a number, got int"),
        ({"measured": RECORD["measured"] | {"uncertainty": {"error": 1}}}, "measured.uncertainty.expected must be set"),
        ({"other": 1}, "other: there is no such key"),
        ({3: 1}, "3: there is no such key"),
    ],
)
def test_damaged_records_are_refused_with_their_key(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        build(Record, RECORD | change)


def test_records_come_back_with_their_integers() -> None:
    assert build(Record, RECORD).key == KEY
    assert build(Record, RECORD).key.text == KEY.text
