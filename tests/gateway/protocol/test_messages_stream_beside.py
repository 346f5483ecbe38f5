"""What stands in a streamed message beside its texts is filtered, or not shown."""

from __future__ import annotations

import json
from typing import Any

from gateway.protocol.messages_stream import MessagesEditor
from gateway.protocol.messages_whole import as_stream
from tests.fakes.responses import Word


def play(data: bytes, *, watch: bool = True) -> tuple[MessagesEditor, bytes]:
    edit = MessagesEditor(lambda *_: Word() if watch else None, model="m")
    out = edit.feed(data)
    return edit, out + edit.close(None)


def events(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: ")]


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def test_what_nobody_reads_of_events_that_are_known_is_not_shown() -> None:
    data = as_stream({**MESSAGE, "foo": "a papaya"})
    data = data.replace(b'"text":"hi"', b'"text":"hi","more":"zebra"')
    data = data.replace(b'"stop_reason":"end_turn"', b'"stop_reason":"end_turn","why":"zebra"')
    data = data.replace(b'"index":0', b'"index":0,"foo":"zebra","n":3')
    _, out = play(data)
    assert b"zebra" not in out
    begun, start, said, *_ = events(out)
    assert (begun["message"]["foo"], start["n"], said["delta"]) == ("a ******", 3, {"type": "text_delta", "text": "hi"})
    assert play(data, watch=False)[1] == data


def test_a_text_beside_the_blocks_may_end_the_answer() -> None:
    edit, out = play(as_stream({**MESSAGE, "foo": {"x": "a zebra"}}))
    assert b"zebra" not in out
    assert (events(out)[-2]["delta"]["stop_reason"], edit.finish_reasons) == ("refusal", ["content_filter"])


def test_the_name_of_a_call_may_end_the_answer_and_the_call_is_not_told() -> None:
    call = {"type": "tool_use", "id": "c", "name": "zebra", "input": {"a": 1}}
    data = as_stream({**MESSAGE, "content": [{"type": "text", "text": "hi"}, call]})
    edit, out = play(data)
    assert b"zebra" not in out
    assert b"tool_use" not in out
    assert (events(out)[-2]["delta"]["stop_reason"], edit.finish_reasons) == ("refusal", ["content_filter"])
    masked = data.replace(b"zebra", b"papaya")
    assert play(masked)[1] == masked
