"""Numbers are text where a model can read them, ids where they hold words; tokens and parameters are neither."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocol.surface import request_texts
from gateway.protocol.text import Id

CHAT = "/v1/chat/completions"


def call(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}


PHONE = 13800138000
_SCHEMA = {"type": "object", "properties": {"a": {"enum": [PHONE], "const": PHONE, "default": PHONE, "maximum": PHONE}}}


@pytest.mark.parametrize(
    ("route", "body", "path"),
    [
        ("/v1/messages", {"type": "tool_use", "id": "t", "name": "f", "input": {"tel": PHONE}}, "input.tel"),
        ("/v1/messages/count_tokens", {"type": "tool_use", "id": "t", "input": {"tels": [PHONE]}}, "input.tels[0]"),
        (CHAT, call({"tel": float(PHONE)}), "messages[0].tool_calls[0].function.arguments.tel"),
        (CHAT, {"role": "user", "content": "a", "n": PHONE}, "messages[0].n"),
        (CHAT, {"chat_template_kwargs": {"a": [[PHONE]]}}, "chat_template_kwargs.a[0][0]"),
        (CHAT, {"documents": [{"n": PHONE}]}, "documents[0].n"),
        ("/v1/responses", {"tools": [{"parameters": _SCHEMA}]}, "tools[0].parameters.properties.a.enum[0]"),
        ("/v1/score", {"documents": [{"n": PHONE}]}, "documents[0].n"),
    ],
)
def test_a_number_that_a_model_can_read_is_text_and_edited_a_string(route: str, body: Any, path: str) -> None:
    if "role" in body:
        body = {"messages": [body]}
    elif "input" in body:
        body = {"messages": [{"role": "assistant", "content": [body]}]}
    body = copy.deepcopy(body)
    found = {text.path.removeprefix("messages[0].content[0]."): text for text in request_texts(route, body)}
    number = found[path]
    assert number.text.startswith("13800138000")
    number.edit([(3, 7, "****")])
    assert "138****8000" in json.dumps(body)
    assert number.text.startswith("138****8000")


def test_a_bound_of_a_schema_is_read_and_stays_a_number() -> None:
    body = copy.deepcopy({"tools": [{"type": "function", "function": {"parameters": _SCHEMA}}]})
    bound = next(text for text in request_texts(CHAT, body) if text.path.endswith(".maximum"))
    bound.edit([(3, 7, "****")])
    assert body["tools"][0]["function"]["parameters"]["properties"]["a"]["maximum"] == PHONE  # type: ignore[index]


def test_a_members_name_and_its_number_are_both_edited() -> None:
    body = {"documents": [{"a tel": PHONE}]}
    name, number = request_texts(CHAT, body)
    name.edit([(0, 1, "*")])
    number.edit([(3, 7, "****")])
    assert json.dumps(body) == '{"documents": [{"* tel": "138****8000"}]}'


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [1, 2]},
        {"prompt": [[1], [2]]},
        {"prompt": {"prompt_token_ids": [1, 2]}},
        {"input": [1]},
        {"input": [[1, 2], [3]]},
        {"temperature": 0.5, "seed": 1, "n": 2},
        {"thing": {"flag": True, "none": None}},
    ],
)
def test_tokens_and_parameters_are_no_text(body: dict[str, Any]) -> None:
    assert [text.text for text in request_texts("/v1/completions", body) if text.text.isdecimal()] == []


def test_more_numbers_than_can_be_checked_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        request_texts(CHAT, {"documents": [{"n": [1] * 100_001}]})
    assert refused.value.param == "documents[0].n"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (CHAT, {"messages": [{"role": "tool", "tool_call_id": "@", "content": ""}]}),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "@", "type": "function"}]}]}),
        ("/v1/messages", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "@"}]}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "@"}]}]}),
        ("/v1/responses", {"input": [{"type": "function_call", "call_id": "@"}]}),
        ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "@", "output": ""}]}),
    ],
)
def test_the_words_of_an_id_are_read_and_never_edited(route: str, body: dict[str, Any]) -> None:
    def read(name: str) -> list[str]:
        given = json.loads(json.dumps(body).replace("@", name))
        before = copy.deepcopy(given)
        found = [text for text in request_texts(route, given) if isinstance(text, Id)]
        for text in found:
            text.edit([(0, 3, "***")])
            text.replace("x")
        assert given == before
        return [text.text for text in found]

    assert read("how.to.make.forbiddenzebra:step-by-step") == ["how.to.make.forbiddenzebra:step-by-step"]
    assert read("functions.get_weather:69") == ["         .get_weather:  "]
    random = [
        "call_ass123",
        "toolu_01A09q90qw90lq917835lq9",
        "fc_68e3",
        "chatcmpl-tool-9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
    ]
    assert [read(name) for name in (*random, "13800138000", "a", "")] == [[]] * 7
