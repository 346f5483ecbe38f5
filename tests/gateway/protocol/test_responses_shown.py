"""What a caller has been told of a response, and how it ends before its time."""

from __future__ import annotations

import json

import msgspec

from gateway.errors import EngineError
from gateway.protocol.chunks import Usage
from gateway.protocol.named import Numbers
from gateway.protocol.parts import Part, TextChannel
from gateway.protocol.responses_shown import Shown

BEGUN = msgspec.Raw(b'{"id":"resp_1","model":"m","instructions":"ours","status":"in_progress","output":[]}')


def shown() -> Shown:
    told = Shown("gpt", {"instructions": None}, Numbers())
    told.begun(BEGUN)
    return told


def test_an_item_is_known_by_its_id_whatever_its_place() -> None:
    told = shown()
    told.item(3, {"id": "m", "type": "message"})
    assert told.index_of({"id": "m"}, 0) == 3
    assert told.index_of({"id": "x"}, 0) == -1
    assert (told.kind(3), told.kind(0)) == ("message", None)


def test_an_item_that_is_cut_ends_incomplete_and_so_does_the_response() -> None:
    told = shown()
    part = Part(TextChannel(None))
    part.feed("say ")
    told.item(0, {"id": "m", "type": "message", "status": "in_progress", "content": []})
    told.part((0, "content", 0), {"type": "output_text", "text": "", "annotations": []})
    frames = told.cut((0, "content", 0), {(0, "content", 0): part, (1, "content", 0): part}, None)
    assert frames.count(b"event: ") == 3
    response = told.ending(Usage(1, 2), "content_filter")["response"]
    assert (response["model"], response["instructions"], response["status"]) == ("gpt", None, "incomplete")
    assert response["output"][0]["status"] == "incomplete"
    assert response["output"][0]["content"][0]["text"] == "say "


def test_a_failure_shows_what_had_been_told() -> None:
    told = shown()
    told.item(0, {"id": "a", "status": "completed"})
    told.item(1, {"id": "b", "status": "in_progress"})
    response = json.loads(told.failed(EngineError("gone")).split(b"data: ")[1])["response"]
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert (response["id"], response["error"]["code"]) == ("resp_1", "engine_error")


def test_a_response_that_never_began_fails_all_the_same() -> None:
    told = Shown("gpt", {}, Numbers())
    told.begun(msgspec.Raw(b"5"))
    assert b'"status":"failed"' in told.failed(EngineError("gone"))
