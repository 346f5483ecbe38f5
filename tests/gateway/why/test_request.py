"""One request, explained from its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.why.request import explained, find, parts

LINE: dict[str, Any] = {
    "event": "request",
    "request_id": "abc",
    "outcome": "ok",
    "model": "m",
    "engine": "m-0",
    "key": "team",
    "stream": True,
    "total_ms": 5000.0,
    "first_text_ms": 400.0,
    "phases_ms": {"queue": 100.0, "first_token": 300.0, "decode": 4500.0, "client_write": 4000.0},
    "prompt_tokens": 7,
    "completion_tokens": 9,
}


def test_a_request_s_line_is_found_among_others() -> None:
    lines = ["abc is not JSON\n", '{"request_id": "abc", "event": "x"}\n', "\n", json.dumps(LINE) + "\n"]
    assert find(lines, "abc") == LINE
    assert find(lines, "abcd") is None


def test_waiting_for_the_caller_is_not_decoding() -> None:
    found = parts(LINE)
    assert next(iter(found)) == "client_write"
    assert found["decode"] == pytest.approx(0.5)
    assert found["elsewhere"] == pytest.approx(0.1)


def test_it_is_told_with_shares_cause_and_next_step() -> None:
    lines = list(explained(LINE))
    assert lines[0] == "abc: ok after 5 s, 7 tokens in, 9 out, m at m-0, key team"
    assert lines[-2] == "cause: client_write: 80% of its time"
    assert "proxy" in lines[-1]


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none())


@given(st.dictionaries(st.sampled_from(list(LINE)), ANYTHING | st.dictionaries(st.text(), ANYTHING)))
def test_a_line_that_hands_have_made_is_explained_as_far_as_it_goes(line: dict[str, Any]) -> None:
    lines = list(explained(line | {"request_id": "abc"}))
    assert lines[0].startswith("abc: ")
    assert lines[-2].startswith("cause: ")
    assert all(took >= 0 for took in parts(line).values())


def test_what_was_not_streamed_has_its_answer_in_first_token_and_logprobs_are_told() -> None:
    whole = LINE | {"stream": False, "phases_ms": {"first_token": 4900.0}}
    assert any("it was not streamed" in line for line in explained(whole))
    compiled = LINE | {"sampling": "logprobs", "phases_ms": {"first_token": 4900.0}}
    assert any("with logprobs" in line for line in explained(compiled))
