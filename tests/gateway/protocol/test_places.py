"""Where text sits: every field that a model reads is found, on every route, and an edit gets back to its place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.protocol import unread
from gateway.protocol.surface import answer_texts, request_texts
from gateway.protocol.text import Id, Number

CHAT = "/v1/chat/completions"
ROUTES = (CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize")
WORD = "forbiddenzebra"

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
names = st.sampled_from(
    [
        *(
            "messages",
            "content",
            "role",
            "type",
            "text",
            "tool_calls",
            "function",
            "arguments",
            "name",
            "function_call",
        ),
        *("tools", "input", "prompt", "prediction", "structured_outputs", "json", "tool_choice", "image_url", "url"),
        *("chat_template_kwargs", "chat_template", "choices", "message", "audio", "transcript", "prompt_embeds", "id"),
        "guided_json",
    ]
) | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5), max_leaves=30
)
bodies = st.dictionaries(names, anything, max_size=6)


def said(route: str, body: dict[str, Any]) -> dict[str, str]:
    return {text.path: text.text for text in request_texts(route, body)}


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", **fields}]}


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}],
    }


@pytest.mark.parametrize(
    ("route", "body", "path"),
    [
        (CHAT, message(content=WORD), "messages[0].content"),
        (CHAT, {"messages": [{"role": "tool", "tool_call_id": "a", "content": WORD}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": WORD, "content": ""}]}, "messages[0].role"),
        (CHAT, message(content="", name=WORD), "messages[0].name"),
        (CHAT, message(content="", reasoning=WORD), "messages[0].reasoning"),
        (CHAT, message(content="", reasoning_content=WORD), "messages[0].reasoning_content"),
        (CHAT, message(content="", refusal=WORD), "messages[0].refusal"),
        (CHAT, message(content="", field_of_a_template=WORD), "messages[0].field_of_a_template"),
        (
            CHAT,
            {"messages": [{"role": "tool", "tool_call_id": f"a {WORD}", "content": ""}]},
            "messages[0].tool_call_id",
        ),
        (CHAT, message(content=["forbidden", "zebra"]), "messages[0].content[0]"),
        (
            CHAT,
            message(content=[{"type": "text", "text": "forbidden"}, {"type": "text", "text": "zebra"}]),
            "messages[0].content[0].text",
        ),
        (CHAT, message(content=[{"type": "text", "text": "", "title": WORD}]), "messages[0].content[0].title"),
        (CHAT, message(content=[{"type": "thinking", "thinking": WORD}]), "messages[0].content[0].thinking"),
        (CHAT, message(content=[{"type": "refusal", "refusal": WORD}]), "messages[0].content[0].refusal"),
        (CHAT, message(content=[{"type": "tool_reference", "name": WORD}]), "messages[0].content[0].name"),
        (CHAT, message(content={"text": WORD}), "messages[0].content.text"),
        (CHAT, message(content=[[WORD]]), "messages[0].content[0][0]"),
        (CHAT, {"messages": WORD}, "messages"),
        (CHAT, {"messages": [WORD]}, "messages[0]"),
        (CHAT, {"messages": [[{"role": "user", "content": WORD}]]}, "messages[0][0].content"),
        (CHAT, {"messages": [call('{"q":"forbidden\\u007aebra"}')]}, "messages[0].tool_calls[0].function.arguments"),
        (CHAT, {"messages": [call('{"' + WORD + '":1}')]}, "messages[0].tool_calls[0].function.arguments"),
        (CHAT, {"messages": [call(WORD)]}, "messages[0].tool_calls[0].function.arguments"),
        (CHAT, {"messages": [call({"q": WORD})]}, "messages[0].tool_calls[0].function.arguments.q"),
        (CHAT, {"messages": [call("{}", custom={"input": WORD})]}, "messages[0].tool_calls[0].custom.input"),
        (
            CHAT,
            {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": f'["{WORD}"]'}}]},
            "messages[0].function_call.arguments",
        ),
        (
            CHAT,
            {"messages": [{"role": "developer", "content": "", "tools": [{"function": {"name": WORD}}]}]},
            "messages[0].tools[0].function.name",
        ),
        (CHAT, {"tools": [{"type": "function", "function": {"name": WORD}}]}, "tools[0].function.name"),
        (CHAT, {"tools": [{"type": "function", "function": {"description": WORD}}]}, "tools[0].function.description"),
        (
            CHAT,
            {"tools": [{"function": {"parameters": {"properties": {"x": {"enum": ["a", WORD]}}}}}]},
            "tools[0].function.parameters.properties.x.enum[1]",
        ),
        (
            CHAT,
            {"tools": [{"function": {"parameters": {"properties": {WORD: {"type": "string"}}}}}]},
            "tools[0].function.parameters.properties",
        ),
        (CHAT, {"tools": [{"type": WORD}]}, "tools[0].type"),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": WORD}}}, "tool_choice.function.name"),
        (CHAT, {"prediction": {"type": "content", "content": WORD}}, "prediction.content"),
        (
            CHAT,
            {"prediction": {"type": "content", "content": [{"type": "text", "text": WORD}]}},
            "prediction.content[0].text",
        ),
        (
            CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"title": WORD}}}},
            "response_format.json_schema.schema.title",
        ),
        (CHAT, {"structured_outputs": {"choice": ["a", WORD]}}, "structured_outputs.choice[1]"),
        (CHAT, {"structured_outputs": {"json": '{"enum":["forbidden\\u007aebra"]}'}}, "structured_outputs.json"),
        (CHAT, {"guided_json": '{"enum":["forbidden\\u007aebra"]}'}, "guided_json"),
        (CHAT, {"documents": [{"title": "t", "text": WORD}]}, "documents[0].text"),
        (CHAT, {"chat_template_kwargs": {"system": WORD}}, "chat_template_kwargs.system"),
        (CHAT, {"a_field_nobody_knows": {"x": [1, None, WORD]}}, "a_field_nobody_knows.x[2]"),
        ("/v1/completions", {"prompt": WORD}, "prompt"),
        ("/v1/completions", {"prompt": ["a", WORD]}, "prompt[1]"),
        ("/v1/completions", {"prompt": "a", "suffix": WORD}, "suffix"),
        ("/v1/embeddings", {"input": WORD}, "input"),
        ("/v1/embeddings", {"input": ["a", WORD]}, "input[1]"),
        ("/v1/embeddings", {"input": [{"role": "user", "content": WORD}]}, "input[0].content"),
        ("/v1/embeddings", {"messages": [{"role": "user", "content": WORD}]}, "messages[0].content"),
        ("/tokenize", {"prompt": WORD}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": WORD}]}, "messages[0].content"),
    ],
)
def test_every_field_that_a_model_reads_is_text(route: str, body: dict[str, Any], path: str) -> None:
    texts = [text for text in request_texts(route, body) if text.text.removeprefix("a ") == WORD]
    assert [text.path for text in texts] == [path]
    texts[0].edit([(len(texts[0].text) - len(WORD), len(texts[0].text), "*")])
    assert WORD not in json.dumps(body)
    assert WORD not in "".join(said(route, body).values())


@pytest.mark.parametrize(
    "body",
    [
        {"model": WORD, "stop": [WORD], "bad_words": [WORD], "user": WORD, "metadata": {"x": WORD}, "cache_salt": WORD},
        {"messages": [{"role": "tool", "tool_call_id": "call_1989"}], "tool_choice": "auto", "sluice": {"preset": "x"}},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1, 2], [3]]},
        message(content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
        message(content=[{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]),
    ],
)
def test_what_no_model_reads_is_no_text(body: dict[str, Any]) -> None:
    assert request_texts(CHAT, body) == []


def test_a_picture_between_two_texts_parts_them_and_two_messages_are_two_texts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    body = {
        "messages": [{"role": "user", "content": ["for", "bid", image, "den"]}, {"role": "user", "content": "zebra"}]
    }
    assert list(said(CHAT, body).values()) == ["forbid", "den", "zebra"]


def test_texts_come_in_order_with_the_role_of_their_message() -> None:
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, call('{"x":"y"}')]}
    assert [(text.role, text.text) for text in request_texts(CHAT, body)] == [
        ("system", "s"),
        ("user", "u"),
        ("assistant", "f"),
        ("assistant", "x"),
        ("assistant", "y"),
    ]


def test_a_masked_card_in_an_earlier_call_leaves_valid_json() -> None:
    body = {"messages": [call('{"card":"4111111111111111","n": 2}')]}
    (card,) = (text for text in request_texts(CHAT, body) if text.text.startswith("4"))
    card.edit([(3, 12, "*" * 9)])
    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"card":"411*********1111","n": 2}'


def test_arguments_of_more_values_than_can_be_checked_are_refused_not_skipped() -> None:
    body = {"messages": [call(json.dumps([0] * 20_000))]}
    with pytest.raises(InvalidRequest, match="more values than can be checked"):
        request_texts(CHAT, body)


@pytest.mark.parametrize("route", ["/v1/audio/speech", "/v1/responses/x", "/invocations", ""])
def test_a_route_whose_texts_nobody_knows_is_not_served(route: str) -> None:
    with pytest.raises(KeyError):
        request_texts(route, {})
    with pytest.raises(KeyError):
        answer_texts(route, {})


def test_every_text_of_an_answer_is_found() -> None:
    body = {
        "id": "chatcmpl-1",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "c",
                    "reasoning": "r",
                    "reasoning_content": "rc",
                    "refusal": "no",
                    "tool_calls": [
                        {
                            "id": "x",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"name":{"k":"v"},"tel":138}'},
                        }
                    ],
                },
            },
            {
                "index": 1,
                "native": {"id": "x", "more": ["m"]},
                "message": {
                    "role": "assistant",
                    "audio": {"data": "AAAA", "transcript": "t", "id": "audio_1"},
                    "function_call": {"name": "g", "arguments": "no json"},
                },
            },
        ],
        "prompt_text": "p",
    }
    found = {text.path: text.text for text in answer_texts(CHAT, body) if "arguments" not in text.path}
    assert found == {
        "choices[0].message.content": "c",
        "choices[0].message.reasoning": "r",
        "choices[0].message.reasoning_content": "rc",
        "choices[0].message.refusal": "no",
        "choices[0].message.tool_calls[0].function.name": "f",
        "choices[1].message.audio.transcript": "t",
        "choices[1].native.more[0]": "m",
        "choices[1].message.function_call.name": "g",
        "prompt_text": "p",
    }
    assert [text.text for text in answer_texts(CHAT, body) if "arguments" in text.path] == ["v", "138", "no json"]


def test_texts_of_the_other_routes_answers_are_found() -> None:
    assert [text.text for text in answer_texts("/v1/completions", {"choices": [{"text": "a"}, {"text": "b"}]})] == [
        "a",
        "b",
    ]
    assert [text.text for text in answer_texts("/detokenize", {"prompt": "a"})] == ["a"]
    assert answer_texts("/v1/embeddings", {"data": [{"embedding": [0.1]}]}) == []


@pytest.mark.parametrize("depth", [190, 5000])
def test_deep_bodies_exhaust_no_stack(depth: int) -> None:
    nested: Any = WORD
    for level in range(depth):
        nested = {"a name of some length": nested} if level % 2 else [nested]
    for field in ("tools", "messages", "input", "prompt", "x"):
        texts = request_texts(CHAT, {field: nested})
        assert texts[-1].text == WORD
        assert max(len(text.path) for text in texts) < 500


@given(st.sampled_from(ROUTES), bodies, st.data())
def test_whatever_the_json_it_is_walked_and_what_is_edited_is_gone(
    route: str, body: dict[str, Any], data: st.DataObject
) -> None:
    for walk in (unread.has_token_ids, unread.forbidden, unread.media_urls):
        walk(copy.deepcopy(body))
    for find in (request_texts, answer_texts):
        edited = copy.deepcopy(body)
        for text in find(route, edited):
            was = text.text
            text.edit([(0, len(was), "#")] if was else [])
            if isinstance(text, Id | Number) and text.text == was:  # a schema's bound
                continue
            assert text.text.partition("_")[0] == ("#" if was else "")  # two names alike get a number
        left = [text for text in find(route, edited) if not isinstance(text, Id | Number)]  # of token ids now renamed
        assert all(set(text.text) <= {"#", "_", *"0123456789"} for text in left)
        json.dumps(edited)


@given(st.sampled_from(ROUTES), bodies)
def test_looking_changes_nothing(route: str, body: dict[str, Any]) -> None:
    before = json.dumps(body)
    request_texts(route, body)
    answer_texts(route, body)
    assert json.dumps(body) == before
