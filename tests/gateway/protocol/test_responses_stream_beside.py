"""What stands in a streamed response beside its texts is filtered, or not shown."""

from __future__ import annotations

import json
from typing import Any

from gateway.protocol.responses_stream import ResponsesEditor
from tests.fakes.responses import Engine, Word


def play(data: bytes, *, watch: bool = True) -> tuple[ResponsesEditor, bytes]:
    edit = ResponsesEditor(lambda *_: Word() if watch else None, model="m")
    out = edit.feed(data)
    return edit, out + edit.close(None)


def events(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: ")]


def test_what_nobody_reads_of_events_that_are_known_is_not_shown() -> None:
    data = Engine().text("hi").end().replace(b'"output_index"', b'"foo": "zebra", "output_index"')
    _, out = play(data)
    assert b"zebra" not in out
    assert [event["sequence_number"] for event in events(out)] == list(range(len(events(out))))
    assert play(data, watch=False)[1] == data


def test_what_stands_beside_the_items_is_filtered_and_may_end_the_answer() -> None:
    data = Engine().text("hi").end().replace(b'"object"', b'"foo": {"x": "a papaya"}, "object"')
    _, out = play(data)
    assert b"papaya" not in out
    assert events(out)[-1]["response"]["foo"] == {"x": "a ******"}
    edit, out = play(data.replace(b"papaya", b"zebra"))
    assert b"zebra" not in out
    assert (events(out)[-1]["type"], edit.finish_reasons) == ("response.incomplete", ["content_filter"])
    _, cut = play(Engine().text("a zebra").end().replace(b'"object"', b'"foo": "papaya", "object"'))
    assert b"papaya" not in cut


def test_the_name_of_a_call_may_end_the_answer() -> None:
    data = Engine().text("hi").call('{"a": 1}').end()
    edit, out = play(data.replace(b'"name": "mail"', b'"name": "zebra"').replace(b'"name":"mail"', b'"name":"zebra"'))
    assert b"zebra" not in out
    assert edit.finish_reasons == ["content_filter"]
    item = events(out)[-1]["response"]["output"][-1]
    assert (item["status"], item["name"]) == ("incomplete", "")
    masked = data.replace(b'"mail"', b'"papaya"')
    assert play(masked)[1] == masked
