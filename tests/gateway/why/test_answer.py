"""Which cause is named first, and how it is told."""

from __future__ import annotations

from gateway.why.answer import answer, told
from tests.gateway.why.exposition import phases, window


def test_the_longest_stage_that_is_a_fault_is_the_cause() -> None:
    found = answer(window(phases(10, queue=30.0, connect=5.0, decode=90.0)))
    assert [each.cause for each in found.causes] == ["long queue"]  # connecting is less than a tenth
    lines = list(told(found))
    assert lines[0] == "10 requests ended, 12.5 s each"
    assert lines[-2].startswith("cause: long queue (queue): ")
    assert lines[-1].startswith("  next: ")


def test_what_blocks_comes_before_what_takes_long() -> None:
    gone = {'sluice_engine_up{engine="m-0"}': 0.0}
    assert answer(window(phases(10, queue=300.0) | gone)).causes[0].cause == "dead engine"


def test_the_model_s_own_pace_is_no_cause_unless_it_was_quicker_before() -> None:
    now = window(phases(10, decode=90.0))
    assert answer(now).causes == ()
    assert list(told(answer(now)))[-1].startswith("cause: none")
    before = window(phases(10, decode=30.0))
    found = answer(now, before)
    assert [each.stage for each in found.causes] == ["decode"]
    assert any("9.000 s, 3 s before" in line for line in told(found, answer(before).walk))


def test_against_an_earlier_window_what_has_grown_outweighs_what_was_always_so() -> None:
    before = window(phases(10, queue=30.0, client_write=1.0))
    found = answer(window(phases(10, queue=31.0, client_write=29.0)), before)
    assert [each.cause for each in found.causes] == ["slow client", "long queue"]


def test_a_gateway_without_requests_has_no_cause() -> None:
    assert answer(window({"sluice_requests_total": 0.0})).causes == ()
