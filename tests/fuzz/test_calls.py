"""Random calls of `inpaint`; `make fuzz` makes many more."""

from hypothesis import HealthCheck, given, settings

from fuzz.calls import Call, calls, check


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(calls())
def test_any_call_keeps_the_guarantees_or_is_refused(call: Call) -> None:
    check(call)
