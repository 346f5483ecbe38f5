"""Limits in a real Redis: exact, atomic, given back, and gone on with while it is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from time import process_time

import pytest

from gateway.admission import shared
from gateway.admission.allowance import Allowance
from gateway.admission.limits import Held
from gateway.admission.shared import SharedLimits, SharedStore
from gateway.errors import RateLimited
from tests.redis_server import RedisServer, running_redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as started:
        yield started


@pytest.fixture(autouse=True)
def _empty(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.05)
    with server.client as client:
        client.flushall()


@contextlib.asynccontextmanager
async def connected(server: RedisServer, count: int = 1, lease_s: float = 15.0) -> AsyncIterator[list[SharedStore]]:
    # A quarter of a second is little on a busy machine: who is late is taken for away, and gives its own part out.
    stores = [SharedStore(server.url, lease_s=lease_s, timeout_s=5) for _ in range(count)]
    running = [asyncio.get_running_loop().create_task(store.run()) for store in stores]
    try:
        await until(lambda: all(store.here and store.instances == count for store in stores))
        yield stores
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def attempts(limits: list[SharedLimits], count: int, tokens: int = 0) -> list[Held]:
    """Try at all gateways at once; return who was let in."""
    tries = [each.enter(float(number), tokens) for number in range(count) for each in limits]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert all(isinstance(answer, RateLimited) or hasattr(answer, "leave") for answer in answers), answers
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def sent(*stores: SharedStore) -> None:
    await until(lambda: not any(store._outbox or store._sending for store in stores))


@pytest.mark.parametrize(
    ("allowed", "tokens", "passes"),
    [
        (Allowance(rpm=7), 0, 7),
        (Allowance(tpm=100), 9, 11),
        (Allowance(max_in_flight=5), 0, 5),
        (Allowance(tokens_per_day=50), 10, 5),
        (Allowance(tokens_per_month=61), 10, 6),
        (Allowance(rpm=90, tpm=90, max_in_flight=90, tokens_per_day=8), 2, 4),
    ],
)
async def test_never_more_than_the_limit_passes_whatever_gateway_is_asked(
    server: RedisServer, allowed: Allowance, tokens: int, passes: int
) -> None:
    async with connected(server, 3) as stores:
        limits = [store.limits("k", allowed) for store in stores]
        assert len(await attempts(limits, 10, tokens)) == passes
        other = stores[0].limits("other", allowed)
        await other.enter(0.0, tokens)


async def test_what_was_not_used_comes_back_and_what_was_missed_counts(server: RedisServer) -> None:
    async with connected(server) as (store,):
        limits = store.limits("k", Allowance(tpm=100, tokens_per_day=1000, max_in_flight=2))
        held = await limits.enter(0.0, 100)
        held.settle(0.0, 30)
        held.leave()
        held.leave()
        await sent(store)
        failed = await limits.enter(0.0, 70)
        failed.leave()
        await sent(store)
        more = await limits.enter(0.0, 70)
        assert dict(more.headers)[b"x-ratelimit-remaining-tokens"] == b"0"
        more.settle(0.0, 90)
        more.leave()
        await sent(store)
        with pytest.raises(RateLimited, match="100 tokens a minute") as refusal:
            await limits.enter(0.0, 1)
        assert 55 <= (refusal.value.retry_after or 0) <= 61
        with server.client as client:
            state = client.hgetall("{sluice}:k:state")
            assert (state[b"T"], state[b"Du"], client.zcard("{sluice}:k:leases")) == (b"120", b"120", 0)
            assert not [field for field in state if field.startswith(b"x")]


async def test_refusals_are_in_the_same_words_and_tell_the_standing(server: RedisServer) -> None:
    async with connected(server) as (store,):
        for allowed, words in (
            (Allowance(rpm=1), "1 requests a minute"),
            (Allowance(max_in_flight=1, rpm=9), "1 in flight"),
            (Allowance(tokens_per_day=1), "1 tokens a day"),
            (Allowance(tokens_per_month=1), "1 tokens a month"),
        ):
            limits = store.limits(words, allowed)
            await limits.enter(0.0, 1)
            with pytest.raises(RateLimited, match=words) as refusal:
                await limits.enter(0.0, 1)
            headers = dict(refusal.value.headers())
            assert int(headers.pop(b"retry-after")) >= 1
            assert len(headers) == 3


async def test_what_a_killed_gateway_held_comes_back_with_its_lease(server: RedisServer) -> None:
    async with connected(server) as (alive,):
        killed = SharedStore(server.url, lease_s=1.0)
        await killed._beat()
        allowed = Allowance(max_in_flight=2, tokens_per_day=100)
        for _ in range(2):
            await killed.limits("k", allowed).enter(0.0, 50)
        limits = alive.limits("k", allowed)
        with pytest.raises(RateLimited):
            await limits.enter(0.0, 50)
        with server.client as client:
            *_, lease = client.zrange("{sluice}:k:leases", 0, -1, withscores=True)
            seconds, micros = client.time()
        await asyncio.sleep(lease[1] / 1000 - seconds - micros / 1e6 + 0.05)
        assert len(await attempts([limits], 4, 50)) == 2  # its slots and its budget
        await killed._redis.aclose()


async def test_who_lives_renews_its_leases(server: RedisServer) -> None:
    async with connected(server, 1, lease_s=0.3) as (store,):
        limits = store.limits("k", Allowance(max_in_flight=1))
        held = await limits.enter(0.0, 0)
        await asyncio.sleep(0.6)  # two leases
        with pytest.raises(RateLimited):
            await limits.enter(0.0, 0)
        held.leave()
        await sent(store)
        await limits.enter(0.0, 0)


async def test_while_redis_is_away_each_gateway_goes_on_with_its_part_and_comes_back() -> None:
    with running_redis() as server:
        async with connected(server, 2) as stores:
            told: list[bool] = []
            stores[0]._changed = told.append
            allowed = Allowance(rpm=10, max_in_flight=6)
            limits = [store.limits("k", allowed) for store in stores]
            held = await attempts([limits[0]], 2)
            server.stop()
            held += await attempts(limits, 10)
            assert len(held) == 6  # three each at once, with the two that were inside before
            assert not any(store.here for store in stores)
            assert told == [False]
            for each in held:
                each.settle(0.0, 7)
                each.leave()
            server.start()
            await until(lambda: all(store.here and store.instances == 2 for store in stores))
            assert told == [False, True]
            await sent(*stores)
            with server.client as client:
                assert client.hget("{sluice}:k:state", "T") == b"42"
            assert len(await attempts(limits, 10)) == 6


async def test_a_configured_number_of_replicas_goes_before_a_measured_one() -> None:
    store = SharedStore("redis://127.0.0.1:1/0", replicas=5)
    limits = store.limits("k", Allowance(rpm=10))
    assert len(await attempts([limits], 10)) == 2
    await store._redis.aclose()


async def test_a_server_that_does_not_answer_costs_one_timeout_and_no_more() -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    store = SharedStore(f"redis://127.0.0.1:{silent.sockets[0].getsockname()[1]}/0", timeout_s=0.1)
    store.here = True
    limits = store.limits("k", Allowance(rpm=10))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert len(await attempts([limits], 20)) == 10
    assert loop.time() - began < 1
    assert not store.here
    await store._redis.aclose()
    for writer in writers:
        writer.close()
    silent.close()


async def test_a_reload_changes_the_figures_and_forgets_nothing(server: RedisServer) -> None:
    async with connected(server) as (store,):
        assert len(await attempts([store.limits("k", Allowance(rpm=3))], 5)) == 3
        assert len(await attempts([store.limits("k", Allowance(rpm=5))], 5)) == 2


async def test_the_script_is_brought_again_when_the_server_has_forgotten_it(server: RedisServer) -> None:
    async with connected(server) as (store,):
        limits = store.limits("k", Allowance(rpm=3))
        with server.client as client:
            client.script_flush()
        (held,) = await attempts([limits], 1)
        with server.client as client:
            client.script_flush()
        held.leave()
        await until(lambda: store.here and not store._outbox)
        assert len(await attempts([limits], 5)) == 2


async def test_a_request_costs_less_than_a_millisecond_of_this_process(server: RedisServer) -> None:
    async with connected(server) as (store,):
        limits = store.limits("k", Allowance(rpm=10**6, tpm=10**9))
        await attempts([limits], 50)
        began = process_time()
        for _ in range(200):
            (await limits.enter(0.0, 100)).leave()
        await sent(store)
        each = (process_time() - began) / 200
        print(f"{each * 1e6:.0f} us a request")
        assert each < 2e-3
