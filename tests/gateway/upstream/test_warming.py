"""An engine's first request is ours, and such that it has everything usual done once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.warming import REQUEST_ID, warm
from tests.gateway.upstream.playing import Caller, Play, Serve


class Fake:
    """Answers each route with a status."""

    def __init__(self, chat: int, text: int = 404, body: bytes = b"{}") -> None:
        self.statuses = {b"/v1/chat/completions": chat, b"/v1/completions": text}
        self.body = body
        self.asked: list[tuple[bytes, dict[str, Any]]] = []

    @property
    def play(self) -> Play:
        async def play(caller: Caller) -> None:
            while True:
                head, body = await caller.request()
                path = head.split(b" ")[1]
                assert f"x-request-id: {REQUEST_ID}".encode() in head
                self.asked.append((path, json.loads(body)))
                status = self.statuses[path]
                await caller.say(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(self.body)), self.body)

        return play


async def test_it_is_short_streamed_and_with_logprobs(serve: Serve) -> None:
    fake = Fake(200)
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="m")
    assert await warm(engine)
    ((path, body),) = fake.asked
    assert path == b"/v1/chat/completions"
    assert (body["model"], body["stream"], body["max_tokens"], body["logprobs"]) == ("m", True, 1, True)
    await engine.pool.close()


@pytest.mark.parametrize(
    ("chat", "text", "is_warm", "asked"),
    [
        (400, 200, True, 2),
        (404, 404, True, 2),
        (500, 200, False, 1),
        (400, 500, False, 2),
        (503, 200, False, 1),
        (429, 200, False, 1),
    ],
)
async def test_who_cannot_chat_is_asked_for_text_and_who_fails_is_not_warm(
    serve: Serve, chat: int, text: int, *, is_warm: bool, asked: int
) -> None:
    fake = Fake(chat, text)
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="m")
    assert await warm(engine) is is_warm
    assert len(fake.asked) == asked
    await engine.pool.close()


async def test_a_failure_inside_the_stream_is_one(serve: Serve) -> None:
    fake = Fake(200, body=b'data: {"error": {"code": 500}}\n\ndata: [DONE]\n\n')
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="m")
    assert not await warm(engine)
    await engine.pool.close()


async def test_an_engine_that_serves_whatever_it_is_asked_for_is_warmed_with_its_first_model(serve: Serve) -> None:
    fake = Fake(200)
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    assert await warm(engine)
    assert fake.asked == []  # nothing is known to ask for
    engine.cards = ({"id": "first"}, {"id": "second"})
    assert await warm(engine)
    assert fake.asked[0][1]["model"] == "first"
    await engine.pool.close()


async def test_silence_and_refusal_are_no_answer(serve: Serve) -> None:
    async def silent(caller: Caller) -> None:
        await caller.left()

    engine = Engine("a", Pool(await serve(silent).tcp()), served_model="m")
    assert not await warm(engine, timeout_s=0.05)
    assert not await warm(Engine("b", Pool(Origin.parse("http://127.0.0.1:1")), served_model="m"))
    await engine.pool.close()
