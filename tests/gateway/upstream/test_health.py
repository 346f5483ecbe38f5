"""Probes find out who died, who hangs and who is back, in the time that was promised."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import OUT, Engine
from gateway.upstream.health import INTERVAL_S, PROBE_S, SILENCES, STUCK, Care, Health
from gateway.upstream.want import Want
from tests.gateway.upstream.playing import Caller, Serve

CARDS = b'{"object":"list","data":[{"id":"smollm2","max_model_len":2048}]}'


class Fake:
    """An engine's surface as far as probes see it."""

    def __init__(self) -> None:
        self.health = b"200"
        self.models = b"200"
        self.silent = False
        self.figures = b""
        self.first = b"200"
        self.asked: list[bytes] = []

    async def play(self, caller: Caller) -> None:
        while True:
            head, _ = await caller.request()
            path = head.split(b" ")[1]
            self.asked.append(path)
            if self.silent:
                await caller.left()
                return
            answers = {b"/v1/models": (self.models, CARDS), b"/metrics": (b"200", self.figures)}
            asks = path.endswith(b"completions")
            status, body = (self.first, b"{}") if asks else answers.get(path, (self.health, b""))
            await caller.say(b"HTTP/1.1 %b X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


class Watched:
    """What ``changed`` was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def __call__(self, engine: Engine, up: bool) -> None:
        self.told.append((engine.name, up))

    async def until(self, *expected: tuple[str, bool]) -> None:
        async with asyncio.timeout(5):
            while self.told != list(expected):
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def watching(*engines: Engine, **care: Any) -> AsyncIterator[tuple[Health, Watched]]:
    """Run probes in quick succession; ``care`` as in ``Care``, without a warm-up unless told."""
    watched = Watched()
    health = Health(watched, interval_s=0.02, probe_s=0.3)
    health.follow(engines, lambda _: Care(**{"warm_up": False, **care}))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(health.run())
        try:
            yield health, watched
        finally:
            task.cancel()
    for engine in engines:
        await engine.pool.close()


async def test_an_engine_that_is_well_is_known_at_once_with_its_models(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="smollm2")
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        assert engine.max_model_len == 2048
        assert sorted(fake.asked[:3]) == [b"/health", b"/metrics", b"/v1/models"]


async def test_a_dead_engine_is_down_at_the_first_refusal_and_up_again_when_it_is_back(serve: Serve) -> None:
    fake = Fake()
    server = serve(fake.play)
    origin = await server.tcp()
    engine = Engine("a", Pool(origin))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        await server.close()
        await watched.until(("a", True), ("a", False))
        assert engine.trouble == "no connection"
        engine.failed(asyncio.get_running_loop().time())
        server = serve(fake.play)
        server._server = await asyncio.start_server(server._accept, "127.0.0.1", origin.port)
        await watched.until(("a", True), ("a", False), ("a", True))
        assert engine.fit(asyncio.get_running_loop().time())


async def test_an_engine_that_says_it_is_dead_is_down(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        fake.health = b"503"
        await watched.until(("a", True), ("a", False))
        assert engine.trouble == "status 503"


async def test_an_engine_that_hangs_is_down_after_two_silences(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        fake.asked.clear()
        fake.silent = True
        await watched.until(("a", True), ("a", False))
        assert fake.asked.count(b"/health") >= SILENCES
        fake.silent = False
        await watched.until(("a", True), ("a", False), ("a", True))


async def test_one_silence_is_forgiven(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        fake.asked.clear()
        fake.silent = True
        async with asyncio.timeout(5):
            while not fake.asked:
                await asyncio.sleep(0.001)
        fake.silent = False
        while fake.asked.count(b"/health") < 4:
            await asyncio.sleep(0.005)
        assert watched.told == [("a", True)]


async def test_a_hanging_engine_does_not_hide_its_neighbours_death(serve: Serve) -> None:
    hanging, dying = Fake(), Fake()
    hanging.silent = True
    server = serve(dying.play)
    engines = [Engine("h", Pool(await serve(hanging.play).tcp())), Engine("d", Pool(await server.tcp()))]
    async with watching(*engines) as (_, watched):
        await watched.until(("h", False), ("d", True))
        await server.close()
        await watched.until(("h", False), ("d", True), ("d", False))


def test_the_times_keep_the_promise_of_ten_seconds_beside_a_hanging_neighbour() -> None:
    a_round = PROBE_S + INTERVAL_S
    assert PROBE_S + INTERVAL_S + (SILENCES - 1) * a_round + PROBE_S < 10


@pytest.mark.parametrize("models", [b"200", b"401", b"404"])
async def test_an_engine_without_a_health_route_is_asked_for_its_models(serve: Serve, models: bytes) -> None:
    fake = Fake()
    fake.health, fake.models = b"404", models
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        fake.models = b"500"
        await watched.until(("a", True), ("a", False))


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", b""])
async def test_whatever_listens_there_does_not_end_the_probing(serve: Serve, answer: bytes) -> None:
    async def rubbish(caller: Caller) -> None:
        await caller.request()
        await caller.say(answer)

    fake = Fake()
    engines = [Engine("r", Pool(await serve(rubbish).tcp())), Engine("a", Pool(await serve(fake.play).tcp()))]
    async with watching(*engines) as (_, watched):
        await watched.until(("r", False), ("a", True))
        assert engines[0].trouble


async def test_an_engine_that_fails_again_and_again_is_told_as_down_though_its_probes_are_well(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine) as (_, watched):
        await watched.until(("a", True))
        now = asyncio.get_running_loop().time()
        for number in range(OUT):
            engine.failed(now - 20 + number * 5)
        engine.shunned_until = now + 0.05
        await watched.until(("a", True), ("a", False), ("a", True))


async def test_who_is_no_longer_followed_is_no_longer_asked_and_who_is_new_is_asked_at_once(serve: Serve) -> None:
    first, second = Fake(), Fake()
    engines = [Engine("a", Pool(await serve(first.play).tcp())), Engine("b", Pool(await serve(second.play).tcp()))]
    watched = Watched()
    health = Health(watched, interval_s=60, probe_s=1)
    health.follow([engines[0], engines[0]])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(health.run())
        await watched.until(("a", True))
        health.follow([engines[1]])
        await watched.until(("a", True), ("b", True))
        assert first.asked.count(b"/health") == 1
        task.cancel()
    for engine in engines:
        await engine.pool.close()


async def test_a_unix_socket_is_probed_too(serve: Serve, tmp_path: Path) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).unix(f"{tmp_path}/engine.sock")))
    gone = Engine("gone", Pool(Origin.parse(f"unix:{tmp_path}/none.sock")))
    async with watching(engine, gone) as (_, watched):
        await watched.until(("a", True), ("gone", False))


async def test_a_key_that_cannot_be_sent_ends_no_probing(serve: Serve) -> None:
    fake = Fake()
    engines = [
        Engine("k", Pool(await serve(fake.play).tcp()), api_key="a\nb"),
        Engine("a", Pool(await serve(fake.play).tcp())),
    ]
    async with watching(*engines) as (_, watched):
        await watched.until(("k", False), ("a", True))
        assert engines[0].trouble == "ValueError"


async def test_probing_ends_when_it_is_cancelled(serve: Serve) -> None:
    fake = Fake()
    fake.silent = True
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    started = time.monotonic()
    async with watching(engine):
        await asyncio.sleep(0.02)
    assert time.monotonic() - started < 1


RUNNING = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total %d\n"


async def test_an_engine_tells_how_much_it_has_to_do(serve: Serve) -> None:
    fake = Fake()
    fake.figures = RUNNING % 7
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine):
        await until(lambda: engine.figures is not None)
        assert engine.foreign == 3
        fake.figures = b"nothing of the kind"
        await until(lambda: engine.figures is None)
        assert engine.foreign == 0
        fake.asked.clear()
        await until(lambda: fake.asked.count(b"/health") > 5)
        assert b"/metrics" not in fake.asked  # it has none: it is asked seldom


async def test_an_engine_that_works_and_gets_nowhere_is_told_as_down_until_it_moves(serve: Serve) -> None:
    fake = Fake()
    fake.figures = RUNNING % 7
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine, stalled_after_s=0.1) as (_, watched):
        await watched.until(("a", True), ("a", False))
        assert engine.trouble == STUCK
        assert not engine.fit(asyncio.get_running_loop().time())
        fake.figures = RUNNING % 8
        await until(lambda: len(watched.told) == 3)
        assert watched.told[2] == ("a", True)


async def test_without_figures_silence_on_all_its_streams_tells_the_same(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()))
    async with watching(engine, stalled_after_s=0.1) as (_, watched):
        await watched.until(("a", True))
        engine.begin(Want(stream=False))
        await asyncio.sleep(0.3)
        assert watched.told == [("a", True)]  # a whole answer is silent until its end
        engine.begin(Want(stream=True))
        await watched.until(("a", True), ("a", False))
        engine.end(Want(stream=True))
        await watched.until(("a", True), ("a", False), ("a", True))
        engine.end(Want(stream=False))


async def test_nobody_is_told_down_while_nothing_is_known_of_it(serve: Serve) -> None:
    """Another that is warm before the first probe has come back says nothing of it."""
    quick, asked = Fake(), asyncio.Event()

    async def slow(caller: Caller) -> None:
        await asked.wait()
        await Fake().play(caller)

    engines = [Engine(name, Pool(await serve(play).tcp())) for name, play in (("slow", slow), ("quick", quick.play))]
    async with watching(*engines, warm_up=True) as (_, watched):
        await watched.until(("quick", True))
        asked.set()
        await watched.until(("quick", True), ("slow", True))


async def test_an_engine_gets_its_first_request_from_us_and_no_other_before_it_has_answered(serve: Serve) -> None:
    fake = Fake()
    fake.first = b"500"
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="m")
    async with watching(engine, warm_up=True) as (_, watched):
        await until(lambda: fake.asked.count(b"/v1/chat/completions") > 2)
        now = asyncio.get_running_loop().time()
        assert (engine.up, engine.warm, engine.fit(now), engine.available(now)) == (True, False, False, False)
        fake.first = b"200"
        await watched.until(("a", False), ("a", True))
        fake.asked.clear()
        await until(lambda: fake.asked.count(b"/health") > 5)
        assert b"/v1/chat/completions" not in fake.asked


async def test_an_engine_that_was_idle_for_long_is_warmed_again_without_being_taken_out(serve: Serve) -> None:
    fake = Fake()
    engine = Engine("a", Pool(await serve(fake.play).tcp()), served_model="m")
    async with watching(engine, warm_up=True, warm_after_idle_s=0.1) as (_, watched):
        await until(lambda: fake.asked.count(b"/v1/chat/completions") > 3)
        assert watched.told == [("a", True)]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.005)
