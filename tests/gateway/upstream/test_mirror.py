"""A mirror gets copies and is compared; nobody waits for it, and nothing depends on it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import InvalidRequest
from gateway.upstream.client import Origin, Pool, request_head
from gateway.upstream.engine import Engine
from gateway.upstream.mirror import AT_MOST, Mirrors
from gateway.upstream.want import ANY
from tests.gateway.upstream.playing import Caller, Play, Serve, until


class Told:
    def __init__(self) -> None:
        self.ended: list[tuple[str, str, str, int]] = []
        self.seconds: list[float] = []

    def mirrored(self, engine: str, side: str, outcome: str, seconds: float, tokens: int) -> None:
        self.ended.append((engine, side, outcome, tokens))
        self.seconds.append(seconds)


def mirror(origin: Origin, part: float = 1.0) -> Engine:
    engine = Engine("m", Pool(origin))
    engine.mirror = part
    return engine


def request_for(engine: Engine) -> tuple[bytes, bytes]:
    return request_head("POST", "/v1/chat/completions", engine.pool.origin, (), 2), b"{}"


def answers(*pieces: bytes) -> Play:
    async def play(caller: Caller) -> None:
        while True:
            await caller.request()
            await caller.say(*pieces)

    return play


def counted(body: bytes, status: bytes = b"200") -> bytes:
    return b"HTTP/1.1 %b X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "outcome", "tokens"),
    [
        (counted(b'{"usage":{"prompt_tokens":3,"completion_tokens":17}}'), "ok", 17),
        (counted(b"x" * 9000 + b'{"usage": {"output_tokens": 5}}'), "ok", 5),
        (counted(b"no", b"503"), "status_5xx", 0),
        (counted(b"no", b"404"), "status_4xx", 0),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "broken", 0),
    ],
)
async def test_what_became_of_a_copy_is_told(serve: Serve, answer: bytes, outcome: str, tokens: int) -> None:
    async def once(caller: Caller) -> None:
        await caller.request()
        await caller.say(answer)

    told, engine = Told(), mirror(await serve(once).tcp())
    mirrors = Mirrors(told)
    assert mirrors.send([engine], request_for, ANY) == ("m",)
    assert engine.in_flight == 1
    await until(lambda: bool(told.ended))
    assert told.ended == [("m", "copy", outcome, tokens)]
    assert (engine.in_flight, engine.work, engine.failures) == (0, 0, 0)
    mirrors.original(("m",), "ok", 1.5, 16)
    assert (told.ended[1], told.seconds[1]) == (("m", "original", "ok", 16), 1.5)
    await engine.pool.close()


async def test_only_its_part_of_the_requests_is_copied_and_none_to_who_cannot(serve: Serve) -> None:
    told, engine = Told(), mirror(await serve(answers(counted(b"{}"))).tcp(), 0.25)
    draws = iter([0.1, 0.25, 0.9, 0.24])
    mirrors = Mirrors(told, lambda: next(draws))
    assert [len(mirrors.send([engine], request_for, ANY)) for _ in range(4)] == [1, 0, 0, 1]
    await until(lambda: len(told.ended) == 2)
    for hindrance in ("up", "draining"):
        setattr(engine, hindrance, hindrance == "draining")
        assert mirrors.send([engine], request_for, ANY) == ()
        engine.up = None
    await engine.pool.close()


async def test_copies_are_bounded_and_the_rest_is_dropped_at_once(serve: Serve) -> None:
    async def silent(caller: Caller) -> None:
        await caller.left()

    told, engine = Told(), mirror(await serve(silent).tcp())
    mirrors = Mirrors(told)
    for _ in range(AT_MOST + 3):
        mirrors.send([engine], request_for, ANY)
    assert told.ended == [("m", "copy", "dropped", 0)] * 3
    await asyncio.sleep(0.01)
    mirrors.close()
    await asyncio.sleep(0.01)
    assert engine.in_flight == 0


async def test_who_cannot_be_reached_or_does_not_speak_of_it_is_told_and_harms_nobody() -> None:
    def refuse(_: Engine) -> tuple[bytes, bytes]:
        raise InvalidRequest("not in this dialect")

    told, engine = Told(), mirror(Origin.parse("http://127.0.0.1:1"))
    mirrors = Mirrors(told)
    assert mirrors.send([engine], refuse, ANY) == ()
    mirrors.send([engine], request_for, ANY)
    await until(lambda: len(told.ended) == 2)
    assert [outcome for _, _, outcome, _ in told.ended] == ["dropped", "refused"]
