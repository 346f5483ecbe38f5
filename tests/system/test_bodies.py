"""Bodies that are too much, too deep, or no JSON: refused quickly in our shape, and never a 500."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import Any

import httpx
import pytest

from tests.fakes.script import answers, gzipped, says, writes
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, RawCaller, configuration, model
from tests.system.conftest import StartGateway

POSTS = [CHAT, "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"]
GOOD = json.dumps({"model": "smollm2", "messages": HI}).encode()
LIMIT = 10_485_760


def refused(answer: httpx.Response, status: int = 400, code: str = "invalid_request") -> dict[str, Any]:
    """Check the shape of a refusal."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    for trace in ("Traceback", "object at 0x", "msgspec", "<class", "DecodeError"):
        assert trace not in answer.text
    return dict(body["error"])


MALFORMED = {
    "cut off": b'{"model":"m",',
    "a list": b'["a"]',
    "a number": b"42",
    "a string": b'"x"',
    "null": b"null",
    "empty": b"",
    "blank": b"  \n",
    "not UTF-8": b'{"model":"\xff\xfe","messages":[]}',
    "UTF-16": '{"model":"m"}'.encode("utf-16"),
    "two objects": b"{}{}",
    "a comma too many": b'{"model":"m",}',
    "single quotes": b"{'model':'m'}",
    "a lone surrogate": b'{"model":"smollm2","messages":[{"role":"user","content":"\\ud83d"}]}',
    "a control character": b'{"model":"m\x01"}',
    "a form": b"model=m&messages=hi",
}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_body_is_refused(fake: FakeVLLM, gateway: Gateway, path: str, what: str) -> None:
    """AC-02."""
    refused(gateway.post(path, content=MALFORMED[what]))
    assert fake.everything() == [] or all(received.method == "GET" for received in fake.everything())


NOT_NUMBERS = {
    "temperature": (b'"temperature":NaN', "temperature"),
    "top_p": (b'"top_p":Infinity', "top_p"),
    "minus": (b'"top_p":-Infinity', "top_p"),
    "max_tokens": (b'"max_tokens":1e400', "max_tokens"),
    "nested": (b'"logit_bias":{"5":NaN}', "logit_bias.5"),
    "in a list": (b'"stop_token_ids":[1,NaN]', "stop_token_ids[1]"),
}


@pytest.mark.parametrize("what", NOT_NUMBERS)
def test_what_is_no_number_in_json_is_refused_by_its_place(fake: FakeVLLM, gateway: Gateway, what: str) -> None:
    """SE-10, the first three."""
    field, param = NOT_NUMBERS[what]
    told = refused(gateway.post(CHAT, content=GOOD[:-1] + b"," + field + b"}"))
    assert told["param"] == param
    assert fake.requests() == []


def test_other_odd_numbers_are_left_to_the_engine(fake: FakeVLLM, gateway: Gateway) -> None:
    """SE-10, the others: exact, and the engine's verdict comes back."""
    refusal = {
        "error": {"message": "Input should be a number", "type": "Bad Request", "param": "body.seed", "code": 400}
    }
    fake.script(answers(refusal, 400), answers(refusal, 400))
    for field in (b'"seed":123456789012345678901234567890', b'"temperature":"0.7"'):
        answer = gateway.post(CHAT, content=GOOD[:-1] + b"," + field + b"}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body.seed")
    seen = fake.requests()
    assert b'"seed":123456789012345678901234567890' in seen[0].raw
    assert seen[1].body["temperature"] == "0.7"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


DEEP: dict[str, bytes] = {
    "arrays": GOOD[:-1] + b',"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "objects": GOOD[:-1] + b',"x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "unclosed": GOOD[:-1] + b',"x":' + b"[" * 1_000_000,
    "a thousand levels of a tool's parameters": GOOD[:-1]
    + b',"tools":[{"type":"function","function":{"name":"f","parameters":'
    + b'{"properties":{"a":' * 500
    + b"{}"
    + b"}}" * 500
    + b"}}]}",
    "a thousand levels of a schema": GOOD[:-1]
    + b',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":'
    + b'{"items":' * 1000
    + b"{}"
    + b"}" * 1000
    + b"}}}",
    "a tool's parameters": json.dumps(
        {
            "model": "smollm2",
            "messages": HI,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": nested(900)}}}],
        }
    ).encode(),
    "a schema": json.dumps(
        {
            "model": "smollm2",
            "messages": HI,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"x": nested(900)}}},
        }
    ).encode(),
}


@pytest.mark.parametrize("what", DEEP)
def test_deep_nesting_is_refused_quickly_and_the_next_request_is_fine(
    fake: FakeVLLM, gateway: Gateway, what: str
) -> None:
    """SE-08."""
    started = time.monotonic()
    refused(gateway.post(CHAT, content=DEEP[what]))
    assert time.monotonic() - started < 1
    assert fake.requests() == []
    assert gateway.post(CHAT, content=GOOD).status_code == 200


def test_nesting_up_to_the_limit_passes(fake: FakeVLLM, gateway: Gateway) -> None:
    inside = {"model": "smollm2", "messages": HI, "x": nested(198)}
    assert gateway.post(CHAT, inside).status_code == 200
    assert fake.requests()[0].body["x"] == nested(198)
    refused(gateway.post(CHAT, inside | {"x": nested(201)}))


WRONG_TYPES: dict[str, dict[str, Any]] = {
    "messages is text": {"messages": "hi"},
    "messages is null": {"messages": None},
    "messages is an object": {"messages": {"role": "user"}},
    "a message is text": {"messages": ["hi"]},
    "a message is null": {"messages": [None]},
    "content is a number": {"messages": [{"role": "user", "content": 5}]},
    "content is an object": {"messages": [{"role": "user", "content": {"text": "hi"}}]},
    "a part is text": {"messages": [{"role": "user", "content": ["hi"]}]},
    "a part's text is a number": {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
    "role is a list": {"messages": [{"role": [], "content": "hi"}]},
    "tool_calls is text": {"messages": [{"role": "assistant", "tool_calls": "f"}]},
    "arguments is an object": {
        "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}]
    },
    "model is a number": {"model": 5},
    "model is a list": {"model": ["smollm2"]},
    "stream is text": {"stream": "yes"},
    "stream is a number": {"stream": 1},
    "stream_options is text": {"stream": True, "stream_options": "usage"},
    "include_usage is text": {"stream": True, "stream_options": {"include_usage": "yes"}},
    "n is text": {"n": "two"},
    "n is a fraction": {"n": 1.5},
    "n is zero": {"n": 0},
    "n is negative": {"n": -1},
    "n is huge": {"n": 10**30},
    "max_tokens is text": {"max_tokens": "ten"},
    "max_tokens is an object": {"max_tokens": {}},
    "max_tokens is negative": {"max_tokens": -5},
    "tools is text": {"tools": "f"},
    "a tool is null": {"tools": [None]},
    "response_format is text": {"response_format": "json"},
    "stop is a number": {"stop": 5},
    "sluice is text": {"sluice": "preset"},
    "logprobs is text": {"logprobs": "yes"},
    "chat_template_kwargs is a list": {"chat_template_kwargs": [1]},
}


@pytest.mark.parametrize("what", WRONG_TYPES)
def test_wrong_types_are_refused_or_left_to_the_engine_but_never_a_500(
    fake: FakeVLLM, gateway: Gateway, what: str
) -> None:
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI} | WRONG_TYPES[what])
    assert answer.status_code in {200, 400}, answer.text
    if answer.status_code == 400:
        refused(answer)


OTHER_ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": {"a": 1}}),
    ("/v1/completions", {"prompt": [["a"], 5, None]}),
    ("/v1/completions", {"prompt": None}),
    ("/v1/completions", {}),
    ("/v1/completions", {"prompt": "a", "suffix": 5, "echo": "yes", "logprobs": []}),
    ("/v1/embeddings", {"input": {"a": 1}}),
    ("/v1/embeddings", {"input": [None, 5.5]}),
    ("/v1/embeddings", {}),
    ("/tokenize", {"prompt": 5}),
    ("/tokenize", {"messages": "hi"}),
    ("/tokenize", {}),
    ("/detokenize", {"tokens": "hi"}),
    ("/detokenize", {"tokens": [None, "a", -1, 10**40]}),
    ("/detokenize", {}),
]


@pytest.mark.parametrize(("path", "fields"), OTHER_ROUTES)
def test_wrong_types_on_other_routes(fake: FakeVLLM, gateway: Gateway, path: str, fields: dict[str, Any]) -> None:
    fake.always(
        answers({"error": {"message": "no", "type": "Bad Request", "param": None, "code": 400}}, 400), route=path
    )
    answer = gateway.post(path, {"model": "smollm2"} | fields)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]


def test_text_that_cannot_be_checked_is_never_forwarded(fake: FakeVLLM, gateway: Gateway) -> None:
    """A place with the wrong type must not carry a word past the filter."""
    for content in ({"text": "forbiddenzebra"}, ["forbiddenzebra"], [{"type": "text", "text": ["forbiddenzebra"]}]):
        gateway.post(CHAT, {"model": "smollm2", "messages": [{"role": "user", "content": content}]})
    gateway.post("/v1/completions", {"model": "smollm2", "prompt": {"text": "forbiddenzebra"}})
    gateway.post("/v1/embeddings", {"model": "smollm2", "input": {"text": "forbiddenzebra"}})
    gateway.post("/tokenize", {"model": "smollm2", "prompt": ["forbiddenzebra"]})
    assert [received.raw for received in fake.everything() if b"zebra" in received.raw] == []


def test_a_duplicate_key_cannot_say_two_things(fake: FakeVLLM, gateway: Gateway) -> None:
    """What is forwarded is written from the object that was checked."""
    twice = b'{"model":"smollm2","messages":[{"role":"user","content":"forbiddenzebra","content":"hi"}],"messages":'
    answer = gateway.post(CHAT, content=twice + b'[{"role":"user","content":"hi"}]}')
    assert answer.status_code == 200
    assert b"zebra" not in fake.requests()[0].raw
    assert fake.requests()[0].raw.count(b'"messages"') == 1
    last = b'{"model":"smollm2","messages":[{"role":"user","content":"hi"}],"messages":'
    answer = gateway.post(CHAT, content=last + b'[{"role":"user","content":"forbiddenzebra"}]}')
    assert answer.json()["error"]["code"] == "content_filter"


@pytest.mark.parametrize("way", ["counted", "chunked"])
def test_the_limit_counts_what_comes_not_what_is_announced(fake: FakeVLLM, gateway: Gateway, way: str) -> None:
    def pieces() -> Any:
        yield b'{"model":"smollm2","messages":[{"role":"user","content":"'
        for _ in range(11):
            yield b"a" * 1_048_576
        yield b'"}]}'

    content: Any = b"".join(pieces()) if way == "counted" else pieces()
    started = time.monotonic()
    headers = {"authorization": f"Bearer {TEAM}", "content-type": "application/json"}
    answer = httpx.post(gateway.url + CHAT, content=content, headers=headers, timeout=20)
    refused(answer, 413, "request_too_large")
    assert time.monotonic() - started < 2
    assert fake.requests() == []


def test_an_announced_length_over_the_limit_is_refused_before_the_body_comes(fake: FakeVLLM, gateway: Gateway) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\ncontent-length: {LIMIT + 1}\r\n\r\n"
    with RawCaller(gateway.port) as caller:
        assert caller.send(head.encode()).until(b"request_too_large").startswith(b"HTTP/1.1 413 ")


def test_a_body_at_the_limit_passes(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=[], max_body_bytes=1000))
    room = 1000 - len(GOOD) - len(',"x":""')
    assert gateway.post(CHAT, content=GOOD[:-1] + b',"x":"' + b"a" * room + b'"}').status_code == 200
    refused(gateway.post(CHAT, content=GOOD[:-1] + b',"x":"' + b"a" * (room + 1) + b'"}'), 413, "request_too_large")


def test_a_small_gzip_body_works(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = gateway.post(CHAT, content=gzip.compress(GOOD), headers={"content-encoding": "gzip"})
    assert answer.status_code == 200
    assert fake.requests()[0].body["messages"] == HI
    assert fake.requests()[0].header("content-encoding") is None
    members = gzip.compress(GOOD[:10]) + gzip.compress(GOOD[10:])
    assert gateway.post(CHAT, content=members, headers={"content-encoding": "GZIP"}).status_code in {200, 400}


@pytest.mark.parametrize("encoding", ["deflate", "br", "zstd", "compress", "gzip, gzip", "gzip, br", "x-unknown"])
def test_other_encodings_are_refused(fake: FakeVLLM, gateway: Gateway, encoding: str) -> None:
    body = zlib.compress(GOOD)
    refused(gateway.post(CHAT, content=body, headers={"content-encoding": encoding}), 415, "unsupported_encoding")
    assert fake.requests() == []


def test_identity_is_no_encoding(fake: FakeVLLM, gateway: Gateway) -> None:
    assert gateway.post(CHAT, content=GOOD, headers={"content-encoding": "identity"}).status_code == 200


def bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b"a" * 1_048_576) for _ in range(megabytes)) + packer.flush()


def test_a_decompression_bomb_is_refused_quickly_and_cheaply(fake: FakeVLLM, gateway: Gateway) -> None:
    """SE-06."""
    packed = bomb(512)
    before = gateway.rss()
    started = time.monotonic()
    refused(gateway.post(CHAT, content=packed, headers={"content-encoding": "gzip"}), 413, "request_too_large")
    assert time.monotonic() - started < 1
    assert gateway.rss() - before < 2 * LIMIT
    twice = gateway.post(CHAT, content=gzip.compress(packed), headers={"content-encoding": "gzip"})
    assert twice.status_code in {400, 413}
    assert fake.requests() == []


@pytest.mark.parametrize("body", [b"", GOOD, gzip.compress(GOOD)[:-5], b"\x1f\x8b\x08" + b"\xff" * 50])
def test_broken_gzip_is_refused(fake: FakeVLLM, gateway: Gateway, body: bytes) -> None:
    refused(gateway.post(CHAT, content=body, headers={"content-encoding": "gzip"}))
    assert fake.requests() == []


def test_the_engine_is_asked_for_identity(fake: FakeVLLM, gateway: Gateway) -> None:
    gateway.post(CHAT, content=GOOD, headers={"accept-encoding": "gzip, br"})
    assert fake.requests()[0].header("accept-encoding") in {None, "identity"}


def test_a_compressed_answer_is_not_passed_unread(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    """SE-06, the engine's side: it answers gzip though asked for identity, and then a bomb."""
    fake.script(gzipped(says("forbiddenzebra")))
    answer = gateway.post(CHAT, {"model": fragile, "messages": HI})
    assert answer.status_code in {200, 502}
    assert "zebra" not in answer.text
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
    packed = bomb(512)
    fake.always(writes(head + b"content-length: %d\r\n\r\n" % len(packed) + packed))
    before = gateway.rss()
    answer = gateway.post(CHAT, {"model": fragile, "messages": HI})
    assert answer.status_code == 502
    assert gateway.rss() - before < 64_000_000


def test_expect_continue_is_answered(fake: FakeVLLM, gateway: Gateway) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\nexpect: 100-continue\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(GOOD)}\r\n\r\n"
    with RawCaller(gateway.port) as caller:
        caller.send(head.encode()).until(b"100 Continue")
        caller.send(GOOD).until(b"HTTP/1.1 200 OK")
    assert fake.requests()[0].header("expect") is None


def test_a_body_that_never_ends_holds_nobody_up(fake: FakeVLLM, gateway: Gateway) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\ncontent-length: 1000\r\n\r\n{{"
    with RawCaller(gateway.port) as caller:
        caller.send(head.encode())
        assert gateway.post(CHAT, content=GOOD).status_code == 200
    assert len(fake.requests()) == 1
    gateway.wait_metric("sluice_in_flight", 0)


def test_a_slow_body_is_put_together(fake: FakeVLLM, gateway: Gateway) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(GOOD)}\r\n\r\n"
    with RawCaller(gateway.port) as caller:
        caller.send(head.encode())
        for byte in GOOD:
            caller.send(bytes([byte]))
        assert b"HTTP/1.1 200 OK" in caller.rest()
    assert fake.requests()[0].body["messages"] == HI
