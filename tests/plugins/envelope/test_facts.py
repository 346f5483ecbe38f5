"""What is found in an answer, whatever form it has."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.record import Record
from plugins.envelope import facts
from plugins.envelope.facts import Told


def fact(name: str, body: dict[str, Any], tokens: int = 10) -> Any:
    choice = next(iter(facts.choices(body)), {})
    return facts.ANSWER[name](Told(body, choice, Record(model="m"), tokens))


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"message": {"content": "a", "refusal": None}}, "a"),
        ({"message": {"content": None, "refusal": "no"}}, "no"),
        ({"message": {"content": ""}}, ""),
        ({"delta": {"content": "a"}}, "a"),
        ({"text": "a"}, "a"),
        ({"message": None}, None),
        ({}, None),
    ],
)
def test_text_is_found_in_every_form(choice: dict[str, Any], text: str | None) -> None:
    assert facts.text(choice) == text


def test_both_names_of_reasoning_are_known() -> None:
    for name in ("reasoning", "reasoning_content"):
        assert fact("reasoning", {"choices": [{"message": {name: "hm"}}]}) == "hm"


def test_tokens_are_the_first_ones_of_chat_and_of_completions() -> None:
    chat = {"choices": [{"logprobs": {"content": [{"token": "a"}, {"token": "b"}]}}]}
    assert fact("tokens", chat, 1) == ["a"]
    assert fact("tokens", {"choices": [{"logprobs": {"tokens": ["a", "b"]}}]}) == ["a", "b"]
    assert fact("tokens", {"choices": [{"logprobs": None}]}) == []


def test_the_model_is_that_of_the_answer_else_of_the_request() -> None:
    assert fact("model", {"model": "x"}) == "x"
    assert fact("model", {}) == "m"


def test_what_is_said_under_sluice_is_told() -> None:
    body = {"sluice": {"confidence": 0.5, "tags": ["t"], "json": {"valid": True}, "fallback": None}, "choices": []}
    assert [fact(name, body) for name in ("confidence", "json", "warning_tags")] == [0.5, {"valid": True}, ["t"]]
