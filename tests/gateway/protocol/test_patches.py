"""A patch changes what it names; the rest of the chunk stays, and a chunk with nothing left to say goes."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocol import sse
from gateway.protocol.patches import Patch, named, patched


def payload(*deltas: dict[str, Any], **more: Any) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": None} for index, delta in enumerate(deltas)]
    return msgspec.json.encode({"id": "c", "model": "engine", "unknown": 1, "choices": choices, **more})


def bodies(out: bytes) -> list[Any]:
    return [msgspec.json.decode(sse.payload(frame) or b"") for frame in sse.Splitter().feed(out)]


def test_a_text_is_replaced_in_its_place_under_the_callers_name_of_the_model() -> None:
    (body,) = bodies(patched(payload({"content": "abc", "x": 1}, {"content": "d"}), {0: Patch("*")}, "mine"))
    assert (body["model"], body["unknown"]) == ("mine", 1)
    assert [choice["delta"] for choice in body["choices"]] == [{"content": "*", "x": 1}, {"content": "d"}]


def test_a_chunk_that_says_nothing_any_more_is_left_out() -> None:
    assert patched(payload({"content": "a"}), {0: Patch("")}, "m") == b""
    assert patched(payload({"content": "a"}), {0: Patch(drop=True)}, "m") == b""
    assert bodies(patched(payload({"content": "a", "role": "assistant"}), {0: Patch("")}, "m"))


def test_of_tokens_that_nobody_can_tell_apart_the_number_is_told_unless_the_choice_is_ended_there() -> None:
    logprobs = msgspec.json.encode({"content": [{"token": "zebra", "bytes": [1], "top_logprobs": []}]})
    for finish, shown in ((None, ["*****"]), ("content_filter", None)):
        patch = Patch("a")
        patch.hide(logprobs)
        patch.finish_reason = finish
        (body,) = bodies(patched(payload({"content": "a", "thinking": "zebra"}), {0: patch}, "m"))
        told = body["choices"][0]["logprobs"]
        assert (told and [each["token"] for each in told["content"]]) == shown


def test_held_text_goes_out_in_a_frame_of_its_own_before_the_end() -> None:
    patch = Patch()
    patch.tails.append(("content", 0, "held"))
    patch.finish_reason = "stop"
    first, last = bodies(patched(payload({}), {0: patch}, "m"))
    assert first["choices"][0]["delta"] == {"content": "held"}
    assert last["choices"][0]["finish_reason"] == "stop"


def test_a_frame_gets_the_name_that_the_caller_used() -> None:
    frame = sse.encode(payload({"content": '"model":"engine"'}))
    assert named(frame, "engine", "engine") == named(frame, None, "x") == frame
    (body,) = bodies(named(frame, "engine", "mine"))
    assert (body["model"], body["choices"][0]["delta"]["content"]) == ("mine", '"model":"engine"')
    escaped = frame.replace(b'"engine"', b'"\\u0065ngine"')
    assert bodies(named(escaped, "engine", "mine"))[0]["model"] == "mine"
