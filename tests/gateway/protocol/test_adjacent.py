"""What an engine passes over does not part a word, and no decoy hides it: as vLLM reads each route's parts."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocol.adjacent import Lines
from gateway.protocol.openai import CHAT
from gateway.protocol.surface import request_texts
from gateway.protocol.text import Text

MESSAGES = "/v1/messages"
HEADER = "x-anthropic-billing-header: cch=1"


def part(text: str | None, kind: str = "text", field: str = "text") -> dict[str, Any]:
    return {"type": kind, field: text}


def texts(content: Any, route: str = CHAT, role: str = "user") -> list[str]:
    return [text.text for text in request_texts(route, {"messages": [{"role": role, "content": content}]})]


@pytest.mark.parametrize(
    "between",
    [part(None), part(None, "refusal", "refusal"), part(""), None, 5, {"type": "thinking"}],
    ids=str,
)
def test_a_part_without_text_does_not_part_texts(between: Any) -> None:
    assert "赌博" in texts([part("赌"), between, part("博")])


@pytest.mark.parametrize("kind", ["thinking", "refusal"])
def test_a_decoy_beside_the_field_of_a_parts_type_hides_nothing(kind: str) -> None:
    """vLLM reads of a part the field that its type names."""
    found = texts([part("赌"), {"type": kind, "text": "decoy", kind: "博"}])
    assert {"赌博", "decoy"} <= set(found)
    assert {"赌博", "decoy"} <= set(texts([part("赌"), {"type": kind, "text": "decoy"}, part("博")]))


def test_a_pictures_text_is_no_part_of_the_texts_around_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}, "text": "decoy"}
    assert texts([part("a"), picture, part("b")]) == ["a", "decoy", "b"]


def test_what_is_left_out_of_a_system_message_does_not_part_it() -> None:
    """vLLM leaves the header's line out on one route, and the header's block on the other."""
    assert set(texts([part("赌"), part(HEADER), part("博")], role="system")) == {"赌博", HEADER}
    assert set(texts(["赌", HEADER + "\n博"], role="system")) == {"赌博", HEADER + "\n"}
    said = [part("赌"), part(HEADER + "\nx"), part("博")]
    assert set(texts(said, MESSAGES, "system")) == {"赌博", HEADER + "\nx"}
    assert {text.text for text in request_texts(MESSAGES, {"system": said})} == {"赌博", HEADER + "\nx"}
    assert texts([part("赌"), part(HEADER), part("博")]) == ["赌" + HEADER + "博"]


@pytest.mark.parametrize("system", ["赌", [part("赌")], [part(HEADER), part("赌")]], ids=str)
@pytest.mark.parametrize("inline", ["博", [part(None), part("博")], [part("博", "text"), part(HEADER)]], ids=str)
@pytest.mark.parametrize("first", ["system", "messages"])
def test_a_system_message_among_the_others_goes_on_with_the_system_text(system: Any, inline: Any, first: str) -> None:
    """vLLM puts it there for templates that have one system message; nothing stands between."""
    messages = [{"role": "user", "content": "hi"}, {"role": "system", "content": inline}]
    body = {"system": system, "messages": messages}
    found = [text.text for text in request_texts(MESSAGES, body if first == "system" else dict(reversed(body.items())))]
    assert sorted(found) == sorted(["赌博", "hi", *[HEADER] * str(body).count(HEADER)])


def test_a_mask_across_them_lands_in_both() -> None:
    body = {"system": "a赌", "messages": [{"role": "system", "content": [part("博b")]}]}
    (found,) = request_texts(MESSAGES, body)
    found.edit([(1, 3, "**")])
    assert body == {"system": "a*", "messages": [{"role": "system", "content": [part("*b")]}]}


def test_a_system_text_alone_is_what_it_was() -> None:
    found = request_texts(MESSAGES, {"system": HEADER, "messages": [{"role": "system", "content": "x"}]})
    assert [(text.text, text.path) for text in found] == [(HEADER, "system"), ("x", "messages[0].content")]


def test_a_mask_lands_behind_the_line_that_is_left_out() -> None:
    body = {"messages": [{"role": "system", "content": ["a赌", HEADER + "\n博b"]}]}
    found = {text.text: text for text in request_texts(CHAT, body)}
    found["a赌博b"].edit([(1, 3, "**")])
    found[HEADER + "\n"].edit([(0, 1, "*")])
    assert body["messages"][0]["content"] == ["a*", "*" + HEADER[1:] + "\n*b"]


@pytest.mark.parametrize(
    "between",
    [
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": "x"},
        part(None),
    ],
    ids=str,
)
def test_what_engines_tell_elsewhere_does_not_part_a_message(between: dict[str, Any]) -> None:
    assert "赌博" in texts([part("赌"), between, part("博")], MESSAGES, "assistant")


@pytest.mark.parametrize("kind", [[], {}, 1])
@pytest.mark.parametrize("route", [CHAT, MESSAGES])
def test_a_type_that_is_no_name_parts_texts_and_breaks_nothing(kind: Any, route: str) -> None:
    assert [text for text in texts([part("a"), {"type": kind}, part("b")], route) if text != "1"] == ["a", "b"]
    assert "c" in texts([{"type": kind, "text": "c"}], route)


def test_thoughts_of_a_message_are_one_text() -> None:
    thought = {"type": "thinking", "thinking": "赌"}, {"type": "thinking", "thinking": "博"}
    assert set(texts([thought[0], part("x"), thought[1]], MESSAGES, "assistant")) == {"赌博", "x"}


def test_a_picture_parts_a_message_but_not_what_came_of_a_tool() -> None:
    """vLLM shows the pictures of a tool's result behind its text."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    content = [part("赌"), picture, part("博")]
    assert texts(content, MESSAGES) == ["赌", "博"]
    assert texts([{"type": "tool_result", "tool_use_id": "t", "content": content}], MESSAGES) == ["赌博"]


def test_the_parts_of_a_document_are_one_text() -> None:
    document = {"type": "document", "source": {"type": "content", "content": [part("赌"), part("博")]}}
    assert texts([document], MESSAGES) == ["赌博"]


def test_lines_are_written_back_into_one_text() -> None:
    held = {"text": "one\ntwo\nthree"}
    first, rest = Text(Lines(held, "text"), 0, "a"), Text(Lines(held, "text"), 1, "a")
    assert (first.text, rest.text) == ("one\n", "two\nthree")
    rest.replace("2")
    first.replace("1\n")
    assert held == {"text": "1\n2"}
