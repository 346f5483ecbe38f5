"""Equal requests have one name, different ones never."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.cache.canonical import is_deterministic, name

VALUES = st.recursive(
    st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
REQUESTS = st.dictionaries(st.sampled_from(["messages", "prompt", "seed", "stop", "n", "x"]), VALUES)


def named(request: dict[str, Any], owner: str | None = "team") -> bytes:
    return name("/v1/chat/completions", "m", owner, request)


def respelled(value: Any) -> Any:
    """Say the same otherwise: fields in another order, whole numbers as floats."""
    if isinstance(value, dict):
        return {key: respelled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [respelled(each) for each in value]
    return float(value) if type(value) is int and abs(value) < 2**53 else value


@given(REQUESTS)
def test_how_a_request_is_written_makes_no_difference(request: dict[str, Any]) -> None:
    assert named(respelled(request)) == named(request)


@given(REQUESTS, st.dictionaries(st.sampled_from(["stream", "user", "stream_options", "metadata"]), VALUES))
def test_nor_what_does_not_change_the_answer(request: dict[str, Any], beside: dict[str, Any]) -> None:
    assert named({**request, **beside, "top_p": None}) == named(request)


@given(REQUESTS, REQUESTS)
def test_different_requests_have_different_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    assume(repr(one) != repr(other) and one != other)
    assert named(one) != named(other)


def test_owner_model_and_route_are_part_of_the_name() -> None:
    names = {
        name(route, model, owner, {})
        for route in ("/v1/chat/completions", "/v1/completions")
        for model in "mn"
        for owner in ("a", "b", None)
    }
    assert len(names) == 12


@pytest.mark.parametrize(("request_", "answer"), [
    ({"temperature": 0}, True), ({"temperature": 0.0}, True), ({"seed": 7}, True), ({"seed": 0}, True),
    ({"temperature": 1, "seed": 7}, True), ({}, False), ({"temperature": 0.1}, False), ({"temperature": None}, False),
    ({"seed": None}, False), ({"seed": True}, False), ({"temperature": "0"}, False),
])  # fmt: skip
def test_deterministic_is_what_says_so(request_: dict[str, Any], answer: bool) -> None:
    assert is_deterministic(request_) is answer
