"""Servers that break off, trickle, answer early or do not read; callers that pause and leave."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from gateway.upstream.client import Broken, Pool, fetch
from tests.gateway.upstream.playing import CHUNKED, Caller, Seen, Serve, always_ok, ask, settle, until

# ---- servers that break ----


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("after", range(0, len(CHUNKED) + 12, 7))
async def test_a_server_that_breaks_off_anywhere_is_told_once(serve: Serve, after: int, end: str) -> None:
    async def break_off(caller: Caller) -> None:
        await caller.request()
        await caller.say((CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")[:after])
        if end == "reset":
            await asyncio.sleep(0.01)  # a reset overtakes what has not been read
            caller.reset()

    pool = Pool(await serve(break_off).tcp())
    sink = Seen()
    await ask(pool, sink)
    await asyncio.wait_for(sink.ended.wait(), 5)
    assert sink.failure.kind == "broke_off"
    assert sink.failure.answer_begun == (after > 0)
    assert pool.idle_count == 0


async def test_a_server_that_hangs_up_at_once_is_safe_to_ask_again(serve: Serve) -> None:
    async def slam(caller: Caller) -> None:
        caller.reset()

    pool = Pool(await serve(slam).tcp())
    sink = Seen()
    try:
        await ask(pool, sink)
        await asyncio.wait_for(sink.ended.wait(), 5)
        failure = sink.failure
    except Broken as refused:
        failure = refused
    assert not failure.answer_begun


async def test_single_bytes_make_the_same_answer(serve: Serve) -> None:
    async def trickle(caller: Caller) -> None:
        await caller.request()
        for byte in CHUNKED + b"5\r\nhello\r\n0\r\n\r\n":
            await caller.say(bytes([byte]))
            await asyncio.sleep(0)
        await caller.left()

    pool = Pool(await serve(trickle).tcp())
    assert (await fetch(pool, "POST", "/")).body == b"hello"
    assert pool.idle_count == 1
    await pool.close()


async def test_an_early_answer_to_a_large_request_is_read_and_its_connection_closed(serve: Serve) -> None:
    async def early(caller: Caller) -> None:
        await caller.reader.readuntil(b"\r\n\r\n")
        await caller.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await caller.left()

    server = serve(early)
    pool = Pool(await server.tcp())
    answer = await fetch(pool, "POST", "/", bytes(30_000_000))
    assert (answer.status, answer.body) == (413, b"no")
    assert pool.idle_count == 0
    await until(lambda: server.open == 0)


# ---- back-pressure ----


async def test_a_paused_connection_stops_the_server_and_a_resumed_one_brings_all(serve: Serve) -> None:
    total, written = 60_000_000, 0

    async def pour(caller: Caller) -> None:
        nonlocal written
        await caller.request()
        await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while written < total:
            await caller.say(bytes(500_000))
            written += 500_000
        await caller.left()

    class Pauses(Seen):
        read = 0

        def on_data(self, data: bytes) -> None:
            self.read += len(data)
            if not self.pieces:
                connection.pause()
                self.pieces.append(b"")

    pool = Pool(await serve(pour).tcp())
    sink = Pauses()
    connection = await ask(pool, sink)
    await until(lambda: sink.read > 0)
    read, before = sink.read, -1
    while written > before:  # until the kernel's buffers are full
        before = written
        await asyncio.sleep(0.05)
    assert sink.read == read
    assert written < total
    connection.resume()
    await asyncio.wait_for(sink.ended.wait(), 10)
    assert sink.read == total
    assert pool.idle_count == 1
    await pool.close()


async def test_a_large_request_to_a_slow_server_does_not_hold_up_the_caller(serve: Serve) -> None:
    begin = asyncio.Event()

    async def slow(caller: Caller) -> None:
        await begin.wait()
        _, body = await caller.request()
        length = b"%d" % len(body)
        await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(length), length)
        await caller.left()

    pool = Pool(await serve(slow).tcp())
    sink = Seen()
    started = time.monotonic()
    await ask(pool, sink, bytes(20_000_000))
    assert time.monotonic() - started < 1
    begin.set()
    await asyncio.wait_for(sink.ended.wait(), 10)
    assert sink.body == b"20000000"
    await pool.close()


# ---- cancel ----


@pytest.mark.parametrize("when", ["silent", "head", "body"])
async def test_a_cancel_reaches_the_server_at_once(serve: Serve, when: str) -> None:
    left = asyncio.Event()

    async def watch(caller: Caller) -> None:
        await caller.request()
        await caller.say(*{"silent": [], "head": [CHUNKED[:30]], "body": [CHUNKED, b"2\r\nok\r\n"]}[when])
        await caller.left()
        left.set()

    pool = Pool(await serve(watch).tcp())
    sink = Seen()
    connection = await ask(pool, sink)
    await settle()
    connection.cancel()
    await asyncio.wait_for(left.wait(), 1)
    assert not sink.endings


async def test_a_paused_connection_can_be_cancelled(serve: Serve) -> None:
    async def pour(caller: Caller) -> None:
        await caller.request()
        await caller.say(CHUNKED)
        while True:
            await caller.say(b"2710\r\n" + bytes(10_000) + b"\r\n")

    server = serve(pour)
    pool = Pool(await server.tcp())
    sink = Seen()
    connection = await ask(pool, sink)
    await until(lambda: len(sink.body) > 0)
    connection.pause()
    connection.cancel()
    await until(lambda: server.open == 0)


async def test_a_task_cancelled_while_it_connects_leaves_no_socket(serve: Serve) -> None:
    server = serve(always_ok)
    pool = Pool(await server.tcp())
    for turns in range(12):
        task = asyncio.ensure_future(pool.connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).cancel()
    await until(lambda: server.open == 0)


# ---- no cross-talk ----


async def test_in_a_storm_of_cancels_and_resets_everyone_reads_their_own_answer(serve: Serve) -> None:
    async def storm(caller: Caller) -> None:
        while True:
            _, body = await caller.request()
            mood = random.random()
            await caller.say(CHUNKED, b"%x\r\n%b\r\n" % (len(body), body))
            if mood < 0.1:
                caller.reset()
                return
            await asyncio.sleep(mood * 0.004)
            await caller.say(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            if mood > 0.9:
                return

    pool = Pool(await serve(storm).tcp())
    whole = 0

    async def one(number: int) -> None:
        nonlocal whole
        canary = b"canary-%d;" % number
        sink = Seen()
        connection = await ask(pool, sink, canary)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sink.ended.wait(), random.choice([0.001, 0.003, 5, 5, 5]))
        connection.cancel()
        assert (canary * 2).startswith(sink.body)
        if sink.endings == [None]:
            assert sink.body == canary * 2
            whole += 1
        connection.cancel()

    for start in range(0, 400, 40):
        await asyncio.gather(*(one(start + number) for number in range(40)))
    assert whole > 100
    await pool.close()
