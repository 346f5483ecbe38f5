"""Where text sits in Anthropic's form: every field that a model reads is found, and every text that one has written."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.messages_places import ANSWER, REQUEST
from gateway.protocol.places import texts_in

WORD = "forbiddenzebra"


def user(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content), **fields}]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"system": WORD}, "system"),
        ({"system": [{"type": "text", "text": "forbidden"}, {"type": "text", "text": "zebra"}]}, "system[0].text"),
        ({"messages": [{"role": "user", "content": WORD}]}, "messages[0].content"),
        (user({"type": "text", "text": WORD}), "messages[0].content[0].text"),
        (user({"type": "text", "text": "forbidden"}, {"type": "text", "text": "zebra", "cache_control": {"type": "x"}}),
         "messages[0].content[0].text"),
        (user({"type": "thinking", "thinking": WORD, "signature": "s"}), "messages[0].content[0].thinking"),
        (user({"type": "tool_use", "id": "c", "name": "f", "input": {"q": [WORD]}}),
         "messages[0].content[0].input.q[0]"),
        (user({"type": "tool_use", "id": "c", "name": "f", "input": {WORD: 1}}), "messages[0].content[0].input"),
        (user({"type": "tool_use", "id": "c", "name": WORD, "input": {}}), "messages[0].content[0].name"),
        (user({"type": "tool_result", "tool_use_id": "c", "content": WORD}), "messages[0].content[0].content"),
        (user({"type": "tool_result", "tool_use_id": f"{WORD} x", "content": "a"}),
         "messages[0].content[0].tool_use_id"),
        (user({"type": "tool_result", "content": [{"type": "text", "text": "forbidden"},
                                                 {"type": "text", "text": "zebra"}]}),
         "messages[0].content[0].content[0].text"),
        (user({"type": "tool_addition",
               "tool": {"type": "tool_definition", "definition": {"name": "f", "description": WORD}}}),
         "messages[0].content[0].tool.definition.description"),
        (user({"type": "document", "title": WORD, "source": {"type": "base64", "data": "AA"}}),
         "messages[0].content[0].title"),
        (user({"type": "document", "source": {"type": "text", "data": WORD}}), "messages[0].content[0].source.data"),
        (user({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": WORD}]}}),
         "messages[0].content[0].source.content[0].text"),
        (user(WORD), "messages[0].content[0]"),
        ({"messages": [{"role": WORD, "content": "a"}]}, "messages[0].role"),
        ({"messages": [WORD]}, "messages[0]"),
        ({"messages": WORD}, "messages"),
        ({"tools": [{"name": "f", "description": WORD, "input_schema": {}}]}, "tools[0].description"),
        ({"tools": [{"name": "f", "input_schema": {"properties": {WORD: {}}}}]}, "tools[0].input_schema.properties"),
        ({"tool_choice": {"type": "tool", "name": WORD}}, "tool_choice.name"),
        ({"tool_choice": WORD}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"title": WORD}}}},
         "output_config.format.schema.title"),
        ({"output_config": WORD}, "output_config"),
        ({"chat_template_kwargs": {"persona": WORD}}, "chat_template_kwargs.persona"),
    ],
)  # fmt: skip
def test_every_text_of_a_request_is_found_and_can_be_edited(body: dict[str, Any], path: str) -> None:
    body = copy.deepcopy(body)
    hits = [text for text in texts_in(REQUEST, body) if WORD in text.text]
    assert [text.path for text in hits] == [path]
    at = hits[0].text.index(WORD)
    hits[0].edit([(at, at + len(WORD), "*" * len(WORD))])
    assert "zebra" not in json.dumps(body)
    assert "forbidden" not in json.dumps(body)
    assert "*" in json.dumps(body)


@pytest.mark.parametrize(
    "body",
    [
        {"model": WORD, "metadata": {"user_id": WORD}, "stop_sequences": [WORD], "thinking": {"type": WORD}},
        {"output_config": {"effort": WORD}, "tool_choice": {"type": WORD}, "cache_salt": WORD},
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": WORD}}),
        user({"type": "redacted_thinking", "data": WORD}),
        user({"type": "thinking", "thinking": "a", "signature": WORD}),
        user({"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9", "name": "f", "caller": WORD, "input": {}}),
    ],
)
def test_what_no_model_reads_is_no_text(body: dict[str, Any]) -> None:
    assert WORD not in {text.text for text in texts_in(REQUEST, body)}


def test_thinking_beside_text_is_another_text() -> None:
    body = user({"type": "thinking", "thinking": "forbidden"}, {"type": "text", "text": "zebra"})
    assert [text.text for text in texts_in(REQUEST, body)] == ["forbidden", "zebra"]
    body = user(
        {"type": "text", "text": "forbidden"}, {"type": "image", "source": {}}, {"type": "text", "text": "zebra"}
    )
    assert [text.text for text in texts_in(REQUEST, body)] == ["forbidden", "zebra"]


def test_each_text_knows_who_said_it() -> None:
    body = user({"type": "tool_result", "tool_use_id": "c", "content": "b"}, {"type": "text", "text": "a"})
    assert [(text.text, text.role) for text in texts_in(REQUEST, body)] == [("b", "tool"), ("a", "user")]


def test_every_text_of_an_answer_is_found() -> None:
    content = [
        {"type": "thinking", "thinking": "t", "signature": "no"},
        {"type": "text", "text": "u", "citations": [{"title": "w"}]},
        {"type": "tool_use", "id": "c", "name": "no", "input": {"to": ["li"], "n": 1}},
        {"type": "redacted_thinking", "data": "no"},
        "no block",
    ]  # fmt: skip
    found = {text.path: text.text for text in texts_in(ANSWER, {"content": content, "model": "no"})}
    assert found == {
        "content[0].thinking": "t", "content[1].text": "u", "content[1].citations[0].title": "w",
        "content[2].input.to[0]": "li",
    }  # fmt: skip


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
names = st.sampled_from(
    [
        *("messages", "content", "role", "type", "text", "thinking", "input", "system", "tools"),
        *("source", "data", "tool_choice", "output_config", "tool", "tool_use_id", "citations"),
    ]
) | st.text(max_size=3)
kinds = st.sampled_from(["text", "thinking", "tool_use", "tool_result", "document", "user"])
anything = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(names, anything, max_size=6))
def test_nothing_that_is_sent_breaks_the_reading(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    for text in [*texts_in(REQUEST, body), *texts_in(ANSWER, body)]:
        text.edit([])
    assert body == before
