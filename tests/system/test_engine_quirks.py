"""What engines and the proxies before them do to HTTP and SSE: understood where it is legal, never handed to others."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.fakes.forms import DONE, Delta, chunk, dumps, error, event
from tests.fakes.script import CLOSE, RESET, Script, answers, cut, says, streams, writes
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, configuration, hear, model
from tests.system.conftest import StartGateway


def whole(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "smollm2", "choices": [choice]}
    )


def counted(body: bytes, extra: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + extra
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def said(gateway: Gateway, name: str) -> str:
    answer = gateway.post(CHAT, {"model": name, "messages": HI})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


POISON: dict[str, Script] = {
    "two answers at once": writes(counted(whole("mine")) + counted(whole("POISON"))),
    "a second answer later": writes(counted(whole("mine")), 0.02, counted(whole("POISON"))),
    "rubbish after the answer": writes(counted(whole("mine")) + b"POISON"),
    "half an answer after it": writes(counted(whole("mine")) + counted(whole("POISON"))[:40]),
    "a stream and an answer": says("mine"),
}


@pytest.mark.parametrize("what", POISON)
def test_an_answer_that_nobody_asked_for_is_given_to_nobody(
    fake: FakeVLLM, gateway: Gateway, fragile: str, what: str
) -> None:
    fake.script(POISON[what])
    assert said(gateway, fragile) == "mine"
    if "later" in what:  # it comes while the connection lies in the pool
        assert fake.requests(model=fragile)[0].done.wait(1)
    for _ in range(3):
        assert said(gateway, fragile) == "Hello from a fake engine."


BODY = whole("understood")
LEGAL: dict[str, Script] = {
    "close-delimited": writes(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + BODY, CLOSE),
    "HTTP/1.0": writes(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + BODY, CLOSE),
    "connection: close": writes(counted(BODY, b"connection: close\r\n"), CLOSE),
    "interim answers": writes(b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 100 Go\r\n\r\n" + counted(BODY)),
    "chunk extensions and trailers": writes(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x;a=b\r\n%b\r\n0\r\nx-trailer: 1\r\n\r\n" % (len(BODY), BODY)
    ),
    "odd case": writes(counted(BODY).replace(b"content-type: ", b"CONTENT-TYPE:", 1)),
    "one byte a write": cut(answers(BODY), 1),
    "no reason phrase": writes(counted(BODY).replace(b"200 OK", b"200 ", 1)),
}  # fmt: skip


@pytest.mark.parametrize("how", LEGAL)
def test_every_legal_framing_is_understood(fake: FakeVLLM, gateway: Gateway, fragile: str, how: str) -> None:
    fake.script(LEGAL[how])
    assert said(gateway, fragile) == "understood"
    assert said(gateway, fragile) == "Hello from a fake engine."


ILLEGAL: dict[str, Script] = {
    "two lengths": writes(counted(BODY, b"content-length: 5\r\n")),
    "a length and chunks": writes(counted(BODY, b"transfer-encoding: chunked\r\n")),
    "a bad length": writes(b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n" + BODY),
    "an endless head": writes(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 200_000 + b"\r\n"),
    "a bad chunk": writes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"),
    "an empty answer": writes(CLOSE),
    "a redirect": writes(b"HTTP/1.1 302 Found\r\nlocation: http://evil.example/\r\ncontent-length: 0\r\n\r\n"),
    "no content": writes(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "a switch": writes(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("how", ILLEGAL)
def test_what_is_no_answer_is_a_502_and_the_next_request_is_fine(
    fake: FakeVLLM, gateway: Gateway, *, fragile: str, how: str, stream: bool
) -> None:
    fake.script(*[ILLEGAL[how]] * (2 if how == "an empty answer" else 1))
    started = time.monotonic()
    answer = gateway.post(CHAT, {"model": fragile, "messages": HI, "stream": stream})
    assert time.monotonic() - started < 3
    told = (answer.status_code, answer.json()["error"]["code"])
    assert told in {(502, "engine_error"), (503, "no_engine_available")}
    assert "evil" not in answer.text
    fake.reset()
    assert said(gateway, fragile) == "Hello from a fake engine."


def test_the_engine_may_answer_before_it_has_read_the_request(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    body = dumps(error(413, "that is too large for me"))
    fake.read_pause_s = 0.01
    fake.script(writes(refusal + b"content-length: %d\r\n\r\n" % len(body) + body), early=True)
    answer = gateway.post(CHAT, {"model": fragile, "messages": [{"role": "user", "content": "a" * 8_000_000}]})
    assert (answer.status_code, answer.json()["error"]["message"]) == (413, "that is too large for me")
    fake.reset()
    assert said(gateway, fragile) == "Hello from a fake engine."


def test_a_slow_reader_gets_the_whole_request(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    fake.read_pause_s = 0.001
    text = "好" * 1_000_000
    answer = gateway.post(CHAT, {"model": fragile, "messages": [{"role": "user", "content": text}]})
    assert answer.status_code == 200
    assert fake.requests(model=fragile)[0].body["messages"][0]["content"] == text


def test_a_connection_lost_before_the_answer_is_tried_again_and_once_only(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    with FakeVLLM() as second:
        second.always(says("second"))
        fake.always(writes(RESET))
        gateway = start_gateway(configuration([model("smollm2", fake.url, second.url)]))
        texts = {said(gateway, "smollm2") for _ in range(6)}
        assert texts == {"second"}
        assert len(second.requests()) == 6


def test_nothing_is_sent_again_once_a_byte_of_an_answer_was_seen(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    with FakeVLLM() as second:
        half = writes(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{", RESET)
        for engine in (fake, second):
            engine.always(half)
        gateway = start_gateway(configuration([model("smollm2", fake.url, second.url)]))
        assert gateway.post(CHAT, {"model": "smollm2", "messages": HI}).status_code == 502
        assert len(fake.requests()) + len(second.requests()) == 1
        for engine in (fake, second):
            engine.always(streams(chunk("text"), 0.02, RESET))
        heard = hear(gateway, {})
        assert (heard.text(), len(heard.errors)) == ("text", 1)
        assert len(fake.requests()) + len(second.requests()) == 2


def test_an_engine_without_room_is_passed_over(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    with FakeVLLM() as second:
        for status in (429, 503):
            fake.always(answers(error(status, "busy"), status))
            gateway = start_gateway(configuration([model("smollm2", fake.url, second.url)]))
            assert {said(gateway, "smollm2") for _ in range(4)} == {"Hello from a fake engine."}


HALF, REST = chunk("mask"), chunk("papaya", finish="stop")
USED = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
LINES = b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"maskpapaya"},"finish_reason":"stop"}]}\n\n'
FORMS: dict[str, tuple[Any, ...]] = {
    "no space after data": (b"data:" + dumps(HALF) + b"\n\n", b"data:" + dumps(REST) + b"\n\n", DONE),
    "event and id lines": (b"event: x\nid: 1\n" + event(HALF), event(REST), DONE),
    "a byte order mark": (b"\xef\xbb\xbf" + event(HALF), event(REST), DONE),
    "several data lines": (LINES, DONE),
    "usage on the finish chunk": (HALF, REST | {"usage": USED}, DONE),
    "a bare chunk": (HALF, {"choices": REST["choices"]}, DONE),
    "no [DONE]": (HALF, REST),
    "all in one write": (event(HALF) + event(REST) + DONE,),
    "a retry line": (b"retry: 10\n\n", HALF, REST, DONE),
    "a last line without its blank one": (HALF, REST, b"data: [DONE]\n"),
}


@pytest.mark.parametrize("how", FORMS)
def test_every_form_of_an_event_is_filtered(fake: FakeVLLM, gateway: Gateway, fragile: str, how: str) -> None:
    """However an engine writes its events, the word in them is masked."""
    fake.script(streams(*FORMS[how], done=False))
    heard = hear(gateway, {"model": fragile})
    assert heard.text() == "**********", heard.raw
    assert heard.finishes() == ["stop"]
    assert heard.errors == []
    assert b"papaya" not in heard.raw


def test_usage_is_told_as_asked_whatever_the_engine_does(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    used = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    fake.always(streams(chunk("a", usage=used), chunk("b", finish="stop", usage=used)))
    asked = hear(gateway, {"model": fragile, "stream_options": {"include_usage": True}})
    assert [entry["usage"] for entry in asked.events if entry.get("usage")][-1] == used
    continuous = {"include_usage": True, "continuous_usage_stats": True}
    fake.always(says("a", "b"))
    every = hear(gateway, {"model": fragile, "stream_options": continuous})
    assert all(entry["usage"] for entry in every.events)


def test_a_block_estimates_the_usage_and_says_so(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("ok ", "forbiddenzebra", " ", "more"))
    heard = hear(gateway, {"stream_options": {"include_usage": True}})
    assert heard.finishes() == ["content_filter"]
    assert heard.events[-1]["usage"]["completion_tokens"] >= 1
    assert "sluice" in heard.events[-1], heard.events[-1]


@pytest.mark.parametrize("stream", ["/v1/responses", "/v1/messages", CHAT, "/v1/completions"])
def test_what_a_cut_stream_used_is_one_figure_for_caller_and_log(fake: FakeVLLM, gateway: Gateway, stream: str) -> None:
    asked: dict[str, Any] = {"messages": HI, "input": "hi", "prompt": "hi", "max_tokens": 50, "max_output_tokens": 50}
    wanted = {
        "/v1/responses": ["input", "max_output_tokens"],
        "/v1/messages": ["messages", "max_tokens"],
        CHAT: ["messages"],
        "/v1/completions": ["prompt"],
    }[stream]
    body: dict[str, Any] = {"model": "smollm2", "stream": True, **{field: asked[field] for field in wanted}}
    if stream in {CHAT, "/v1/completions"}:
        body["stream_options"] = {"include_usage": True}
    fake.script(says("ok ", "forbidden", "zebra", " ", "more"))
    name = f"used{stream.replace('/', '-')}"
    told = gateway.post(stream, body, headers={"x-request-id": name}).text
    line = gateway.wait_record(name)
    assert line["outcome"] == "content_filter"
    kinds = ("input", "output") if stream in {"/v1/responses", "/v1/messages"} else ("prompt", "completion")
    used = [[int(count) for count in re.findall(rf'"{kind}_tokens": ?(\d+)', told)][-1] for kind in kinds]
    assert used == [line["prompt_tokens"], line["completion_tokens"]]
    assert min(used) > 0


def test_nulls_are_what_an_sdk_sends_for_nothing(fake: FakeVLLM, gateway: Gateway) -> None:
    nothing = dict.fromkeys(
        ["stream", "n", "max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice", "stream_options",
         "logprobs", "top_logprobs", "response_format", "chat_template_kwargs", "chat_template", "seed", "user"]
    )  # fmt: skip
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": None, "refusal": None}, *HI]
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": messages} | nothing)
    assert answer.status_code == 200, answer.text
    for piece in ({"content": None, "reasoning": None, "tool_calls": None}, {"content": ""}):
        fake.script(says(Delta(0, piece), "ok"))
        assert hear(gateway, {}).text() == "ok"


def test_an_answer_without_choices_or_with_odd_ones_is_no_500(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    odd: list[Any] = [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": ["forbiddenzebra"]},
        {"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": ["forbiddenzebra"]}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": None}]},
        [1],
        "text",
    ]
    for body in odd:
        fake.script(answers(body))
        answer = gateway.post(CHAT, {"model": fragile, "messages": HI})
        assert answer.status_code in {200, 502}, (body, answer.text)
        assert "zebra" not in answer.text
        fake.script(streams(dict(body) if isinstance(body, dict) else b"data: " + dumps(body) + b"\n\n"))
        heard = hear(gateway, {"model": fragile})
        assert heard.status in {200, 502}, (body, heard.raw)
        assert b"zebra" not in heard.raw
        assert b"internal_error" not in heard.raw


LONE = b'"a \\ud83d maskpapaya b"'


def test_half_a_character_in_an_answer_hangs_nobody(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    """An escaped lone surrogate is legal JSON and no text."""
    body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":%b},"finish_reason":"stop"}]}' % LONE
    piece = b'data: {"choices":[{"index":0,"delta":{"content":%b},"finish_reason":"stop"}]}\n\n' % LONE
    fake.script(answers(body), streams(piece))
    for stream in (False, True):
        answer = gateway.post(CHAT, {"model": fragile, "messages": HI, "stream": stream})
        assert answer.status_code in {200, 502}
        assert "papaya" not in answer.text
        assert "internal_error" not in answer.text


def test_what_an_engine_says_under_our_name_is_no_trouble(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    messages = [{"role": "user", "content": "a softkiwi"}]
    for ours in ("text", None, ["a"], {"tags": ["theirs"]}):
        fake.script(
            answers(json.loads(whole("ok")) | {"sluice": ours}),
            streams(chunk("ok", sluice=ours), chunk("", finish="stop", sluice=ours)),
        )
        for stream in (False, True):
            answer = gateway.post(CHAT, {"model": fragile, "messages": messages, "stream": stream})
            assert answer.status_code == 200, answer.text
            assert '"tags":["soft"]' in answer.text


def test_a_whole_answer_that_is_masked_keeps_all_that_surrounds_it(fake: FakeVLLM, gateway: Gateway) -> None:
    body = json.loads(whole("a maskpapaya b"))
    odd = {"big": 12345678901234567890123, "float": 1.5, "text": "\u2028 maskpapaya", "none": None, "list": [[], {}]}
    fake.script(answers(body | {"odd": odd}))
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI}).json()
    assert answer["choices"][0]["message"]["content"] == "a ********** b"
    assert answer["odd"] == odd | {"text": "\u2028 **********"}
