"""The caller's side: at once where nothing blocks, in order and once where it does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.caller import Caller, CallerHeaders, Message
from gateway.protocol.surface import POSTED
from gateway.record import Record


class Server:
    """An ASGI server's send that waits when told to."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: Message) -> None:
        await self.open.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Listener:
    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log

    def slow(self) -> None:
        self.log.append("slow")

    def ready(self) -> None:
        self.log.append("ready")


def caller(server: Server, log: list[str] | None = None) -> Caller:
    return made(server.send, Listener(log))


def made(send: Any, listener: Listener) -> Caller:
    out = Caller(Record(), POSTED["/v1/chat/completions"])
    out.send, out.listener = send, listener
    return out


def waits(out: Caller) -> bool:
    return out.blocked_since is not None


async def test_what_need_not_wait_is_sent_before_the_call_returns() -> None:
    server = Server()
    out = caller(server)
    out.start(200, [])
    out.write(b"a")
    out.end(b"b")
    assert server.body == b"ab"
    assert out.finished
    assert not server.sent[-1]["more_body"]


async def test_a_slow_caller_gets_everything_once_and_in_order_and_the_engine_is_told() -> None:
    server, log = Server(), list[str]()
    out = caller(server, log)
    out.start(200, [])
    server.open.clear()
    for piece in (b"1", b"2", b"3"):
        out.write(piece)
    assert log == ["slow"]
    assert waits(out)
    server.open.set()
    while log != ["slow", "ready"]:
        await asyncio.sleep(0)
    assert server.body == b"123"
    assert not waits(out)
    out.end(b"4")
    assert server.body == b"1234"


async def test_a_send_that_raises_while_it_waits_loses_nothing_but_itself() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seen: list[Any] = []

    async def send(message: Message) -> None:
        try:
            await gate
        except ConnectionError as fault:
            seen.append(fault)

    out = made(send, Listener())
    out.start(200, [])
    gate.set_exception(ConnectionError())
    while out.blocked_since is not None:
        await asyncio.sleep(0)
    assert len(seen) == 1


async def test_dropping_a_slow_caller_forgets_what_was_waiting() -> None:
    server = Server()
    server.open.clear()
    out = caller(server)
    out.start(200, [])
    out.write(b"never")
    out.drop()
    server.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.sent == []


@pytest.mark.parametrize("leaves", [False, True])
async def test_how_long_a_caller_took_nothing_is_noted_also_of_one_that_leaves(*, leaves: bool) -> None:
    server = Server()
    out = caller(server)
    out.start(200, [])
    assert "client_write" not in out._record.phases
    server.open.clear()
    out.write(b"1")
    await asyncio.sleep(0.02)
    if leaves:
        out.drop()
    else:
        server.open.set()
        while waits(out):
            await asyncio.sleep(0)
    assert 0.015 < out._record.phases["client_write"] < 5


def test_headers_are_read_by_name_and_credentials_are_not_among_them() -> None:
    headers = CallerHeaders({b"authorization": b"Bearer k", b"x-title": b"\xe4\xbd\xa0", b"cookie": b"c"})
    assert headers["x-title"] == "ä½\xa0"
    assert list(headers) == ["x-title"]
    assert len(headers) == 1
    assert headers.get("authorization") is None
    with pytest.raises(KeyError):
        headers["cookie"]
