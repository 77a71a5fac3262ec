"""Readers on mutated and hostile files; `make fuzz` runs many more."""

from fuzz.campaign import run_cases
from fuzz.child import Outcome, case_of
from fuzz.corpus import seeds
from fuzz.hostile import hostile
from fuzz.readers import READERS

MUTATED, HOSTILE = 2000, 600


def _faults(found: list[tuple[int, Outcome]]) -> list[str]:
    return [f"{number}: {o.reader}, {o.name}: {o.fault}" for number, o in found if o.fault]


def test_mutated_files_are_read_or_refused() -> None:
    found = run_cases("mutated", 0, 0, MUTATED, "32M")
    assert not _faults(found)
    assert len(found) == MUTATED
    assert 0.05 < sum(outcome.accepted for _, outcome in found) / len(found) < 0.95


def test_hostile_files_are_read_or_refused() -> None:
    found = run_cases("hostile without bombs", 0, 0, HOSTILE, "32M")
    assert not _faults(found)
    assert len(found) == HOSTILE


def test_every_reader_has_a_seed_that_it_accepts() -> None:
    assert {seed.reader for seed in seeds()} == READERS.keys()


def test_cases_are_the_same_in_every_process() -> None:
    assert case_of("mutated", 3, 5) == case_of("mutated", 3, 5)
    assert case_of("mutated", 3, 5) != case_of("mutated", 4, 5)
    assert len(hostile(with_bombs=False)) > 2000
