"""Where text sits in /v1/responses: every field that a model reads is found, and every text that one has written."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.places import texts_in
from gateway.protocol.responses_places import ANSWER, REQUEST, has_token_ids, item_places, media_urls

WORD = "forbiddenzebra"


def said(body: dict[str, Any]) -> dict[str, str]:
    return {text.path: text.text for text in texts_in(REQUEST, body)}


def items(*items: dict[str, Any]) -> dict[str, Any]:
    return {"input": list(items)}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": WORD}, "input"),
        ({"instructions": WORD}, "instructions"),
        (items({"role": "user", "content": WORD}), "input[0].content"),
        (items({"type": "message", "role": "user", "content": [{"type": "input_text", "text": WORD}]}),
         "input[0].content[0].text"),
        (items({"role": "user", "content": [{"type": "input_text", "text": "forbidden"},
                                            {"type": "input_text", "text": "zebra"}]}), "input[0].content[0].text"),
        (items({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": WORD}]}),
         "input[0].content[0].text"),
        (items({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": WORD}]}),
         "input[0].content[0].refusal"),
        (items({"role": "user", "name": WORD, "content": "a"}), "input[0].name"),
        (items({"role": WORD, "content": "a"}), "input[0].role"),
        (items({"role": "user", "content": "a", "note": {"deep": [WORD]}}), "input[0].note.deep[0]"),
        (items({"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"q": WORD})}),
         "input[0].arguments"),
        (items({"type": "function_call", "call_id": "c", "name": WORD, "arguments": "{}"}), "input[0].name"),
        (items({"type": "function_call_output", "call_id": "c", "output": WORD}), "input[0].output"),
        (items({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": WORD}]}),
         "input[0].output[0].text"),
        (items({"type": "function_call_output", "call_id": f"{WORD} here", "output": "x"}), "input[0].call_id"),
        (items({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": WORD}]}),
         "input[0].summary[0].text"),
        (items({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": WORD}]}),
         "input[0].content[0].text"),
        (items({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": WORD}), "input[0].input"),
        (items({"type": "mcp_call", "id": "c", "name": "f", "arguments": "{}", "output": WORD}), "input[0].output"),
        (items({"type": "web_search_call", "action": {"query": WORD}}), "input[0].action.query"),
        ({"input": [WORD]}, "input[0]"),
        ({"tools": [{"type": "function", "name": "f", "description": WORD}]}, "tools[0].description"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"a": {"enum": [WORD]}}}}]},
         "tools[0].parameters.properties.a.enum[0]"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": WORD}]}]},
         "tools[0].tools[0].name"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"title": WORD}}}},
         "text.format.schema.title"),
        ({"text": {"format": {"type": "json_schema", "schema": {"properties": {WORD: {}}}}}},
         "text.format.schema.properties"),
        ({"prediction": {"type": "content", "content": WORD}}, "prediction.content"),
        ({"prompt": {"id": "p", "variables": {"city": WORD}}}, "prompt.variables.city"),
        ({"previous_input_messages": [{"role": "user", "content": [{"type": "text", "text": WORD}]}]},
         "previous_input_messages[0].content[0].text"),
        ({"structured_outputs": {"json": {"title": WORD}}}, "structured_outputs.json.title"),
        ({"tool_choice": {"type": "function", "name": WORD}}, "tool_choice.name"),
        ({"chat_template_kwargs": {"persona": WORD}}, "chat_template_kwargs.persona"),
        ({"unheard_of": {"a": WORD}}, "unheard_of.a"),
    ],
)  # fmt: skip
def test_every_text_of_a_request_is_found_and_can_be_edited(body: dict[str, Any], path: str) -> None:
    body = copy.deepcopy(body)
    hits = [text for text in texts_in(REQUEST, body) if WORD in text.text]
    assert [text.path for text in hits] == [path]
    at = hits[0].text.index(WORD)
    hits[0].edit([(at, at + len(WORD), "*" * len(WORD))])
    assert "forbidden" not in json.dumps(body)
    assert "zebra" not in json.dumps(body)
    assert "*" in json.dumps(body)


@pytest.mark.parametrize(
    "body",
    [
        {"model": WORD, "user": WORD, "metadata": {"a": WORD}, "include": [WORD], "reasoning": {"effort": WORD}},
        {"previous_response_id": WORD, "request_id": WORD, "text": {"verbosity": WORD}, "tool_choice": "auto"},
        items({"type": "message", "id": WORD, "status": WORD, "role": "user", "content": ""}),
        items({"role": "user", "content": [{"type": "input_image", "image_url": WORD}]}),
        items({"type": "reasoning", "summary": [], "encrypted_content": WORD}),
    ],
)
def test_what_no_model_reads_is_no_text(body: dict[str, Any]) -> None:
    assert WORD not in said(body).values()


def test_each_text_knows_who_said_it() -> None:
    body = items({"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "c", "output": "b"},
                 {"type": "reasoning", "summary": [{"type": "summary_text", "text": "c"}]})  # fmt: skip
    assert [text.role for text in texts_in(REQUEST, body)] == ["user", "tool", "assistant"]


def test_a_masked_number_in_arguments_leaves_them_json() -> None:
    body = items({"type": "function_call", "name": "f", "arguments": '{"card":4111111111111111,"a":"\\u00e9"}'})
    card = next(text for text in texts_in(REQUEST, body) if text.text.startswith("4"))
    card.edit([(3, 12, "*" * 9)])
    assert json.loads(body["input"][0]["arguments"]) == {"card": "411*********1111", "a": "é"}


OUTPUT = [
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}],
     "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "no"},
    {"type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": "final", "content": [
        {"type": "output_text", "text": "u", "annotations": [{"type": "url_citation", "title": "w"}], "logprobs": []},
        {"type": "refusal", "refusal": "v"}, "bare"]},
    {"type": "function_call", "id": "f", "call_id": "c", "name": "mail", "namespace": None, "arguments": '{"a":"x"}'},
    {"type": "custom_tool_call", "id": "f", "name": "n", "input": "free"},
    {"type": "code_interpreter_call", "id": "k", "code": "print()", "outputs": [{"type": "logs", "logs": "l"}]},
    {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}},
    "no item",
]  # fmt: skip


def test_every_text_of_an_answer_is_found() -> None:
    found = {text.path: text.text for text in texts_in(ANSWER, {"output": copy.deepcopy(OUTPUT), "instructions": "x"})}
    assert found == {
        "output[0].summary[0].text": "s", "output[0].content[0].text": "t", "output[1].content[0].text": "u",
        "output[1].annotations[0].title": "w", "output[1].content[1].refusal": "v", "output[1].content[2]": "bare",
        "output[2].arguments": "x", "output[3].input": "free",
        "output[4].code": "print()", "output[4].outputs[0].logs": "l", "output[5].action.query": "q",
    }  # fmt: skip


def test_places_say_of_what_kind_they_are() -> None:
    kinds = [
        [(place.kind, place.group) for place in item_places(item) if place.kind != "name"]
        for item in OUTPUT
        if isinstance(item, dict)
    ]
    assert kinds[0] == [("reasoning", "summary"), ("reasoning", "content")]
    assert kinds[1] == [
        ("content", "content"),
        ("rest", "annotations[0].title"),
        ("refusal", "content"),
        ("content", "content"),
    ]
    assert kinds[2:] == [
        [("arguments", "call")], [("code", "call")], [("code", "call"), ("rest", "outputs[0].logs")],
        [("rest", "action.query")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": [1, 2]}, "input"),
        ({"input": [[1]]}, "input[0]"),
        (items({"role": "user", "content": [{"type": "prompt_embeds", "data": "A"}]}), "input[0].content[0]"),
        (items({"type": "function_call_output", "output": [{"image_embeds": "A"}]}), "input[0].output[0]"),
        (items({"role": "user", "content": "prompt_embeds"}), None),
        ({"input": "a", "stop_token_ids": [1]}, None),
    ],
)
def test_a_prompt_without_text_is_named(body: dict[str, Any], path: str | None) -> None:
    assert has_token_ids(body) == path


def test_all_that_an_engine_would_fetch_is_found() -> None:
    body = {
        **items({"role": "user", "content": [{"type": "input_image", "image_url": "a"},
                                             {"type": "input_text", "text": "b"}]},
                {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "c"}}),
        "previous_input_messages": [{"content": [{"type": "image_url", "image_url": {"url": "d"}}]}],
        "tools": [{"type": "mcp", "server_url": "e"}, {"type": "function", "parameters": {"properties": {"url": {}}}}],
    }  # fmt: skip
    assert [url for _, url in media_urls(body)] == ["a", "c", "d", "e"]


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
names = st.sampled_from(
    [
        *("input", "content", "role", "type", "text", "output", "arguments", "summary", "tools"),
        *(
            "format",
            "instructions",
            "code",
            "tool_choice",
            "previous_input_messages",
            "image_url",
            "server_url",
            "annotations",
            "prediction",
        ),
    ]
) | st.text(max_size=3)
kinds = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "input_text", "refusal"])
anything = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(names, anything, max_size=6))
def test_nothing_that_a_caller_sends_breaks_the_reading(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    for text in texts_in(REQUEST, body):
        text.edit([])
    assert body == before
    has_token_ids(body)
    media_urls(body)


@given(st.lists(anything, max_size=4))
def test_nothing_that_an_engine_sends_breaks_the_reading(output: list[Any]) -> None:
    for text in texts_in(ANSWER, {"output": output}):
        text.edit([])
