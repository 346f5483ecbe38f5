"""What a caller sees of a stream: every byte that may pass, in order, and an honest end."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.forms import COMPLETIONS, Delta, chunk, error_event, event
from tests.fakes.script import CLOSE, RESET, Script, cut, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import HI, Gateway, Heard, RawCaller, hear


def test_untouched_frames_pass_byte_for_byte(fake: FakeVLLM, gateway: Gateway) -> None:
    """Odd spacing, key order, escapes, numbers and unknown fields are the engine's business."""
    frames = [
        b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"t":0}\n\n',
        b'data:  {"choices": [ {"delta": {"content":"\\u4f60\\/"}, "index": 0} ], "z": 1e-07, "a": 1.0}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":" ok"},"token_ids":[1],"big":123456789012345678901}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop","stop":null}],"m":[{}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    fake.script(streams(*frames, done=False))
    heard = hear(gateway, {})
    assert heard.status == 200
    assert heard.raw == b"".join(frames)
    assert heard.headers["content-type"].startswith("text/event-stream")
    assert heard.headers["cache-control"] == "no-cache"
    assert heard.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("size", [None, 1, 7])
def test_what_vllm_says_passes_byte_for_byte_however_it_is_cut(
    fake: FakeVLLM, gateway: Gateway, size: int | None
) -> None:
    seen: list[bytes] = []

    def remember(received: Any) -> Any:
        reply = cut(says("你", "好", "🌍", " and ", "so on"), size or 65536)(received)
        seen.extend(action for action in reply.actions if isinstance(action, bytes))
        return reply

    fake.script(remember)
    heard = hear(gateway, {"stream_options": {"include_usage": True}})
    assert heard.raw == b"".join(seen)


def test_usage_that_the_caller_did_not_ask_for_is_dropped(fake: FakeVLLM, gateway: Gateway) -> None:
    heard = hear(gateway, {})
    assert heard.done
    assert heard.finishes() == ["stop"]
    assert all(entry.get("choices") and not entry.get("usage") for entry in heard.events)
    assert fake.requests()[0].body["stream_options"]["include_usage"] is True
    asked = hear(gateway, {"stream_options": {"include_usage": True}})
    assert asked.events[-1]["usage"]["completion_tokens"] == 6
    assert asked.events[-1]["choices"] == []


def test_line_separators_do_not_cut_a_frame(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-01."""
    fake.script(streams(chunk("a\u2028b\u2029c"), chunk("", finish="stop")))
    heard = hear(gateway, {})
    assert heard.text() == "a\u2028b\u2029c"
    assert [bool(frame.strip()) for frame in heard.frames] == [True] * len(heard.frames)
    assert len(heard.events) == 2


def test_text_split_at_every_byte_arrives_whole(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-02: one byte a write."""
    fake.script(cut(says("你好🌍"), 1))
    heard = hear(gateway, {})
    assert heard.text() == "你好🌍"
    assert "\ufffd" not in heard.raw.decode()
    assert heard.done


def test_keep_alive_comments_of_the_engine_harm_nobody(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-04, first half."""
    fake.always(streams(chunk("a"), b": ping\n\n", chunk("b"), b":\n\n", chunk("", finish="stop")))
    heard = hear(gateway, {})
    assert heard.text() == "ab"
    for line in heard.raw.split(b"\n"):
        assert not line or line.startswith((b":", b"data: {", b"data: [DONE]"))
    with gateway.client() as client:
        stream = client.chat.completions.create(model="smollm2", messages=HI, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in stream) == "ab"


@pytest.mark.parametrize("ending", [RESET, CLOSE], ids=["reset", "close"])
def test_an_engine_that_dies_in_mid_stream_is_told_in_the_stream(
    fake: FakeVLLM, gateway: Gateway, fragile: str, ending: Any
) -> None:
    """ST-06: the text so far, one error event, no invented end."""
    fake.always(streams(chunk("Hel"), chunk("lo"), 0.05, ending))
    heard = hear(gateway, {"model": fragile})
    assert heard.status == 200
    assert heard.text() == "Hello"
    assert heard.finishes() == []
    assert not heard.done
    assert [error["code"] for error in heard.errors] == ["engine_error"]
    assert set(heard.errors[0]) == {"message", "type", "param", "code"}
    assert str(fake.port) not in heard.raw.decode()
    assert b"onnection" not in heard.raw or b"reset by peer" not in heard.raw
    line = gateway.wait_record(heard.headers["x-request-id"])
    assert (line["outcome"], line["status"]) == ("engine_error", 200)
    with gateway.client() as client, pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=fragile, messages=HI, stream=True))


NO_HONEST_END: dict[str, Script] = {
    "no finish_reason": says("a", "b", finish=None),
    "no finish_reason and no [DONE]": says("a", "b", finish=None, done=False),
    "one choice of two unfinished": streams(chunk("a"), chunk("b", 1), chunk("", finish="stop")),
    "abort": says("a", "b", finish="abort"),
    "error": says("a", "b", finish="error"),
    "an error event": streams(chunk("a"), chunk("b"), error_event(500, "EngineCore died at /opt/core.py")),
    "an error as text": streams(chunk("a"), chunk("b"), b'data: {"error": "CUDA at /opt/core.py"}\n\n', done=False),
    "rubbish": streams(chunk("a"), chunk("b"), b"data: {oops\n\n"),
    "half an event": streams(chunk("a"), chunk("b"), event(chunk("c"))[:30], done=False),
}


@pytest.mark.parametrize("what", NO_HONEST_END)
def test_a_stream_without_an_honest_end_is_a_failure(fake: FakeVLLM, gateway: Gateway, fragile: str, what: str) -> None:
    fake.always(NO_HONEST_END[what])
    heard = hear(gateway, {"model": fragile, "n": 2 if what.startswith("one choice") else 1})
    assert heard.status == 200
    assert heard.text().startswith("a")
    assert not heard.done
    assert [entry["code"] for entry in heard.errors] == ["engine_error"], heard.raw
    assert heard.finishes() == (["stop"] if what.startswith("one choice") else [])
    assert "error" in heard.events[-1]
    assert b"/opt/" not in heard.raw


def test_an_end_without_done_is_completed(fake: FakeVLLM, gateway: Gateway) -> None:
    """transformers serve sends no [DONE]; the answer is whole all the same."""
    fake.script(says("a", "b", done=False))
    heard = hear(gateway, {})
    assert (heard.text(), heard.finishes(), heard.errors) == ("ab", ["stop"], [])


@pytest.mark.parametrize("ending", [RESET, CLOSE], ids=["reset", "close"])
def test_text_of_the_finish_chunk_is_shown_though_the_engine_dies_after_it(
    fake: FakeVLLM, gateway: Gateway, fragile: str, ending: Any
) -> None:
    fake.always(streams(chunk("a"), chunk("b", finish="stop"), 0.05, ending))
    heard = hear(gateway, {"model": fragile})
    assert heard.text() == "ab"
    assert bool(heard.errors) != heard.done  # complete, or said to be broken: one of the two


def test_choices_are_separate(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-08: choice 0 spells a hard word over its pieces, choice 1 does not; there is no "forbidhello"."""
    fake.script(
        streams(
            chunk("forbid"),
            chunk("hello ", 1),
            chunk("den"),
            chunk("world", 1),
            chunk("zebra"),
            chunk("", 1, "stop"),
            chunk("", 0, "stop"),
        )
    )
    heard = hear(gateway, {"n": 2})
    assert heard.text(1) == "hello world"
    assert heard.finishes(1) == ["stop"]
    assert heard.text(0) == ""
    assert heard.finishes(0) == ["content_filter"]
    assert heard.done


@pytest.mark.parametrize("text", ["see the forbid", "赌", "maskpapay", "a 大麻烦"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", COMPLETIONS])
def test_text_held_back_is_released_before_the_end(fake: FakeVLLM, gateway: Gateway, text: str, path: str) -> None:
    """ST-09: the tail may be the beginning of an entry."""
    fake.script(says(text, ""))
    heard = hear(gateway, {} if path != COMPLETIONS else {"prompt": "hi"}, path)
    assert heard.text() == text
    assert heard.finishes() == ["stop"]
    last_text = max(at for at, choice in enumerate(heard.choices()) if choice.get("text") or choice.get("delta"))
    last_finish = max(at for at, choice in enumerate(heard.choices()) if choice.get("finish_reason"))
    assert last_text <= last_finish


def test_the_finish_chunk_may_carry_text(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("clean ", "maskpapaya", finish="length"))
    heard = hear(gateway, {})
    assert heard.text() == "clean **********"
    assert heard.finishes() == ["length"]


def test_reasoning_is_a_channel_of_its_own(fake: FakeVLLM, gateway: Gateway) -> None:
    pieces = [{"reasoning": "mask"}, {"content": "papaya"}, {"reasoning": "papaya"}, {"content": "."}]
    fake.script(says(*[Delta(0, piece) for piece in pieces]))
    heard = hear(gateway, {})
    assert heard.text(kind="reasoning") == "**********"
    assert heard.text() == "papaya."


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
def test_other_line_ends_are_understood(fake: FakeVLLM, gateway: Gateway, newline: bytes) -> None:
    frames = [event(chunk("mask")), event(chunk("papaya")), event(chunk("", finish="stop")), b"data: [DONE]\n\n"]
    fake.script(streams(*[frame.replace(b"\n", newline) for frame in frames], done=False))
    heard = hear(gateway, {})
    unified = Heard(heard.status, heard.headers, heard.raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    assert unified.text() == "**********"
    assert unified.done


def test_first_text_is_not_kept_waiting(fake: FakeVLLM, gateway: Gateway) -> None:
    """Each piece reaches the caller before the engine writes the next."""
    gates = [fake.gate(), fake.gate()]
    fake.script(says("one ", gates[0], "two ", gates[1], "three"))
    with RawCaller(gateway.port) as caller:
        caller.post("/v1/chat/completions", {"model": "smollm2", "messages": HI, "stream": True})
        caller.until(b'"one "')
        gates[0].set()
        caller.until(b'"two "')
        gates[1].set()
        caller.until(b"[DONE]")


def test_a_slow_caller_gets_everything_and_the_gateway_stays_small(fake: FakeVLLM, gateway: Gateway) -> None:
    """Back-pressure reaches the engine: the gateway does not buffer what its caller does not read."""
    piece = "x" * 20_000
    fake.script(says(*[piece] * 1500))
    before = gateway.rss()
    with RawCaller(gateway.port, timeout=20) as caller:
        caller.post("/v1/chat/completions", {"model": "smollm2", "messages": HI, "stream": True})
        caller.until(b'"content":"xx')
        received = fake.wait_for(1)[0]
        written, stalled = -1, time.monotonic() + 10
        while received.written != written:  # until the engine has to wait
            assert time.monotonic() < stalled
            written = received.written
            time.sleep(0.2)
        assert written < 1400
        assert gateway.rss() - before < 16_000_000
        caller.until(b"[DONE]")
    assert caller.seen.count(b"x") >= 1500 * 20_000


def test_soft_tags_come_in_the_last_chunk(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("a soft", "kiwi", " here"))
    heard = hear(gateway, {})
    assert heard.text() == "a softkiwi here"
    assert heard.events[-1]["sluice"]["tags"] == ["soft"]
    assert heard.done


def test_frames_are_json_of_the_chunk_form(fake: FakeVLLM, gateway: Gateway) -> None:
    """A chunk that a plugin changed keeps every field around its text."""
    odd = chunk("maskpapaya.", extra={"k": [1, None]}) | {"prompt_token_ids": None}
    fake.script(streams(odd, chunk("", finish="stop", stop_reason=None)))
    heard = hear(gateway, {})
    changed = next(entry for entry in heard.events if entry["choices"][0]["delta"].get("content"))
    odd["choices"][0]["delta"]["content"] = "**********."
    assert changed == odd
    assert json.loads(heard.payloads[0]) == odd


def test_an_empty_stream_is_a_502(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    fake.always(streams())
    answer = gateway.post("/v1/chat/completions", {"model": fragile, "messages": HI, "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")


def test_a_head_request_or_get_of_a_post_route_is_refused(gateway: Gateway) -> None:
    answer = gateway.get("/v1/chat/completions")
    assert answer.status_code in {404, 405}
    assert "error" in answer.json()
    assert httpx.head(gateway.url + "/v1/chat/completions").status_code in {401, 404, 405}
