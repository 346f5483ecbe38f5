"""The fake is held against the real SDK and a plain client: what it plays is what a script says."""

from __future__ import annotations

import contextlib
import gc
import gzip
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.forms import Delta, error, error_event, tool_call
from tests.fakes.script import CLOSE, RESET, SILENCE, answers, cut, delayed, gzipped, says, streams, writes
from tests.fakes.vllm import FakeVLLM

HI: list[Any] = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"


@pytest.fixture
def fake() -> Iterator[FakeVLLM]:
    with FakeVLLM(keep_alive_s=0.2) as fake:
        yield fake


@pytest.fixture
def client(fake: FakeVLLM) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{fake.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_streamed_and_a_whole_answer_say_the_same(fake: FakeVLLM, client: openai.OpenAI) -> None:
    fake.always(says("你", "好🌍"))
    whole = client.chat.completions.create(model="smollm2", messages=HI)
    stream = client.chat.completions.create(
        model="smollm2", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert whole.choices[0].message.content == "你好🌍"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "你好🌍"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices] == [None, None, "stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


def test_chunks_have_the_bytes_of_vllm(fake: FakeVLLM) -> None:
    fake.script(says("Sc", "r", finish="length"))
    body = {"model": "smollm2", "messages": HI, "stream": True, "stream_options": {"include_usage": True}}
    frames = httpx.post(fake.url + CHAT, json=body).content.split(b"\n\n")
    head = (
        b'data: {"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk",'
        b'"created":1795962862,"model":"smollm2",'
    )
    assert frames == [
        head
        + b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
        b'"prompt_token_ids":null,"prompt_text":null}',
        head
        + b'"choices":[{"index":0,"delta":{"content":"Sc"},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
        head + b'"choices":[{"index":0,"delta":{"content":"r"},"logprobs":null,"finish_reason":"length",'
        b'"stop_reason":null,"token_ids":null}]}',
        head + b'"choices":[],"usage":{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2},'
        b'"system_fingerprint":"vllm-0.32.0-e5daedad"}',
        b"data: [DONE]",
        b"",
    ]


def test_choices_tool_calls_reasoning_and_logprobs_have_their_places(fake: FakeVLLM, client: openai.OpenAI) -> None:
    fake.script(
        says(Delta(0, {"content": "a"}), Delta(1, {"content": "b"}), Delta(0, {"content": "c"})),
        says(tool_call(0, "a", "f", ""), tool_call(0, arguments='{"x":1}'), finish="tool_calls"),
        says({"reasoning": "hm"}, "so"),
    )
    two = client.chat.completions.create(model="smollm2", messages=HI, n=2, logprobs=True)
    assert [choice.message.content for choice in two.choices] == ["ac", "b"]
    assert two.choices[0].logprobs is not None
    assert [entry.token for entry in two.choices[0].logprobs.content or []] == ["a", "c"]
    calls = client.chat.completions.create(model="smollm2", messages=HI).choices[0].message.tool_calls or []
    assert [call.model_dump()["function"] for call in calls] == [{"name": "f", "arguments": '{"x":1}'}]
    thought = client.chat.completions.create(model="smollm2", messages=HI).choices[0].message
    assert (thought.content, thought.model_dump()["reasoning"]) == ("so", "hm")


def test_completions_take_a_list_of_prompts(fake: FakeVLLM, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt=["a", "b"], max_tokens=2, logprobs=1)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "Hello from"), (1, "Hello from")]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.text_offset == [0, 5]


def test_other_routes_answer(fake: FakeVLLM, client: openai.OpenAI) -> None:
    assert len(client.embeddings.create(model="smollm2", input=["a", "bb"], encoding_format="float").data) == 2
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert httpx.post(fake.url + "/tokenize", json={"prompt": "ab"}).json()["tokens"] == [97, 98]
    assert httpx.post(fake.url + "/detokenize", json={"tokens": [97, 98]}).json() == {"prompt": "ab"}
    assert httpx.get(fake.url + "/health").status_code == 200
    assert "num_requests_running" in httpx.get(fake.url + "/metrics").text
    assert httpx.get(fake.url + "/nope").json() == {"detail": "Not Found"}


def test_failures_are_played(fake: FakeVLLM, client: openai.OpenAI) -> None:
    fake.script(
        answers(error(400, "no"), 400),
        streams(error_event(503)),
        says("a", RESET),
        writes(b"HTTP/1.1 200 OK\r\n", CLOSE),
    )
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="smollm2", messages=HI)
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="smollm2", messages=HI, stream=True))
    with pytest.raises(openai.APIConnectionError):
        list(client.chat.completions.create(model="smollm2", messages=HI, stream=True))
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="smollm2", messages=HI)


def test_answers_can_be_cut_delayed_and_compressed(fake: FakeVLLM, client: openai.OpenAI) -> None:
    fake.script(cut(says("好")), delayed(says("late"), 0.1))
    assert client.chat.completions.create(model="smollm2", messages=HI).choices[0].message.content == "好"
    started = time.monotonic()
    assert client.chat.completions.create(model="smollm2", messages=HI).choices[0].message.content == "late"
    assert time.monotonic() - started >= 0.1
    fake.script(gzipped(says("x")))
    with httpx.stream("POST", fake.url + CHAT, json={"messages": HI}) as answer:
        assert json.loads(gzip.decompress(b"".join(answer.iter_raw())))["choices"][0]["message"]["content"] == "x"


def test_it_records_what_it_was_asked_and_that_the_caller_left(fake: FakeVLLM) -> None:
    fake.script(says("a", SILENCE))
    with httpx.stream(
        "POST", fake.url + CHAT, json={"model": "m", "messages": HI, "stream": True}, headers={"x-a": "b"}
    ):
        received = fake.wait_for(1)[0]
        left = time.monotonic()
    assert received.seconds_until_left(left, 1) < 1
    assert (received.method, received.route, received.header("x-a")) == ("POST", CHAT, "b")
    assert received.body["messages"] == HI
    assert received.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


def test_it_answers_early_and_closes_idle_connections(fake: FakeVLLM) -> None:
    fake.script(answers(error(413, "too large"), 413), early=True)
    with socket.create_connection(("127.0.0.1", fake.port)) as raw:
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
        assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(("127.0.0.1", fake.port), timeout=2) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert raw.recv(65536) == b""


def test_a_gate_holds_the_answer_until_the_test_opens_it(fake: FakeVLLM) -> None:
    gate = fake.gate()
    fake.script(says("a", gate, "b"))
    with httpx.stream("POST", fake.url + CHAT, json={"messages": HI, "stream": True}) as answer:
        pieces = answer.iter_raw()
        seen = next(pieces)
        while b'"content":"a"' not in seen:
            seen += next(pieces)
        assert b'"content":"b"' not in seen
        gate.set()
        assert b'"content":"b"' in b"".join(pieces)


@pytest.mark.parametrize("_", range(3))
def test_a_fake_that_ends_closes_who_was_just_let_in(_: int) -> None:
    with contextlib.ExitStack() as callers:
        with FakeVLLM() as fake:
            for _ in range(300):
                callers.enter_context(socket.create_connection(("127.0.0.1", fake.port)))
        gc.collect()  # a transport left open is a warning, and a warning an error
