from __future__ import annotations

import copy
from typing import Any

import pytest

from gateway.protocol.messages import MESSAGES
from gateway.protocol.openai import CHAT
from gateway.protocol.responses import RESPONSES
from gateway.protocol.surface import choices, put

TOP = [{"token": "H", "logprob": -0.1, "top_logprobs": []}]
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "status": "completed",
    "incomplete_details": None,
    "output": [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hi", "logprobs": TOP}]},
        {"type": "message", "content": [{"type": "output_text", "text": " there."}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
    ],
}
MESSAGE: dict[str, Any] = {
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Hi there."},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ],
}
BOTH = [(RESPONSES, RESPONSE), (MESSAGES, MESSAGE)]


@pytest.mark.parametrize(("route", "body"), BOTH)
def test_an_answer_is_read_as_a_chat_tells_it(route: str, body: dict[str, Any]) -> None:
    (choice,) = choices(route, body)
    assert choice["message"]["content"] == "Hi there."
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c", "f")
    assert call["function"]["arguments"].replace(" ", "") == '{"a":1}'
    assert choice["logprobs"] == ({"content": TOP} if route == RESPONSES else None)


@pytest.mark.parametrize(
    ("route", "change", "finish"),
    [
        (RESPONSES, {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (RESPONSES, {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        (RESPONSES, {"output": RESPONSE["output"][:2]}, "stop"),
        (MESSAGES, {"stop_reason": "max_tokens"}, "length"),
        (MESSAGES, {"stop_reason": "refusal"}, "content_filter"),
        (MESSAGES, {"stop_reason": "end_turn"}, "stop"),
    ],
)
def test_how_it_ended_is_told_in_a_chats_words(route: str, change: dict[str, Any], finish: str) -> None:
    (choice,) = choices(route, {**dict(BOTH)[route], **change})
    assert choice["finish_reason"] == finish


@pytest.mark.parametrize(("route", "body"), BOTH)
def test_what_is_put_back_unchanged_changes_nothing(route: str, body: dict[str, Any]) -> None:
    same = copy.deepcopy(body)
    put(route, same, choices(route, same)[0])
    assert same == body


@pytest.mark.parametrize(("route", "body"), BOTH)
def test_a_changed_choice_changes_the_body(route: str, body: dict[str, Any]) -> None:
    changed = copy.deepcopy(body)
    (choice,) = choices(route, changed)
    choice["message"]["content"] = "Bye."
    choice["message"]["tool_calls"][0]["function"]["arguments"] = '{"a":2}'
    put(route, changed, choice)
    (again,) = choices(route, changed)
    assert again["message"]["content"] == "Bye."
    assert again["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":2}'
    without = {**choice, "finish_reason": "stop", "message": {"content": "No call.", "tool_calls": None}}
    put(route, changed, without)
    (last,) = choices(route, changed)
    assert (last["message"]["content"], last["message"]["tool_calls"], last["finish_reason"]) == (
        "No call.",
        None,
        "stop",
    )


@pytest.mark.parametrize("route", [RESPONSES, MESSAGES])
def test_a_text_can_take_the_place_of_calls(route: str) -> None:
    body = copy.deepcopy(dict(BOTH)[route])
    field = "output" if route == RESPONSES else "content"
    body[field] = body[field][-1:]
    (choice,) = choices(route, body)
    assert choice["message"]["content"] is None
    put(route, body, {**choice, "finish_reason": "stop", "message": {"content": "Text.", "tool_calls": None}})
    assert choices(route, body)[0]["message"]["content"] == "Text."


def test_a_chats_choices_are_its_own() -> None:
    body = {"choices": [{"index": 0}, "odd"]}
    assert choices(CHAT, body)[0] is body["choices"][0]
    assert choices(CHAT, {}) == choices(RESPONSES, {}) == choices(MESSAGES, {"content": "x"}) == []
