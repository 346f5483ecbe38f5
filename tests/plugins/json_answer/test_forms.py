"""What holds for chats holds for responses and messages: schema, mending, second tries, tools, in their own fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.protocol.surface import choices
from gateway.testing import Played, play
from plugins.json_answer import JsonAnswer
from plugins.json_answer.forms import MESSAGES, RESPONSES

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}

BASE: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": "m", "input": "Give me a."},
    MESSAGES: {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Give me a."}]},
}
FORMATS: dict[str, dict[str, Any]] = {
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}
TOOLS: dict[str, list[dict[str, Any]]] = {
    RESPONSES: [{"type": "function", "name": "find", "parameters": TOOL}],
    MESSAGES: [{"name": "find", "input_schema": TOOL}],
}
PLACES = {RESPONSES: "text.format", MESSAGES: "output_config.format"}
BOTH = pytest.mark.parametrize("route", [RESPONSES, MESSAGES])


def plugin(**options: Any) -> JsonAnswer:
    made = JsonAnswer(JsonAnswer.Options.model_validate(options))
    made.name = "json_answer"
    return made


async def ask(made: JsonAnswer, route: str, answer: Any, *again: str, **more: Any) -> Played:
    return await play(made, {**BASE[route], "stream": False, **more}, answer, route=route, again=again)


def calls(route: str, arguments: str) -> dict[str, Any]:
    if route == RESPONSES:
        call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": arguments}
        return {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": [call]}
    block = {"type": "tool_use", "id": "c1", "name": "find", "input": json.loads(arguments)}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": "tool_use",
    }


@BOTH
async def test_a_valid_answer_is_left_alone_and_said_to_be_valid(route: str) -> None:
    played = await ask(plugin(), route, '{"a": 1}', **FORMATS[route])
    assert played.shown == '{"a": 1}'
    assert played.extra["json"] == {"valid": True, "repaired": False, "attempts": 1}


@BOTH
async def test_fences_are_stripped_in_the_body_of_the_route(route: str) -> None:
    played = await ask(plugin(), route, 'Sure:\n```json\n{"a": 1}\n```', **FORMATS[route])
    assert played.shown == '{"a": 1}'
    assert played.extra["json"]["repaired"] is True
    (choice,) = choices(route, played.body)
    assert choice["message"]["content"] == '{"a": 1}'


@BOTH
async def test_a_broken_answer_is_asked_for_again_in_the_form_of_the_route(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def answer(self: Any, exchange: Any, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        from gateway.testing import _body  # noqa: PLC0415 - what the kit answers with

        return {**_body(route, '{"a": 2}'), "id": "other"}

    monkeypatch.setattr("gateway.testing._Host.ask", answer)
    played = await ask(plugin(), route, "no idea", **FORMATS[route])
    assert played.shown == '{"a": 2}'
    assert played.extra["json"] == {"valid": True, "repaired": False, "attempts": 2}
    assert played.body["id"] != "other", "the answer keeps its name"
    said = asked[0]["input" if route == RESPONSES else "messages"]
    assert [each["role"] for each in said] == ["user", "assistant", "user"]
    assert "no idea" in json.dumps(said[1])
    assert "it is not JSON" in json.dumps(said[2])
    assert "n" not in asked[0]


@BOTH
async def test_a_fallback_takes_the_place_of_what_stays_invalid(route: str) -> None:
    played = await ask(plugin(retries=0, fallback={"a": 0}), route, "no idea", **FORMATS[route])
    assert json.loads(played.shown) == {"a": 0}
    assert played.extra["fallback"] == {"reason": "invalid_json"}


@BOTH
async def test_the_plugins_own_schema_is_asked_of_the_engine(route: str) -> None:
    played = await ask(plugin(schema=SCHEMA), route, '{"a": 1}')
    assert played.request is not None
    holder, _, field = PLACES[route].partition(".")
    told = played.request[holder][field]
    assert (told["type"], told["schema"]) == ("json_schema", SCHEMA)


@BOTH
async def test_a_schema_that_is_none_is_refused_by_its_place(route: str) -> None:
    bad = json.loads(json.dumps(FORMATS[route]).replace('"integer"', '"number of legs"'))
    played = await ask(plugin(), route, "{}", **bad)
    assert played.failure is not None
    assert (played.failure.status, played.failure.param) == (400, PLACES[route])
    assert str(played.failure).startswith(f"{PLACES[route]}.schema is not a JSON Schema that can be used: ")


@BOTH
async def test_arguments_of_calls_are_held_to_their_tools_schema(route: str) -> None:
    fine = await ask(plugin(), route, calls(route, '{"q": "x"}'), tools=TOOLS[route])
    assert fine.extra["json"]["valid"] is True
    wrong = await ask(plugin(retries=0), route, calls(route, '{"q": 1}'), tools=TOOLS[route])
    assert wrong.extra["json"]["valid"] is False
    assert wrong.tags == ["invalid_json"]
    assert "tool_calls[0].function.arguments: $.q: " in wrong.extra["json"]["error"]


@BOTH
async def test_a_call_made_again_takes_the_place_of_the_first(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def answer(self: Any, exchange: Any, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return calls(route, '{"q": "right"}')

    monkeypatch.setattr("gateway.testing._Host.ask", answer)
    played = await ask(plugin(), route, calls(route, '{"q": 1}'), tools=TOOLS[route])
    (choice,) = choices(route, played.body)
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"q": "right"}
    said = json.dumps(asked[0])
    assert "function_call_output" in said if route == RESPONSES else "tool_result" in said


@BOTH
async def test_a_stream_that_nobody_constrains_waits_for_its_end(route: str) -> None:
    made = plugin(schema=SCHEMA, streams="buffer")
    played = await play(made, {**BASE[route], "stream": True}, ['```{"a"', ": 1}```"], route=route)
    assert played.shown == '{"a": 1}'
