"""One exchange over real sockets: an engine that plays what it is given, a chain of one plugin, a caller's socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.admission.keys import Keyring
from gateway.live import Live, Model, Timeouts
from gateway.middleware.access_log import AccessLog
from gateway.middleware.auth import Auth
from gateway.middleware.body import Body
from gateway.middleware.request_id import RequestId
from gateway.middleware.shaped import Shaped
from gateway.pipeline import Chain, Link
from gateway.protocol.openai import CHAT, Ceilings
from gateway.protocol.surface import POSTED
from gateway.record import Record
from gateway.routes import Routes
from gateway.sdk import Answer, Exchange, Options, Plugin
from gateway.serving.connection import Connection
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.output import Output
from gateway.telemetry.table import Table
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet

Play = Callable[[asyncio.StreamWriter], Awaitable[None]]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def answered(body: dict[str, Any], status: str = "200 OK") -> Play:
    raw = json.dumps(body).encode()

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n" % status.encode())
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(raw), raw))

    return play


def whole(text: str) -> Play:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return answered({"object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE})


def streamed(*texts: str, ends: bool = True) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        deltas: list[dict[str, Any]] = [{"delta": {"content": text}, "finish_reason": None} for text in texts]
        deltas += [{"delta": {}, "finish_reason": "stop"}] if ends else []
        for delta in deltas:
            _chunk(writer, json.dumps({"model": "m", "choices": [{"index": 0, **delta}]}).encode())
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        if ends:
            _chunk(writer, b"[DONE]")
            writer.write(b"0\r\n\r\n")

    return play


def _chunk(writer: asyncio.StreamWriter, payload: bytes) -> None:
    frame = b"data: %b\n\n" % payload
    writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))


class Told(Plugin):
    """Keeps the record of each exchange, and may make a request wait."""

    class Options(Options):
        pass

    def __init__(self) -> None:
        super().__init__(self.Options())
        self.records: list[Record] = []
        self.wait: asyncio.Event | None = None
        self.waiting = asyncio.Event()
        self.cancelled = False

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        return None if self.wait is None else self._waits(self.wait)

    async def _waits(self, event: asyncio.Event) -> None:
        self.waiting.set()
        try:
            await event.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def on_complete(self, exchange: Exchange) -> None:
        self.records.append(exchange.record)


@dataclass
class House:
    """The gateway's data path on a port of its own, with one engine."""

    port: int
    engine: Engine
    told: Told
    live: Live
    tasks: set[Any]
    asked: list[bytes]

    async def open(self, **body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await self.send(writer, **body)
        return reader, writer

    async def send(self, writer: asyncio.StreamWriter, **body: Any) -> None:
        raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
        )
        writer.write(head.encode() + raw)
        await writer.drain()

    async def ask(self, **body: Any) -> tuple[bytes, bytes]:
        reader, writer = await self.open(**body)
        answer = await read(reader)
        writer.close()
        return answer

    async def over(self, count: int = 1) -> None:
        async with asyncio.timeout(5):
            while len(self.told.records) < count or self.tasks or self.engine.in_flight:
                await asyncio.sleep(0.005)


async def read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    if b"transfer-encoding: chunked" in head:
        return head, await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), 5)
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await asyncio.wait_for(reader.readexactly(length), 5)


@contextlib.asynccontextmanager
async def house(play: Play, times: Timeouts | None = None, told: Told | None = None) -> AsyncGenerator[House]:
    asked: list[bytes] = []
    engines: list[asyncio.StreamWriter] = []
    null = os.open(os.devnull, os.O_WRONLY)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engines.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked.append(head)
                await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                await play(writer)

    upstream = await asyncio.start_server(serve, "127.0.0.1", 0)
    engine = Engine("e", Pool(Origin.parse(f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}")))
    model, told = Model("m", Fleet([engine]), Ceilings(None, 1, 1)), told or Told()
    live = Live(1, {"m": model}, Keyring([]), Chain([Link("told", told)]), timeouts=times or Timeouts())
    metrics, output = Metrics(Table()), Output(null)
    metrics.known(models=["m"])

    async def others(*_: Any) -> None:
        raise AssertionError("not of the data path")

    inner = RequestId(AccessLog(Auth(Body(Routes(metrics, others)), lambda: live), metrics, output))
    app = Shaped(inner, lambda: live, frozenset(POSTED))
    config = uvicorn.Config(
        app, http=Connection, log_config=None, lifespan="off", interface="asgi3", proxy_headers=False
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
    try:
        yield House(server.sockets[0].getsockname()[1], engine, told, live, state.tasks, asked)
    finally:
        server.close()
        upstream.close()
        await engine.pool.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for writer in engines:
            writer.close()
        for _ in range(5):
            await asyncio.sleep(0)
        output.close()
        os.close(null)


async def test_a_whole_answer_passes_with_its_id_its_times_and_its_usage() -> None:
    async with house(whole("hello")) as gateway:
        head, body = await gateway.ask()
        await gateway.over()
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nx-request-id: req-" in head
        assert b"\r\nserver-timing: auth;dur=" in head
        assert json.loads(body)["choices"][0]["message"]["content"] == "hello"
        (record,) = gateway.told.records
        assert (record.status, record.outcome, record.completion_tokens) == (200, "ok", 2)
        assert list(record.phases) == ["auth", "queue", "chain_request", "connect", "first_token", "chain_answer"]
        assert gateway.live.models["m"].door.gate.in_flight == 0


class Rewrites(Told):
    """Puts another answer in the place of the engine's, and may have to wait for it."""

    def on_answer(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        waits = exchange.body.get("seed") == 1
        choice = {"index": 0, "message": {"role": "assistant", "content": "other"}, "finish_reason": "stop"}
        answer.body = {**answer.body, "choices": [choice]}
        return asyncio.sleep(0) if waits else None


async def test_a_whole_answer_can_be_another() -> None:
    async with house(whole("hello"), told=Rewrites()) as gateway:
        for seed in (0, 1):
            _, body = await gateway.ask(seed=seed)
            assert json.loads(body)["choices"][0]["message"]["content"] == "other"


async def test_a_stream_passes_to_its_done() -> None:
    async with house(streamed("hel", "lo")) as gateway:
        head, body = await gateway.ask(stream=True)
        await gateway.over()
        assert b"content-type: text/event-stream" in head
        assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert gateway.told.records[0].finish_reasons == ["stop"]
        assert gateway.told.records[0].first_text_s is not None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_exchange_leaves_nothing_for_the_collector(*, stream: bool) -> None:
    async with house(streamed("hel", "lo") if stream else whole("hello")) as gateway:
        reader, writer = await gateway.open(stream=stream)
        await read(reader)

        async def once() -> None:
            await gateway.send(writer, stream=stream)
            await read(reader)

        for _ in range(5):
            await once()
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await once()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            ours = [left for left in gc.garbage if type(left).__module__.startswith("gateway")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        writer.close()
        assert ours == []


async def test_a_caller_that_leaves_while_a_plugin_waits_ends_it_and_no_engine_is_asked() -> None:
    async with house(whole("never")) as gateway:
        gateway.told.wait = asyncio.Event()
        _, writer = await gateway.open()
        await asyncio.wait_for(gateway.told.waiting.wait(), 5)
        writer.close()
        await gateway.over()
        assert gateway.told.cancelled
        assert gateway.told.records[0].outcome == "client_left"
        assert gateway.asked == []


async def test_a_caller_that_takes_nothing_is_dropped_in_time_and_the_engine_with_it() -> None:
    flood = streamed(*["x" * 60_000] * 400, ends=False)
    async with house(flood, Timeouts(idle=0.3)) as gateway:
        began = asyncio.get_running_loop().time()
        reader, writer = await gateway.open(stream=True)
        reader._transport.pause_reading()  # type: ignore[attr-defined] # a caller that reads no more
        await gateway.over()
        assert 0.25 < asyncio.get_running_loop().time() - began < 4
        assert gateway.told.records[0].outcome == "client_left"
        writer.close()


async def test_a_stalled_stream_ends_with_an_error_event_and_an_unbegun_one_with_504() -> None:
    async with house(streamed("hel", ends=False), Timeouts(idle=0.1)) as gateway:
        _, body = await gateway.ask(stream=True)
        assert b'"code":"engine_timeout"' in body
        assert b"[DONE]" not in body

    async def silence(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    async with house(silence, Timeouts(first_token=0.1)) as gateway:
        head, _ = await gateway.ask(stream=True)
        assert head.startswith(b"HTTP/1.1 504 ")


async def test_an_engine_s_refusal_is_the_caller_s_and_its_own_trouble_is_not() -> None:
    refusal = {"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}}
    async with house(answered(refusal, "400 Bad Request")) as gateway:
        head, body = await gateway.ask()
        await gateway.over()
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["message"] == "too long"
        assert gateway.told.records[0].outcome == "engine_refused"
    async with house(answered({"detail": "at /srv/secret"}, "500 Internal Server Error")) as gateway:
        head, body = await gateway.ask()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"secret" not in body


async def test_requests_sent_ahead_are_answered_in_order_however_many_are_refused() -> None:
    bad = b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{"'
    async with house(whole("hello")) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(bad * 600)
        await gateway.send(writer)
        statuses = [(await read(reader))[0][9:12] for _ in range(601)]
        writer.close()
        assert statuses == [b"400"] * 600 + [b"200"]
