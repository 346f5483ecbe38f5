"""The events of /v1/responses: which text each tells, what each means for a text that is held back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.protocol.chunks import Usage
from gateway.protocol.parts import Part, TextChannel
from gateway.protocol.responses_events import (
    DELTAS,
    DONE,
    Event,
    cut_item,
    decode_event,
    delta_event,
    done_events,
    fate_of,
    invented_end,
    kind_of,
)

CONTENT = DELTAS["response.output_text.delta"]
SUMMARY = DONE["response.reasoning_summary_text.done"]


def event(body: dict[str, Any]) -> Event | None:
    payload = json.dumps(body).encode()
    return decode_event(b"event: response.from_the_name\ndata: " + payload + b"\n\n", payload)


def test_an_event_is_known_by_its_type_or_else_by_its_name() -> None:
    assert getattr(event({"type": "response.output_text.delta", "delta": "a"}), "delta", None) == "a"
    assert getattr(event({"delta": "a"}), "type", None) == "response.from_the_name"
    assert event({"type": "message_start"}) is None
    assert event({"type": "response.output_text.delta", "delta": 1}) is None
    unknown = event({"type": "response.song.delta", "delta": [1], "sequence_number": 4})
    assert unknown is not None
    assert (unknown.type, unknown.sequence_number) == ("response.song.delta", 4)
    assert decode_event(b"", b"{") is None


def test_a_part_is_known_by_where_it_stands() -> None:
    told = Event(output_index=2, content_index=3, summary_index=4)
    assert told.key(CONTENT) == (2, "content", 3)
    assert told.key(SUMMARY) == (2, "summary", 4)
    assert told.key(DELTAS["response.function_call_arguments.delta"]) == (2, "call", 0)


@pytest.mark.parametrize(
    ("body", "fate"),
    [
        ({"type": "response.output_text.done"}, "waits"),
        ({"type": "response.content_part.done"}, "waits"),
        ({"type": "response.output_item.done"}, "waits"),
        ({"type": "response.output_item.added", "item": {"type": "message"}}, "waits"),
        ({"type": "response.output_item.added", "item": {"type": "function_call"}}, "ends"),
        ({"type": "response.output_item.added", "item": 1}, "ends"),
        ({"type": "response.content_part.added", "part": {"type": "output_text"}}, "goes on"),
        ({"type": "response.content_part.added", "part": {"type": "refusal"}}, "ends"),
        ({"type": "response.reasoning_summary_part.added", "part": {"type": "summary_text"}}, "ends"),
        ({"type": "response.output_text.delta"}, "goes on"),
        ({"type": "response.refusal.delta"}, "ends"),
        ({"type": "response.completed"}, "ends"),
    ],
)
def test_what_an_event_means_for_a_text_that_is_held(body: dict[str, Any], fate: str) -> None:
    told = event(body)
    assert told is not None
    assert fate_of(told, CONTENT, "message") == fate


def test_a_delta_of_our_own_looks_like_the_engines() -> None:
    told = Event(item_id="m", output_index=1, content_index=2, summary_index=3)
    assert delta_event(CONTENT, told, "x", None) == {
        "type": "response.output_text.delta", "item_id": "m", "output_index": 1, "content_index": 2, "delta": "x",
        "logprobs": [],
    }  # fmt: skip
    assert delta_event(SUMMARY, told, "x", []) == {
        "type": "response.reasoning_summary_text.delta", "item_id": "m", "output_index": 1, "summary_index": 3,
        "delta": "x",
    }  # fmt: skip


def part(text: str) -> Part:
    made = Part(TextChannel(None))
    made.feed(text)
    return made


def test_an_item_that_is_cut_holds_what_was_shown() -> None:
    announced = {"id": "m", "type": "message", "content": []}
    forms = {(0, "content", 0): {"type": "refusal", "refusal": ""}}
    cut = cut_item(announced, {(0, "content", 1): part("b"), (0, "content", 0): part("a")}, forms)
    assert cut["content"] == [
        {"type": "refusal", "refusal": "a"},
        {"type": "output_text", "annotations": [], "text": "b"},
    ]
    assert announced["content"] == []
    reasoning = cut_item({"type": "reasoning"}, {(0, "summary", 0): part("s"), (0, "content", 0): part("t")}, {})
    assert [reasoning[group][0]["type"] for group in ("summary", "content")] == ["summary_text", "reasoning_text"]
    assert cut_item({"type": "custom_tool_call", "input": ""}, {(0, "call", 0): part("x")}, {})["input"] == "x"
    assert cut_item(None, {}, {}) == {"type": "message", "role": "assistant"}


def test_an_item_ends_with_its_part_and_a_call_alone() -> None:
    item = {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}
    names = [told["type"] for told in done_events((0, "summary", 0), item)]
    assert names == [
        "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
    ]  # fmt: skip
    names = [told["type"] for told in done_events((0, "call", 0), {"id": "f", "arguments": "{"})]
    assert names == ["response.output_item.done"]


def test_an_end_of_our_own_is_counted_in_pieces() -> None:
    told = invented_end({"id": "r"}, [{"id": "m"}], Usage(3, 7), "content_filter")
    assert told["type"] == "response.incomplete"
    assert told["response"]["usage"]["total_tokens"] == 10
    assert told["response"]["output"] == [{"id": "m"}]


def test_a_part_is_of_the_kind_that_it_says() -> None:
    kinds = {"output_text": "content", "refusal": "refusal", "reasoning_text": "reasoning", "summary_text": "reasoning"}
    assert {name: kind_of(msgspec.Raw(b'{"type":"%b"}' % name.encode())) for name in kinds} == kinds
    assert kind_of(msgspec.Raw(b"5")) == "content"
