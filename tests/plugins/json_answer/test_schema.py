"""Bad forms and schemas are refused by name, nothing is fetched, and the check is the standard's."""

from __future__ import annotations

import socket
from time import process_time
from typing import Any

import pytest

from gateway.sdk import Refused
from plugins.json_answer.forms import calls_nothing, tools_of
from plugins.json_answer.schema import Checker, content_checker, decoded, tool_checkers

CHAT = "/v1/chat/completions"


def schema_form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "schema": {"type": "object"}},
        schema_form({"type": "object", "properties": {"foo": "bar"}}),
        schema_form({"$ref": "http://169.254.169.254/x.json"}),
        schema_form({"properties": {"a": {"$ref": "other.json"}}}),
        schema_form({"$ref": "file:///etc/hostname"}),
        schema_form({"$ref": "#/$defs/none"}),
        schema_form({"$schema": "http://127.0.0.1/draft"}),
        schema_form({"pattern": "("}),
        schema_form({"type": "strin"}),
        schema_form(None),
        schema_form(nested(1000)),
        {"type": "json_schema", "json_schema": {"schema": {}}},
        {"type": "yaml"},
        {},
        "json_object",
        [],
    ],
)
def test_a_bad_form_is_refused_and_named(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it went out"))
    with pytest.raises(Refused) as caught:
        content_checker(form)
    assert (caught.value.status, caught.value.param) == (400, "response_format")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("form", [None, {"type": "text"}, {"type": "structural_tag", "structures": []}])
def test_what_asks_for_no_json_is_not_checked(form: Any) -> None:
    assert content_checker(form) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"},
        {"$id": "https://example.com/s", "$defs": {"a": {"type": "integer"}}, "$ref": "https://example.com/s#/$defs/a"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"},
    ],
)
def test_references_inside_a_schema_work(schema: dict[str, Any]) -> None:
    checker = Checker(schema)
    assert checker.fault("1") is None
    assert "integer" in str(checker.fault('"1"'))


def test_a_fault_says_where() -> None:
    checker = Checker({"properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]})
    assert checker.fault('{"a":[1,"x"]}') == '$: "b" is a required property; $.a[1]: "x" is not of type "integer"'


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a":-Infinity}', '{"a":1}}', '"\x01"', "[" * 100_000])
def test_what_is_not_json_is_never_valid(text: str) -> None:
    assert Checker(True).fault(text) is not None


@pytest.mark.parametrize("text", ['{"a":"\\ud83c"}', '{"a":1e400}', '{"a":12345678901234567890}', ' \n{"a":1}\n'])
def test_rare_json_is_json(text: str) -> None:
    assert "a" in decoded(text)


def test_a_pattern_that_explodes_is_a_fault_and_quick() -> None:
    began = process_time()
    assert Checker({"pattern": "^(?=a)(a|a)*(?<!c)$"}).fault('"' + "a" * 60 + 'b"') is not None
    assert process_time() - began < 1


def test_tools_are_read_by_name() -> None:
    tools = [
        {"type": "function", "function": {"name": "f", "parameters": {"required": ["x"]}}},
        {"type": "function", "function": {"name": "g"}},
        "odd",
    ]
    checkers = tool_checkers(tools_of(CHAT, {"tools": tools}))
    assert list(checkers) == ["f"]
    assert checkers["f"].fault("{}") is not None
    assert calls_nothing({"tools": tools, "tool_choice": "none"})


def test_bad_parameters_of_a_tool_are_refused_and_named() -> None:
    tools = [{"function": {"name": "f", "parameters": {"$ref": "http://127.0.0.1/x"}}}]
    with pytest.raises(Refused) as caught:
        tool_checkers(tools_of(CHAT, {"tools": tools}))
    assert caught.value.param == "tools[0].function.parameters"
