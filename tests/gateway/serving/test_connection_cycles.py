"""What a connection makes of several requests, of other protocols, and of what does not come to its end."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import Failure
from gateway.serving import connection
from tests.gateway.serving.test_connection import refused
from tests.gateway.serving.test_cycle import Caller, answers, echo, serving


@pytest.fixture(autouse=True)
def nothing_breaks() -> Iterator[None]:
    with structlog.testing.capture_logs() as lines:
        yield
    assert lines == []


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


# ---- all of it together ----

_HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
SENT: dict[bytes, tuple[int, bytes]] = {
    GET % b"": (200, b""),
    b"GET / HTTP/1.1\r\nhost: x\r\n%b\r\n" % UPGRADES[1]: (200, b""),
    _HEAD + b"content-length: 5\r\n\r\nhello": (200, b"hello"),
    _HEAD + b"%bcontent-length: 5\r\n\r\nhallo" % UPGRADES[0]: (200, b"hallo"),
    _HEAD + b"transfer-encoding: chunked\r\n\r\n2;a=b\r\nho\r\n3\r\nlla\r\n0\r\nx-t: 1\r\n\r\n": (200, b"holla"),
    _HEAD + b"%btransfer-encoding: chunked\r\n\r\n1\r\nh\r\n0\r\n\r\n" % UPGRADES[1]: (200, b"h"),
}
ENDS: dict[bytes, tuple[int, bytes]] = {
    b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n": (200, b""),
    b"no HTTP": (400, b"is not valid HTTP"),
    b"GET / HTTP/1.1\r\n\r\n": (400, b"one Host"),
    BROKEN: (400, b"invalid_request"),
}


@given(
    st.lists(st.sampled_from(list(SENT)), max_size=4),
    st.sampled_from(list(ENDS)),
    st.lists(st.floats(0, 1), max_size=4),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_the_bytes_are_cut_each_request_gets_its_answer(
    sent: list[bytes], end: bytes, cuts: list[float]
) -> None:
    data = b"".join([*sent, end])
    places = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]

    async def converse() -> bytes:
        async with serving(told_or_echo) as connect:
            caller = await connect()
            for begin, until in itertools.pairwise(places):
                caller.writer.write(data[begin:until])
                await asyncio.sleep(0.001)
            return await caller.rest()

    heard = asyncio.run(converse()).split(b"HTTP/1.1 ")[1:]
    expected = [*[SENT[request] for request in sent], ENDS[end]]
    assert [int(answer[:3]) for answer in heard] == [status for status, _ in expected]
    assert all(body in answer for answer, (_, body) in zip(heard, expected, strict=True))
