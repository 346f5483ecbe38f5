"""A response on the wire, read by h11 as the reference: from applications that run in place, and in a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.serving.connection import Connection

App = Callable[[Any, Any, Any], Awaitable[None]]
#: In place, and in a task of its own.
WAYS = pytest.mark.parametrize("in_place", [True, False], ids=["in place", "task"])


@dataclass
class Response:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class Caller:
    """A client that speaks through h11."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parser: h11.Connection = field(default_factory=lambda: h11.Connection(h11.CLIENT))

    async def ask(self, *pieces: bytes, method: str = "POST", headers: Any = ()) -> Response:
        await self.send(*pieces, method=method, headers=headers)
        return await self.answer()

    async def send(self, *pieces: bytes, method: str = "POST", headers: Any = ()) -> None:
        framing = [] if headers else [(b"content-length", b"%d" % len(b"".join(pieces)))]
        self._write(h11.Request(method=method, target="/", headers=[(b"host", b"x"), *headers, *framing]))
        for piece in pieces:
            self._write(h11.Data(piece))
            await asyncio.sleep(0.01)  # each piece is a read of its own
        self._write(h11.EndOfMessage())

    def _write(self, event: Any) -> None:
        self.writer.write(self.parser.send(event) or b"")

    async def event(self) -> Any:
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self.parser.receive_data(await asyncio.wait_for(self.reader.read(65536), 5))
        return event

    async def answer(self) -> Response:
        head = await self.event()
        pieces: list[bytes] = []
        while not isinstance(piece := await self.event(), h11.EndOfMessage):
            pieces.append(piece.data)
        if self.parser.our_state is self.parser.their_state is h11.DONE:
            self.parser.start_next_cycle()
        return Response(head.status_code, dict(head.headers), b"".join(pieces))

    async def rest(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), 5)
        return b""


@contextlib.asynccontextmanager
async def serving(app: App, *, in_place: bool = False) -> AsyncGenerator[Callable[[], Awaitable[Caller]]]:
    class Served:
        def __init__(self) -> None:
            self.in_place = frozenset({"/"} if in_place else ())

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

    config = uvicorn.Config(Served(), http=Connection, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    opened: list[Caller] = []

    async def connect() -> Caller:
        opened.append(Caller(*await asyncio.open_connection("127.0.0.1", port)))
        return opened[-1]

    try:
        yield connect
    finally:
        for caller in opened:
            caller.writer.close()
        server.close()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def answers(*pieces: bytes, status: int = 200, headers: Any = ()) -> App:
    """Send these pieces of a body, one message each."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for at, piece in enumerate(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": at < len(pieces) - 1})

    return app


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the request's body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await answers(body)(scope, receive, send)


def counted(size: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % size)]


@WAYS
@pytest.mark.parametrize("pieces", [[b""], [b"one"], [b"one", b"two"], [b"", b"one", b""], [b"x" * 100_000, b"y"]])
@pytest.mark.parametrize("framed", [True, False])
async def test_a_response_arrives_whole_and_the_connection_is_used_again(
    in_place: bool, pieces: list[bytes], framed: bool
) -> None:
    body = b"".join(pieces)
    async with serving(answers(*pieces, headers=counted(len(body)) if framed else ()), in_place=in_place) as connect:
        caller = await connect()
        for _ in range(3):
            response = await caller.ask(b"{}")
            assert (response.status, response.body) == (200, body)
            assert (b"transfer-encoding" in response.headers) is not framed


@WAYS
@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_a_response_without_a_body_has_none(in_place: bool, method: str, status: int) -> None:
    async with serving(answers(b"" if method == "GET" else b"left out", status=status), in_place=in_place) as connect:
        caller = await connect()
        for _ in range(2):
            await caller.send(method=method)
            assert (await caller.answer()).body == b""


@WAYS
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_request_s_body_arrives_whole(in_place: bool, chunked: bool) -> None:
    headers = [(b"transfer-encoding", b"chunked")] if chunked else ()
    async with serving(echo, in_place=in_place) as connect:
        caller = await connect()
        assert (await caller.ask(b"one ", b"two ", b"three", headers=headers)).body == b"one two three"
        assert (await caller.ask(b"four", headers=headers)).body == b"four"


@WAYS
async def test_an_application_that_has_to_wait_goes_on_where_it_was(in_place: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.sleep(0.01, "x"), 5)
        assert asyncio.current_task() is not None
        await answers(b"late")(scope, receive, send)

    async with serving(app, in_place=in_place) as connect:
        caller = await connect()
        assert [(await caller.ask(b"{}")).body for _ in range(2)] == [b"late", b"late"]


@WAYS
@pytest.mark.parametrize("begun", [True, False])
async def test_a_caller_that_leaves_is_told_of(in_place: bool, begun: bool) -> None:
    told = asyncio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with serving(app, in_place=in_place) as connect:
        caller = await connect()
        await caller.send(b"{}")
        await asyncio.sleep(0.02)
        assert not told.is_set()
        caller.writer.close()
        await asyncio.wait_for(told.wait(), 5)


@WAYS
async def test_the_end_of_the_response_is_told_as_a_disconnect_too(in_place: bool) -> None:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append((await receive())["type"])
        await answers(b"done")(scope, receive, send)
        heard.append((await receive())["type"])

    async with serving(app, in_place=in_place) as connect:
        assert (await (await connect()).ask(b"{}")).body == b"done"
        assert heard == ["http.request", "http.disconnect"]


async def test_a_caller_that_waits_for_100_is_asked_for_its_body_only_when_somebody_wants_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answers((await receive())["body"])(scope, receive, send)

    async with serving(app) as connect:
        caller = await connect()
        caller.writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.writer.write(b"{}")
        assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    async with serving(answers(b"no", status=413)) as connect:
        caller = await connect()
        caller.writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")


def breaks(after: App | None = None) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if after is not None:
            await after(scope, receive, send)
        raise RuntimeError("a secret")

    return app


async def begun(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": counted(10)})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


@WAYS
@pytest.mark.parametrize(
    ("app", "seen"),
    [
        (breaks(), b""),
        (breaks(begun), b"half"),
        (answers(b"x", headers=[(b"x-a", b"b\r\nx-evil: 1")]), b""),
        (answers(b"too long", headers=counted(3)), b""),
        (answers(b"short", headers=counted(30)), b"short"),
    ],
    ids=["breaks at once", "breaks half-way", "a line break in a header", "longer than told", "shorter than told"],
)
async def test_a_broken_application_ends_the_connection_and_shows_nothing_of_it(
    in_place: bool, app: App, seen: bytes
) -> None:
    async with serving(app, in_place=in_place) as connect:
        caller = await connect()
        await caller.send(b"{}")
        heard = await caller.rest()
        assert heard.endswith(seen)
        assert bool(heard) is bool(seen)
        assert b"secret" not in heard


@WAYS
async def test_pipelined_requests_are_answered_in_their_order(in_place: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        number = scope["query_string"]
        await asyncio.sleep(0.02 if number == b"1" else 0)
        await answers(number)(scope, receive, send)

    async with serving(app, in_place=in_place) as connect:
        caller = await connect()
        caller.writer.write(b"".join(b"GET /?%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in (1, 2, 3)))
        heard = b""
        while heard.count(b"0\r\n\r\n") < 3:
            heard += await asyncio.wait_for(caller.reader.read(65536), 5)
        assert [part.split(b"\r\n")[0][-1:] for part in heard.split(b"\r\n\r\n1\r\n")[1:]] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.0\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"]
)
@WAYS
async def test_a_caller_that_wants_one_answer_gets_one(in_place: bool, head: bytes) -> None:
    async with serving(answers(b"bye", headers=counted(3)), in_place=in_place) as connect:
        caller = await connect()
        caller.writer.write(head)
        heard = await caller.rest()
        assert b"connection: close" in heard.lower()
        assert heard.endswith(b"bye")


@WAYS
@pytest.mark.parametrize("pieces", [[b""], [b"one", b"two"], [b"x" * 100_000, b"y"]])
async def test_to_http_1_0_the_end_of_the_connection_is_the_end_of_the_body(
    in_place: bool, pieces: list[bytes]
) -> None:
    async with serving(answers(*pieces), in_place=in_place) as connect:
        caller = await connect()
        caller.writer.write(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        head, _, body = (await caller.rest()).partition(b"\r\n\r\n")
        assert body == b"".join(pieces)
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head


@WAYS
async def test_a_slow_caller_slows_the_application_and_loses_nothing(in_place: bool) -> None:
    sent = 0

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with serving(app, in_place=in_place) as connect:
        caller = await connect()
        await caller.send(b"{}")
        await asyncio.sleep(0.2)
        assert sent < 200
        assert len((await caller.answer()).body) == 200 * 65536
