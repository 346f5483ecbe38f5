"""The pool and its connections on real sockets: servers that break off, lie, trickle, hang, and close when idle."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.upstream.client import Broken, Connection, Origin, Pool, fetch, request_head, tls_context
from tests.gateway.upstream.playing import OK, Caller, Play, Seen, Server, always_ok

Serve = Callable[[Play], Server]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def ask(pool: Pool, sink: Seen, body: bytes = b"{}") -> Connection:
    """Send one request as the relay does: an idle connection, else a new one."""
    connection = pool.idle() or await pool.connect()
    connection.send(request_head("POST", "/", pool.origin, (), len(body)), body, sink)
    return connection


async def settle() -> None:
    """Let both ends of a loopback connection hear of what has been done."""
    for _ in range(5):
        await asyncio.sleep(0.002)


async def until(true: Callable[[], bool], within: float = 5) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.002)


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


# ---- Unix sockets and TLS ----


async def test_a_unix_socket_works_like_a_port(serve: Serve, tmp_path: Path) -> None:
    server = serve(always_ok)
    pool = Pool(await server.unix(f"{tmp_path}/engine.sock"))
    for _ in range(3):
        assert (await fetch(pool, "POST", "/", b"{}")).body == b"ok"
    assert server.opened == 1
    await pool.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Make a self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*make, "-days", "2", "-keyout", key, "-out", made, *names], check=True, capture_output=True)
    return made, key


def server_side(certificate: tuple[str, str]) -> ssl.SSLContext:
    """Return a TLS server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def test_https_with_an_authority_of_ones_own(serve: Serve, certificate: tuple[str, str]) -> None:
    async def echo(caller: Caller) -> None:
        while True:
            _, body = await caller.request()
            await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

    server = serve(echo)
    pool = Pool(await server.tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    for size in (2, 1_000_000, 3):
        assert len((await fetch(pool, "POST", "/", bytes(size), limit=2_000_000)).body) == size
    assert server.opened == 1
    await pool.close()


async def test_https_is_refused_where_the_certificate_does_not_verify(
    serve: Serve, certificate: tuple[str, str]
) -> None:
    server = serve(always_ok)
    origin = await server.tcp(server_side(certificate))
    with pytest.raises(Broken) as failure:
        await fetch(Pool(origin), "GET", "/")
    assert failure.value.kind == "refused"
    assert str(failure.value).startswith("no TLS: self")
    other_name = Origin.parse(f"https://127.0.0.1:{origin.port}")
    with pytest.raises(Broken, match="no TLS"):
        await fetch(Pool(other_name, tls=tls_context(certificate[0])), "GET", "/")
    trusting = Pool(other_name, tls=tls_context(verify=False))
    assert (await fetch(trusting, "GET", "/")).body == b"ok"
    await trusting.close()


async def test_a_cancel_over_tls_reaches_the_server_at_once(serve: Serve, certificate: tuple[str, str]) -> None:
    async def pour(caller: Caller) -> None:
        await caller.request()
        await caller.say(CHUNKED)
        while True:
            await caller.say(b"2710\r\n" + bytes(10_000) + b"\r\n")

    server = serve(pour)
    pool = Pool(await server.tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    sink = Seen()
    connection = await ask(pool, sink)
    await until(lambda: len(sink.body) > 50_000)
    connection.pause()
    connection.resume()
    connection.cancel()
    read = len(sink.body)
    await until(lambda: server.open == 0)
    assert len(sink.body) == read
    assert not sink.endings


async def test_a_body_until_close_over_tls_ends_well(serve: Serve, certificate: tuple[str, str]) -> None:
    async def until_close(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 200 OK\r\n\r\nhello")

    pool = Pool(await serve(until_close).tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    assert (await fetch(pool, "GET", "/")).body == b"hello"


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
