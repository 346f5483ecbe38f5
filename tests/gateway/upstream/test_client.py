"""The pool on real sockets: what is kept, what is dropped, what is sent again, and why there is no connection."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.upstream.client import Broken, Origin, Pool, fetch
from tests.gateway.upstream.playing import CHUNKED, OK, Caller, Seen, Serve, always_ok, ask, settle, until

# ---- pool ----


async def test_connections_are_used_again_the_last_one_first(serve: Serve) -> None:
    server = serve(always_ok)
    pool = Pool(await server.tcp())
    for _ in range(20):
        assert (await fetch(pool, "POST", "/", b"{}")).body == b"ok"
    assert server.opened == 1
    sinks = [Seen(), Seen()]
    used = [await ask(pool, sink) for sink in sinks]
    last = used[1].wire
    await asyncio.gather(*(sink.ended.wait() for sink in sinks))
    assert pool.idle_count == 2
    again = pool.idle()
    assert again is not None
    assert again.reused
    assert server.opened == 2
    assert last is not None
    again.cancel()
    await pool.close()


async def test_an_idle_connection_is_closed_when_its_time_is_over(serve: Serve) -> None:
    server = serve(always_ok)
    pool = Pool(await server.tcp(), idle_s=0.05)
    await fetch(pool, "GET", "/")
    await until(lambda: server.open == 0)
    assert pool.idle_count == 0
    assert pool.idle() is None
    await fetch(pool, "GET", "/")
    assert server.opened == 2
    await until(lambda: server.open == 0)


async def test_a_connection_too_old_is_not_taken_even_if_the_loop_was_held_up(serve: Serve) -> None:
    pool = Pool(await serve(always_ok).tcp(), idle_s=0.05)
    await fetch(pool, "GET", "/")
    time.sleep(0.06)
    assert pool.idle() is None


async def test_a_connection_closed_by_its_server_while_idle_is_dropped_at_once(serve: Serve) -> None:
    async def once(caller: Caller) -> None:
        await caller.request()
        await caller.say(OK)

    server = serve(once)
    pool = Pool(await server.tcp(), idle_s=60)
    for number in range(1, 21):
        assert (await fetch(pool, "POST", "/", b"{}")).status == 200
        assert server.opened == number
        await until(lambda: pool.idle_count == 0)


async def test_a_closed_pool_keeps_nothing_and_lets_running_answers_end(serve: Serve) -> None:
    end = asyncio.Event()

    async def slow(caller: Caller) -> None:
        await caller.request()
        await caller.say(CHUNKED, b"2\r\nok\r\n")
        await end.wait()
        await caller.say(b"0\r\n\r\n")
        await caller.left()

    server = serve(slow)
    pool = Pool(await server.tcp())
    sink = Seen()
    await ask(pool, sink)
    await pool.close()
    end.set()
    await asyncio.wait_for(sink.ended.wait(), 5)
    assert sink.whole
    assert pool.idle_count == 0
    await until(lambda: server.open == 0)


async def test_fifty_aborts_leave_nothing_behind_and_four_requests_work_at_once(serve: Serve) -> None:
    async def trickle(caller: Caller) -> None:
        while True:
            head, _ = await caller.request()
            if b"/whole" in head:
                await caller.say(OK)
                continue
            await asyncio.sleep(random.random() * 0.01)
            await caller.say(b"HTTP/1.1 200 OK\r\n")
            await asyncio.sleep(random.random() * 0.01)
            await caller.say(b"transfer-encoding: chunked\r\n\r\n")
            while True:
                await caller.say(b"2\r\nok\r\n")
                await asyncio.sleep(0.001)

    server = serve(trickle)
    pool = Pool(await server.tcp())

    async def leave_soon() -> None:
        sink = Seen()
        connection = await ask(pool, sink)
        await asyncio.sleep(random.random() * 0.03)
        calls = sink.calls
        connection.cancel()
        await settle()
        assert sink.calls == calls

    for _ in range(5):
        await asyncio.gather(*(leave_soon() for _ in range(10)))
    await until(lambda: server.open == 0, within=1)
    answers = await asyncio.gather(*(fetch(pool, "GET", "/whole") for _ in range(4)))
    assert [answer.body for answer in answers] == [b"ok"] * 4
    assert server.open == pool.idle_count <= 4
    await pool.close()


# ---- stale connections ----


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_stale_connection_fails_as_safe_to_send_again_and_is_sent_once(serve: Serve, end: str) -> None:
    answered: list[int] = []

    async def once(caller: Caller) -> None:
        await caller.request()
        answered.append(caller.number)
        await caller.say(OK)
        await caller.reader.read(1)  # the second request was on its way when the connection ended
        if end == "reset":
            caller.reset()

    pool = Pool(await serve(once).tcp())
    await fetch(pool, "POST", "/", b"{}")
    sink = Seen()
    await ask(pool, sink)
    await asyncio.wait_for(sink.ended.wait(), 5)
    failure = sink.failure
    assert (failure.kind, failure.answer_begun, failure.reused) == ("broke_off", False, True)
    for number in range(2, 10):
        assert (await fetch(pool, "POST", "/", b"{}")).status == 200
        assert answered == list(range(1, number + 1))
    await pool.close()


async def test_a_fresh_connection_that_breaks_is_not_sent_again_by_fetch(serve: Serve) -> None:
    async def hang_up(caller: Caller) -> None:
        await caller.request()

    server = serve(hang_up)
    pool = Pool(await server.tcp())
    with pytest.raises(Broken) as failure:
        await fetch(pool, "POST", "/", b"{}")
    assert (failure.value.kind, failure.value.answer_begun, failure.value.reused) == ("broke_off", False, False)
    assert server.opened == 1


# ---- no connection ----


async def test_a_closed_port_is_refused_and_says_so_without_the_address(free_port: int) -> None:
    with pytest.raises(Broken) as failure:
        await Pool(Origin.parse(f"http://127.0.0.1:{free_port}")).connect()
    assert (failure.value.kind, failure.value.answer_begun) == ("refused", False)
    assert str(failure.value) == "no connection: Connection refused"


async def test_a_name_that_does_not_exist_and_a_missing_socket_are_refused(tmp_path: Path) -> None:
    for url in ("http://engine.invalid", f"unix:{tmp_path}/none.sock"):
        with pytest.raises(Broken) as failure:
            await Pool(Origin.parse(url)).connect()
        assert failure.value.kind == "refused"
        assert "engine" not in str(failure.value)
        assert str(tmp_path) not in str(failure.value)


async def test_a_second_address_is_tried(serve: Serve) -> None:
    origin = await serve(always_ok).tcp()  # listens on 127.0.0.1 alone; the name stands for ::1 too, on most machines
    pool = Pool(Origin.parse(f"http://localhost:{origin.port}"))
    assert (await fetch(pool, "GET", "/")).status == 200
    await pool.close()


async def test_a_handshake_that_never_ends_is_refused_in_time(serve: Serve) -> None:
    async def silent(caller: Caller) -> None:
        await caller.left()

    server = serve(silent)
    origin = await server.tcp()
    pool = Pool(Origin.parse(f"https://127.0.0.1:{origin.port}"), connect_s=0.1)
    with pytest.raises(Broken) as failure:
        await pool.connect()
    assert failure.value.kind == "refused"
    await until(lambda: server.open == 0)


# ---- fetch ----


async def test_fetch_gives_up_in_time_and_closes(serve: Serve) -> None:
    async def silent(caller: Caller) -> None:
        await caller.left()

    server = serve(silent)
    pool = Pool(await server.tcp())
    with pytest.raises(TimeoutError):
        await fetch(pool, "POST", "/", timeout_s=0.1)
    await until(lambda: server.open == 0)


async def test_fetch_takes_no_more_than_its_limit(serve: Serve) -> None:
    async def pour(caller: Caller) -> None:
        await caller.request()
        await caller.say(CHUNKED)
        while True:
            await caller.say(b"2710\r\n" + bytes(10_000) + b"\r\n")

    server = serve(pour)
    with pytest.raises(Broken) as failure:
        await fetch(Pool(await server.tcp()), "POST", "/", limit=50_000)
    assert failure.value.kind == "too_large"
    await until(lambda: server.open == 0)


async def test_a_fresh_connection_is_never_one_that_waits_and_serves_once(serve: Serve) -> None:
    server = serve(always_ok)
    pool = Pool(await server.tcp())
    await fetch(pool, "GET", "/")
    for _ in range(3):
        assert (await fetch(pool, "GET", "/", fresh=True)).body == b"ok"
    assert (server.opened, pool.idle_count) == (4, 1)
    await pool.close()


async def test_a_pool_connects_to_its_address_and_asks_for_its_name(serve: Serve) -> None:
    heads = []

    async def play(caller: Caller) -> None:
        heads.append((await caller.request())[0])
        await caller.say(OK)

    origin = replace(await serve(play).tcp(), host="vllm.models.svc")
    pool = Pool(origin, address="127.0.0.1")
    heard = [pool.heard]
    await fetch(pool, "GET", "/")
    assert f"host: vllm.models.svc:{origin.port}".encode() in heads[0]
    assert [*heard, pool.heard] == [False, True]
    await pool.close()
