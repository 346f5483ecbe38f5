"""A whole answer from some engine: the next is asked only while none has begun to answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.errors import EngineError, EngineTimeout, Failure, NoEngineAvailable, Refused
from gateway.protocol.failures import Busy
from gateway.upstream.asking import ask
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from tests.gateway.upstream.playing import Caller, Play, Serve


def says(body: bytes, status: int = 200, more: bytes = b"") -> Play:
    async def play(caller: Caller) -> None:
        while True:
            await caller.request()
            await caller.say(b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n" % (status, more, len(body)), body)

    return play


async def echo(caller: Caller) -> None:
    """Answer with what was asked."""
    while True:
        head, body = await caller.request()
        told = json.dumps({"head": head.decode(), "body": json.loads(body)}).encode()
        await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(told), told)


async def silent(caller: Caller) -> None:
    await caller.left()


async def slam(caller: Caller) -> None:
    await caller.request()


async def half(caller: Caller) -> None:
    await caller.request()
    await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{")


async def posed(*engines: Engine, timeout_s: float = 5) -> dict[str, object]:
    try:
        return await ask(Fleet(engines), "/tokenize", {"prompt": "hi"}, "ours", "req-1", timeout_s)
    finally:
        assert [engine.in_flight for engine in engines] == [0] * len(engines)
        for engine in engines:
            await engine.pool.close()


async def made(serve: Serve, play: Play, name: str | None = None) -> Engine:
    return Engine("e", Pool(await serve(play).tcp()), served_model=name, api_key="sk-engine")


async def test_the_engine_gets_its_own_name_for_the_model_or_ours(serve: Serve) -> None:
    answer = await posed(await made(serve, echo, "theirs"))
    assert answer["body"] == {"prompt": "hi", "model": "theirs"}
    assert str(answer["head"]).startswith("POST /tokenize HTTP/1.1\r\n")
    assert "x-request-id: req-1" in str(answer["head"])
    assert (await posed(await made(serve, echo)))["body"] == {"prompt": "hi", "model": "ours"}


@pytest.mark.parametrize("trouble", [slam, says(b"{}", 503), says(b"{}", 429)])
async def test_another_engine_is_asked_while_none_has_begun_to_answer(serve: Serve, trouble: Play) -> None:
    first, second = await made(serve, trouble), await made(serve, says(b'{"count": 3}'))
    second.turn = 1
    assert await posed(first, second) == {"count": 3}
    assert first.shunned_until > 0


async def test_a_refused_connection_goes_on_to_the_next_and_is_no_engine_in_the_end(
    serve: Serve, free_port: int
) -> None:
    dead = Engine("dead", Pool(Origin.parse(f"http://127.0.0.1:{free_port}")))
    well = await made(serve, says(b'{"count": 3}'))
    well.turn = 1
    assert await posed(dead, well) == {"count": 3}
    with pytest.raises(NoEngineAvailable):
        await posed(dead)
    with pytest.raises(NoEngineAvailable):
        await posed()


async def test_an_answer_that_breaks_off_is_not_asked_for_again(serve: Serve) -> None:
    first, second = await made(serve, half), await made(serve, says(b"{}"))
    second.turn = 1
    with pytest.raises(EngineError):
        await posed(first, second)
    assert first.failures == 1


@pytest.mark.parametrize(
    ("play", "kind", "failures"),
    [
        (says(b'{"error": {"message": "too long", "code": 400}}', 400), Refused, 0),
        (says(b"", 404), EngineError, 0),
        (says(b"", 500), EngineError, 1),
        (says(b"", 503, b"retry-after: 7\r\n"), Refused, 0),
        (says(b"[]"), EngineError, 0),
        (says(b"{"), EngineError, 0),
        (slam, EngineError, 1),
    ],
)
async def test_what_an_engine_says_becomes_a_failure_of_ours(
    serve: Serve, play: Play, kind: type[Failure], failures: int
) -> None:
    engine = await made(serve, play)
    with pytest.raises(kind) as failure:
        await posed(engine)
    assert engine.failures == failures
    assert failure.value.status != 500
    if failure.value.status == 503:
        assert failure.value.retry_after == 7


async def test_silence_ends_in_time_and_counts_against_the_engine(serve: Serve) -> None:
    engine = await made(serve, silent)
    with pytest.raises(EngineTimeout):
        await posed(engine, timeout_s=0.1)
    assert engine.failures == 1


async def test_who_is_busy_everywhere_is_asked_within_the_budget(serve: Serve) -> None:
    engines = [await made(serve, says(b"{}", 503)) for _ in range(6)]
    fleet = Fleet(engines)
    for _ in range(3):
        with pytest.raises(Busy):
            await ask(fleet, "/tokenize", {"prompt": "hi"}, "ours", "req-1", 5)
    now = asyncio.get_running_loop().time()
    assert not fleet.budget.again(
        now
    )  # the first went round once, for each was fit; the others only as often as may be
    assert not any(engine.fit(now) for engine in engines)
    for engine in engines:
        await engine.pool.close()
