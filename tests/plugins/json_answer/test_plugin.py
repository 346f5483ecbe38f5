"""What callers get of it: valid JSON, or the truth about it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.sdk import Answer, Failure, Refused
from gateway.testing import Played, play
from plugins.json_answer import JsonAnswer
from tests.plugins.exchanges import chat
from tests.plugins.pages import example

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
COMPLETIONS = "/v1/completions"


def plugin(**options: Any) -> JsonAnswer:
    return JsonAnswer(JsonAnswer.Options.model_validate(options))


async def asked(answer: Any, *again: Any, request: dict[str, Any] | None = None, **options: Any) -> Played:
    messages = [{"role": "user", "content": "q"}]
    body = {"model": "m", "messages": messages, "stream": False, "response_format": FORM, **(request or {})}
    return await play(plugin(**options), body, answer, again=again)


def whole(*contents: str, finish: str = "stop") -> dict[str, Any]:
    choices = [
        {"index": index, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
        for index, content in enumerate(contents)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return {"object": "chat.completion", "model": "m", "choices": choices, "usage": usage}


async def test_a_valid_answer_is_left_as_it_is_and_not_asked_for_again() -> None:
    text = ' {"a":12345678901234567890, "b":1e10}\n'
    played = await asked(text)
    assert played.shown == text
    assert played.extra == {"json": {"valid": True, "repaired": False, "attempts": 1}}


async def test_fences_and_prose_fall_away() -> None:
    played = await asked('Sure:\n```json\n{"a":1}\n```\nDone.')
    assert played.shown == '{"a":1}'
    assert played.extra["json"] == {"valid": True, "repaired": True, "attempts": 1}


async def test_an_invalid_answer_is_asked_for_again_with_what_was_wrong() -> None:
    played = await asked('{"a":"x"}', '{"a":2}')
    assert played.shown == '{"a":2}'
    assert played.extra["json"] == {"valid": True, "repaired": False, "attempts": 2}


async def test_an_answer_that_stays_invalid_passes_and_is_said_to_be() -> None:
    played = await asked('{"a":"x"}', "{}", retries=1)
    assert played.shown == '{"a":"x"}', "no better answer came"
    assert (played.extra["json"]["valid"], played.extra["json"]["attempts"]) == (False, 2)
    assert '"x" is not of type "integer"' in played.extra["json"]["error"]
    assert (played.tags, played.hits[0].rule) == (["invalid_json"], "invalid_json")


async def test_it_can_be_replaced_or_refused_instead() -> None:
    played = await asked("no", retries=0, fallback={"a": 0})
    assert (played.shown, played.extra["fallback"]) == ('{"a":0}', {"reason": "invalid_json"})
    assert played.extra["json"]["valid"] is False
    failed = await asked("no", retries=0, invalid="error")
    assert failed.failure is not None
    assert (failed.failure.status, failed.failure.code) == (502, "invalid_json")


async def test_what_was_cut_off_is_neither_completed_nor_asked_for_again() -> None:
    played = await asked(whole('{"a": 1, "b', finish="length"))
    assert played.body["choices"][0] == whole('{"a": 1, "b', finish="length")["choices"][0]
    assert (played.extra["json"]["valid"], played.extra["json"]["attempts"]) == (False, 1)


async def test_a_failure_of_the_second_try_keeps_the_first_answer() -> None:
    played = await asked('{"a":"x"}', Refused("later"))
    assert (played.shown, played.failure, played.extra["json"]["attempts"]) == ('{"a":"x"}', None, 1)


@pytest.mark.parametrize("text", ["no", '```json\n{"a":1}\n```'])
def test_what_was_not_the_json_asked_for_is_left_as_evidence_mended_or_not(text: str) -> None:
    exchange = chat("q")
    exchange.request["response_format"] = FORM
    plugin(retries=0).on_answer(exchange, Answer("/v1/chat/completions", whole('{"a":1}', text)))
    (evidence,) = exchange.state["evidence"]
    assert (evidence["where"], evidence["text"]) == ("choices[1].content", text)
    assert (evidence["attempt"], evidence["finish_reason"]) == (1, "stop")
    assert evidence["fault"]


async def test_every_choice_is_checked_and_only_the_broken_one_asked_for_again() -> None:
    played = await asked(whole('{"a":1}', "no"), '{"a":3}', request={"n": 2})
    assert [choice["message"]["content"] for choice in played.body["choices"]] == ['{"a":1}', '{"a":3}']
    assert [choice["index"] for choice in played.body["choices"]] == [0, 1]
    assert [each["attempts"] for each in played.extra["json"]["choices"]] == [1, 2]
    assert (played.extra["json"]["valid"], played.extra["json"]["attempts"]) == (True, 2)


async def test_a_stream_that_the_engine_holds_to_the_schema_flows() -> None:
    played = await asked(['{"a"', ":1}"], request={"stream": True})
    assert played.pieces[:2] == ['{"a"', ":1}"]
    assert played.extra["json"] == {"valid": True, "repaired": False, "attempts": 1}
    cut = await asked(['{"a"', ":"], request={"stream": True})
    assert (cut.shown, cut.extra["json"]["valid"]) == ('{"a":', False)


async def test_a_stream_can_be_made_to_wait() -> None:
    played = await asked(["```\n", '{"a":1}', "\n```"], request={"stream": True}, streams="buffer")
    assert played.pieces == ['{"a":1}']


async def test_the_plugin_s_own_schema_is_asked_of_the_engine() -> None:
    played = await asked('{"a":1}', request={"response_format": None}, schema=SCHEMA)
    assert played.request is not None
    assert played.request["response_format"]["json_schema"]["schema"] == SCHEMA
    assert played.extra["json"]["valid"]


@pytest.mark.parametrize("held", [{"guided_choice": ["a"]}, {"structured_outputs": {"regex": "a"}}])
async def test_the_caller_s_own_constraint_counts(held: dict[str, Any]) -> None:
    played = await asked("a", request={"response_format": None, **held}, schema=SCHEMA)
    assert played.request is not None
    assert (played.request["response_format"], played.extra) == (None, {})


async def test_with_tools_the_schema_is_checked_but_not_asked_of_the_engine() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    played = await asked('x {"a":1}', request={"response_format": None, "tools": tools, "stream": True}, schema=SCHEMA)
    assert played.request is not None
    assert played.request["response_format"] is None
    assert (played.shown, played.extra["json"]["repaired"]) == ('{"a":1}', True), "the stream waited"


async def test_tool_arguments_are_checked() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":"x"}'}}
    answer = whole("")
    answer["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    played = await asked(answer, request={"tools": tools, "response_format": None}, retries=0)
    assert played.extra["json"]["error"].startswith("tool_calls[0].function.arguments: $.a")
    unchecked = await asked(answer, request={"tools": tools, "response_format": None}, tools=False)
    assert unchecked.extra == {}


async def test_completions_are_checked_too() -> None:
    body = {"model": "m", "prompt": "q", "stream": False, "response_format": {"type": "json_object"}}
    played = await play(plugin(), body, "Well.", route=COMPLETIONS, again=['So: {"a":1}'])
    assert (played.shown, played.extra["json"]["attempts"]) == ('{"a":1}', 2)


async def test_a_bad_form_is_refused_before_any_engine_is_asked() -> None:
    played = await asked("x", request={"response_format": {"type": "json_schema", "schema": {}}})
    assert isinstance(played.failure, Failure)
    assert (played.failure.status, played.failure.param, played.request) == (400, "response_format", None)


async def test_where_nothing_asks_for_json_nothing_is_done() -> None:
    assert (await play(plugin(), "q", "a")).extra == {}


async def test_a_long_answer_is_looked_at_too() -> None:
    played = await asked('{"a":1,"b":"' + "x" * 40_000 + '",}')
    assert played.extra["json"]["repaired"]
    assert (await asked("[" * 100_000, retries=0)).extra["json"]["valid"] is False


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"schema": {"type": "x"}}, "schema is not a JSON Schema"),
        ({"fallback": "no"}, "fallback is not JSON"),
        ({"schema": SCHEMA, "fallback": {}}, "fallback does not fit schema"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        plugin(**options)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValidationError):
        plugin(retry=1)


async def test_the_example_of_its_page_is_what_happens() -> None:
    options, (request, answered) = example("json_answer")
    plugin = JsonAnswer(JsonAnswer.Options.model_validate(options))
    answer = await play(plugin, {**request, "stream": False}, '```json\n{"city": "Paris",}\n```')
    assert answer.body["choices"] == answered["choices"]
    assert {**answer.extra, **({"tags": answer.tags} if answer.tags else {})} == answered.get("sluice", {})
