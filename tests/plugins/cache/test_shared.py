"""Answers in a real Redis: shared by gateways, bounded in size and age, and away without harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from gateway.record import Record
from gateway.testing import Played, play
from plugins.cache import Cache
from plugins.cache.shared import Shared
from tests.redis_server import RedisServer, running_redis

OVERHEAD = 400


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as running:
        yield running


@pytest.fixture
async def shared(server: RedisServer) -> AsyncIterator[Shared]:
    server.client.flushall()
    store = Shared(server.url, 10_000, 60, "test")
    yield store
    await store.close()


def request(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def said(played: Played) -> Any:
    return played.reply and played.reply.body["choices"][0]["message"]["content"]


def cache(server: RedisServer, **options: Any) -> Cache:
    plugin = Cache(Cache.Options.model_validate({"store": "redis", "redis": server.url, **options}))
    plugin.name = "cache"
    return plugin


async def test_what_was_put_is_there_with_its_age(shared: Shared, server: RedisServer) -> None:
    assert await shared.get(b"n", 100.0) is None
    await shared.put(b"n", b"text")
    kept = await shared.get(b"n", 100.0)
    assert kept is not None
    assert (kept.value, 99.5 < kept.since <= 100.0) == (b"text", True)
    server.client.expire("{test}:" + b"n".hex(), 10)
    older = await shared.get(b"n", 100.0)
    assert older is not None
    assert 49.5 < older.since < 50.5


async def test_the_oldest_go_where_all_are_too_large(shared: Shared, server: RedisServer) -> None:
    for at in range(20):
        await shared.put(b"%02d" % at, b"x" * 600)
    there = [at for at in range(20) if await shared.get(b"%02d" % at, 0.0)]
    assert there == list(range(10, 20))
    assert server.client.get("{test}:sum") == b"10000"
    await shared.put(b"19", b"y" * 100)  # in the place of the longer one
    assert server.client.get("{test}:sum") == b"9500"
    await shared.put(b"19", b"z" * 20_000)
    assert await shared.get(b"19", 0.0) is None, "too large for all of it"
    assert server.client.get("{test}:sum") == b"9000"


async def test_what_has_run_out_is_no_longer_counted(server: RedisServer) -> None:
    server.client.flushall()
    store = Shared(server.url, 10_000, 1, "test")
    await store.put(b"a", b"x")
    await asyncio.sleep(1.1)  # Redis counts the seconds, and nothing can turn its clock
    assert await store.get(b"a", 0.0) is None
    await store.put(b"b", b"x")
    assert server.client.get("{test}:sum") == b"401"
    await store.close()


async def test_many_at_once_keep_the_sum_exact(shared: Shared, server: RedisServer) -> None:
    await asyncio.gather(*(shared.put(b"%d" % (at % 30), b"x" * (at % 50)) for at in range(300)))
    sizes = [int(size) for size in server.client.hvals("{test}:sizes")]
    assert int(server.client.get("{test}:sum") or 0) == sum(sizes) <= 10_000
    assert server.client.zcard("{test}:places") == len(sizes)


async def test_another_gateway_has_the_answer_and_another_key_has_not(server: RedisServer) -> None:
    server.client.flushall()
    for stream in (True, False):
        await play(cache(server), request(stream=stream), "mine", key="a")
        again = await play(cache(server), request(stream=not stream), "new", key="a")
        assert said(again) == "mine"
        assert again.reply is not None
        assert again.reply.headers == (("age", "0"),)
        assert (await play(cache(server), request(), "yours", key=f"b{stream}")).reply is None
    await play(cache(server, shared=True), request(), "ours", key="a")
    assert said(await play(cache(server, shared=True), request(), "new", key="c")) == "ours"
    assert "mine" not in repr(server.client.keys()), "keys are digests"


async def test_other_word_lists_and_another_generation_have_answers_of_their_own(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.client.flushall()
    await play(cache(server), request(), "a")
    assert (await play(cache(server, generation="2"), request(), "b")).reply is None
    monkeypatch.setattr("gateway.testing.Record", lambda **facts: Record(**facts, lists={"words/block": "v2"}))
    assert (await play(cache(server), request(), "c")).reply is None


async def test_redis_may_be_away_and_it_is_said_once(server: RedisServer) -> None:
    server.stop()
    with capture_logs() as logs:
        store = Shared(server.url, 10_000, 60, "test")
        assert await store.get(b"a", 0.0) is None
        await store.put(b"a", b"x")
        played = await play(cache(server), request(), "an answer")
        assert (played.shown, played.reply) == ("an answer", None)
    assert [line["event"] for line in logs] == ["cache_away", "cache_away"]  # of either store
    server.start()
    await store.put(b"a", b"x")
    assert await store.get(b"a", 0.0) is not None
    await store.close()


@pytest.mark.parametrize(
    "options", [{"store": "redis"}, {"redis": "redis://h"}, {"store": "redis", "redis": "http://h"}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="redis"):
        Cache.Options.model_validate(options)


def test_a_password_is_in_no_text_of_the_options() -> None:
    options = Cache.Options.model_validate({"store": "redis", "redis": "redis://:secret@h/0"})
    assert "secret" not in repr(options)
