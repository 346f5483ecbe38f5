from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.errors import Failure
from gateway.serving import connection
from tests.gateway.serving.stub import Served, served
from tests.gateway.serving.test_cycle import Caller, answers, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as running:
        yield running


def ask(server: Served, *pieces: bytes) -> bytes:
    """Send these bytes and read until the server closes or answers one head and body."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have heard enough
            for piece in pieces:
                caller.sendall(piece)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while piece := caller.recv(65536):
                answer += piece
    return answer


def refused(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /%zz HTTP/9.1\r\nhost: x\r\n\r\n",
        b"GET http://[bad HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nX",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\ncontent-length: 7\r\n\r\n0\r\n\r\nX",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
        b"CONNECT /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        *(
            b"POST /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %b\r\n\r\n0\r\n\r\n" % coding
            for coding in (b"gzip, chunked", b"gzip", b"identity", b"identity\r\ntransfer-encoding: chunked")
        ),
    ],
)
def test_what_is_no_http_is_refused_in_our_shape(server: Served, raw: bytes) -> None:
    assert refused(ask(server, raw)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "head",
    [
        b"x-long: " + b"a" * 70_000 + b"\r\n",
        b"".join(b"x-%d: a\r\n" % number for number in range(201)),
        b"".join(b"x-%d: %s\r\n" % (number, b"a" * 8000) for number in range(100)),
    ],
)
def test_a_head_that_is_too_long_is_refused(server: Served, head: bytes) -> None:
    assert refused(ask(server, b"GET /livez HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")) == (431, "request_too_large")


def test_a_url_that_is_too_long_is_refused(server: Served) -> None:
    assert refused(ask(server, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")) == (
        431,
        "request_too_large",
    )


def test_a_head_without_end_is_refused_before_it_fills_the_memory(server: Served) -> None:
    pieces = [b"GET /livez HTTP/1.1\r\n", *(b"x-%d: %s\r\n" % (number, b"a" * 8000) for number in range(30))]
    answer = ask(server, *pieces)
    assert answer == b"" or refused(answer) == (431, "request_too_large")
    assert server.get("/livez").status_code == 200


def test_a_head_of_ordinary_length_in_small_pieces_passes(server: Served) -> None:
    raw = b"GET /livez HTTP/1.1\r\nhost: x\r\nx-some: " + b"a" * 4000 + b"\r\nconnection: close\r\n\r\n"
    answer = ask(server, *(raw[at : at + 100] for at in range(0, len(raw), 100)))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_long_body_before_the_next_request_is_no_long_head(server: Served) -> None:
    body = b"a" * 300_000
    first = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    second = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = ask(server, first + second[:10], second[10:])
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2


def test_rubbish_behind_a_request_is_refused_when_the_answer_is_out(server: Served) -> None:
    raw = b"GET /v1/chat/completions?pieces=5&pause=0.05 HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        caller.sendall(raw)
        answer = caller.recv(65536)
        caller.sendall(b"\x00\x01rubbish\r\n\r\n")
        while piece := caller.recv(65536):
            answer += piece
    whole, _, rest = answer.partition(b"0\r\n\r\n")
    assert whole.count(b"data: x") == 5
    assert refused(rest) == (400, "invalid_request")


def test_the_server_does_not_name_its_software(server: Served) -> None:
    assert "server" not in server.get("/livez").headers


def test_an_answer_before_the_end_of_the_body_is_not_lost(server: Served) -> None:
    """Closing at once would reset the connection: a proxy that hands a body on while it comes would answer 502."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (
        20 << 20
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        caller.sendall(head)
        time.sleep(0.2)  # the answer is on its way now
        for _ in range(20):
            caller.sendall(b"a" * (1 << 20))
        answer = b""
        while piece := caller.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"0\r\n\r\n")


# ---- requests behind one that is answered ----

GET = b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n"


class Scene:
    """An application whose answers begin, and end, when the test says so."""

    def __init__(self, *, begun: bool = False) -> None:
        self.begun = begun
        self.asked: list[bytes] = []
        self.left: list[bytes] = []
        self.came, self.gone, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["raw_path"]
        self.asked.append(name)
        if self.begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": name, "more_body": True})
        self.came.set()
        going = asyncio.ensure_future(self.go.wait())
        leaving = asyncio.ensure_future(until_left(receive))
        await asyncio.wait({going, leaving}, return_when=asyncio.FIRST_COMPLETED)
        going.cancel()
        if leaving.done():
            self.left.append(name)
            self.gone.set()
            return
        await answers(name)(scope, receive, send)
        await leaving


async def until_left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def leave(caller: Caller, how: str) -> None:
    if how == "RST":
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.writer.close()


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("behind", [GET % b"2", GET % b"2" + GET % b"3", b"GET /2 HT", b"rubbish rubbish", b"\r\n"])
async def test_who_leaves_is_missed_whatever_he_has_sent_behind(behind: bytes, how: str, *, begun: bool) -> None:
    scene = Scene(begun=begun)
    async with serving(scene.app) as connect:
        caller = await connect()
        caller.writer.write(GET % b"1")
        await asyncio.wait_for(scene.came.wait(), 5)
        caller.writer.write(behind)
        await caller.writer.drain()
        leave(caller, how)
        await asyncio.wait_for(scene.gone.wait(), 5)
        assert (scene.asked, scene.left) == ([b"/1"], [b"/1"])


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize(
    ("behind", "answered"),
    [
        (b"rubbish rubbish", [b"/1"]),
        (GET % b"2" + b"rubbish rubbish", [b"/1", b"/2"]),
        (GET % b"2" + b"GET /3 HTTP/1.1\r\n\r\n" + GET % b"4", [b"/1", b"/2"]),
    ],
)
async def test_a_refusal_waits_for_the_answers_before_it(behind: bytes, answered: list[bytes], pieces: int) -> None:
    scene = Scene()
    async with serving(scene.app) as connect:
        caller = await connect()
        caller.writer.write(GET % b"1" + (behind if pieces == 1 else b""))
        await asyncio.wait_for(scene.came.wait(), 5)
        if pieces == 2:
            caller.writer.write(behind)
        scene.go.set()
        heard = await caller.rest()
        assert scene.asked == answered
        *whole, last = heard.split(b"0\r\n\r\n")
        assert [answer[-4:-2] for answer in whole] == answered
        assert refused(last) == (400, "invalid_request")


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await answers(body)(scope, receive, send)


async def told_or_echo(scope: Any, receive: Any, send: Any) -> None:
    try:
        await echo(scope, receive, send)
    except Failure as failure:
        await answers(str(failure.code).encode(), status=failure.status)(scope, receive, send)


BROKEN = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nrubbish\r\n"


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_body_that_cannot_be_read_is_the_applications_to_refuse(before: int) -> None:
    async with serving(told_or_echo) as connect:
        caller = await connect()
        caller.writer.write(GET % b"" * before + BROKEN + GET % b"")
        heard = await caller.rest()
        assert heard.count(b"HTTP/1.1 200 ") == before
        assert heard.count(b"HTTP/1.1 400 ") == heard.count(b"connection: close") == 1
        assert heard.endswith(b"\r\nf\r\ninvalid_request\r\n0\r\n\r\n")


async def test_what_is_sent_ahead_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HIGH_WATER_LIMIT", 1000)
    scene = Scene()
    async with serving(scene.app) as connect:
        caller = await connect()
        caller.writer.write(GET % b"1")
        await asyncio.wait_for(scene.came.wait(), 5)
        caller.writer.write(GET % b"2" * 1_000_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.writer.drain(), 0.5)
        scene.go.set()
        for name in (b"/1", *[b"/2"] * 100):  # it goes on where it had stopped
            assert name in await asyncio.wait_for(caller.reader.readuntil(b"0\r\n\r\n"), 5)
        caller.writer.transport.abort()


# ---- another protocol, asked for in the head ----

UPGRADES = [
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n",
]


@pytest.mark.parametrize("at", [0, 30, -5, -2])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_who_asks_for_another_protocol_gets_his_answer_in_this_one(
    upgrade: bytes, at: int, *, chunked: bool
) -> None:
    body, framing = b"hello", b"content-length: 5"
    if chunked:
        body, framing = b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"transfer-encoding: chunked"
    request = b"POST / HTTP/1.1\r\nhost: x\r\n%b%b\r\n\r\n%b" % (upgrade, framing, body)
    async with serving(echo) as connect:
        caller = await connect()
        for _ in range(2):
            caller.writer.write(request[:at])
            await asyncio.sleep(0.01)  # a read of its own
            caller.writer.write(request[at:] + request)
            heard = b""
            while heard.count(b"\r\n0\r\n\r\n") < 2:
                heard += await asyncio.wait_for(caller.reader.read(65536), 5)
            assert heard.count(b"HTTP/1.1 200 ") == heard.count(b"\r\n5\r\nhello\r\n") == 2


async def test_a_request_in_the_body_of_an_upgrade_is_a_body() -> None:
    inner = GET % b"inner"
    async with serving(echo) as connect:
        caller = await connect()
        head = b"POST / HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n" % (UPGRADES[0], len(inner))
        caller.writer.write(head + inner)
        heard = await caller.reader.readuntil(b"\r\n0\r\n\r\n")
        assert inner in heard
        assert heard.count(b"HTTP/1.1 200 ") == 1


# ---- what does not come to its end ----


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 0.2)
    monkeypatch.setattr(connection, "LINGER_S", 0.2)


POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
STALLED = {
    "a head": b"POST / HT",
    "a body": POST,
    "half a body": POST + b"half",
    "a chunk": POST.replace(b"content-length: 1000", b"transfer-encoding: chunked") + b"5\r\nhe",
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("what", STALLED)
async def test_what_stops_coming_is_a_408(what: str, before: int) -> None:
    async with serving(told_or_echo) as connect:
        caller = await connect()
        caller.writer.write(GET % b"" * before + STALLED[what])
        heard = await caller.rest()
        assert heard.count(b"HTTP/1.1 200 ") == before
        assert (
            heard.count(b"HTTP/1.1 408 ") == heard.count(b"request_timeout") == heard.count(b"connection: close") == 1
        )


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("head", [POST, STALLED["a chunk"] + b"llo\r\n5;"], ids=["body", "a chunk's extension"])
async def test_a_body_that_only_trickles_is_a_408(head: bytes) -> None:
    async with serving(told_or_echo) as connect:
        caller = await connect()
        caller.writer.write(head)
        resting = asyncio.ensure_future(caller.rest())
        while not resting.done():
            caller.writer.write(b"x")
            await asyncio.sleep(0.02)
        assert resting.result().startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hasty")
async def test_a_body_that_goes_on_may_take_its_time() -> None:
    async with serving(told_or_echo) as connect:
        caller = await connect()
        caller.writer.write(POST)
        for _ in range(20):
            await asyncio.sleep(0.03)
            caller.writer.write(b"x" * 50)
        heard = await caller.reader.readuntil(b"\r\n0\r\n\r\n")
        assert heard.startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("begun", [True, False])
async def test_what_stalls_behind_an_answer_does_not_cut_it(*, begun: bool) -> None:
    scene = Scene(begun=begun)
    async with serving(scene.app) as connect:
        caller = await connect()
        caller.writer.write(GET % b"1" + b"GET /2 HT")
        await asyncio.sleep(0.5)  # longer than anybody is waited for
        scene.go.set()
        heard = await caller.rest()
        assert scene.left == []
        assert heard.count(b"HTTP/1.1 200 ") == heard.count(b"\r\n0\r\n\r\n") == heard.count(b"HTTP/1.1 408 ") == 1


async def test_trailers_are_no_headers_and_are_not_kept_without_end() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["headers"])
        await told_or_echo(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
    async with serving(app) as connect:
        caller = await connect()
        caller.writer.write(head + b"authorization: Bearer x\r\nhost: y\r\n\r\n")
        assert b"\r\nab\r\n" in await caller.reader.readuntil(b"\r\n0\r\n\r\n")
        assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding"]
        caller.writer.write(head)
        answer = asyncio.ensure_future(caller.rest())
        while not answer.done():
            caller.writer.write(b"x-a: " + b"a" * 8000 + b"\r\n")
            await asyncio.sleep(0.001)
        assert answer.result().startswith(b"HTTP/1.1 431 ")
