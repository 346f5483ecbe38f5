"""The engine of `sluice up`, run by uvloop as there, over a stand-in for vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from gateway.engine.machine import GIB, Machine
from gateway.engine.progress import Progress
from gateway.engine.up import CannotStart, EmbeddedEngine, State, Wishes, up
from tests.gateway.engine.conftest import Family

MakeEngine = Callable[..., EmbeddedEngine]


@pytest.fixture
def make_engine(tmp_path: Path, family: Family, fake_python: Path) -> MakeEngine:
    model = tmp_path / "tiny-model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")

    def make(mode: str = "", *args: str, python: Path = fake_python) -> EmbeddedEngine:
        return EmbeddedEngine(
            Wishes(model=str(model), args=args),
            python=python,
            cache=tmp_path,
            environ={**family.environ, "FAKE_ENGINE": mode},
            progress=Progress(io.StringIO()),
            machine=Machine(2, True, 8 * GIB, 6 * GIB),
            log=tmp_path / "engine.log",
        )

    return make


def told(engine: EmbeddedEngine) -> str:
    assert isinstance(engine.progress.stream, io.StringIO)
    return engine.progress.stream.getvalue()


def post(url: str, **body: object) -> None:
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode())
    with contextlib.suppress(OSError), urllib.request.urlopen(request):
        pass


def test_it_is_known_where_the_engine_will_be_before_it_runs(make_engine: MakeEngine) -> None:
    engine = make_engine("", "--api-key", "sk-1")
    assert engine.url.startswith("http://127.0.0.1:")
    assert (engine.served_model, engine.api_key, engine.state) == ("tiny-model", "sk-1", State.STOPPED)
    named = make_engine("", "--served-model-name", "m", "--port=4321")
    assert (named.served_model, named.url) == ("m", "http://127.0.0.1:4321")


def test_the_gateway_is_up_while_the_engine_loads_and_both_end_together(
    make_engine: MakeEngine, family: Family, tmp_path: Path
) -> None:
    engine = make_engine()
    ready: list[State] = []
    seen: list[State] = []

    async def gateway() -> int:
        seen.append(engine.state)
        await engine.wait_ready()
        seen.append(engine.state)
        assert len(family.members()) == 3  # leash, engine, worker
        while not ready:
            await asyncio.sleep(0.01)
        return 7

    assert uvloop.run(up(engine, gateway, on_ready=lambda: ready.append(engine.state))) == 7
    assert (seen, ready, engine.state) == ([State.STARTING, State.READY], [State.READY], State.STOPPED)
    assert family.members() == []
    assert "Starting to load model" in (tmp_path / "engine.log").read_text()


def test_an_engine_that_cannot_start_takes_the_gateway_along(make_engine: MakeEngine) -> None:
    ended: list[bool] = []

    async def gateway() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return 0

    with pytest.raises(CannotStart, match=r"vLLM died while starting \(exit status 1\): ValueError: no such thing"):
        uvloop.run(up(make_engine("dies"), gateway))
    assert ended == [True]


def test_a_gateway_that_cannot_start_takes_the_engine_along(make_engine: MakeEngine, family: Family) -> None:
    async def gateway() -> int:
        await asyncio.sleep(0.3)
        raise OSError("address already in use")

    with pytest.raises(OSError, match="address already in use"):
        uvloop.run(up(make_engine(), gateway))
    assert family.members() == []


def test_a_crash_is_survived_with_every_worker_of_the_dead_gone(make_engine: MakeEngine, family: Family) -> None:
    engine = make_engine("crashes")

    async def gateway() -> int:
        await engine.wait_ready()
        before = set(family.members())
        await asyncio.to_thread(post, engine.url, crash=True)
        async with asyncio.timeout(10):
            while engine.state is State.READY:
                await asyncio.sleep(0.01)
        await engine.wait_ready()
        assert before.isdisjoint(family.members())
        return 0

    assert uvloop.run(up(engine, gateway)) == 0
    assert "died (killed" in told(engine)


def test_cancelled_it_leaves_nothing(make_engine: MakeEngine, family: Family) -> None:
    engine = make_engine()

    async def interrupted() -> None:
        both = asyncio.get_running_loop().create_task(up(engine, lambda: asyncio.sleep(60, 0)))
        await engine_is(engine, State.READY)
        both.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both

    uvloop.run(interrupted())
    assert family.members() == []


async def engine_is(engine: EmbeddedEngine, state: State) -> None:
    async with asyncio.timeout(10):
        while engine.state is not state:
            await asyncio.sleep(0.01)


async def test_without_vllm_it_is_said_how_to_get_it(make_engine: MakeEngine, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"no vLLM at .*/nowhere: run make engine"):
        await make_engine("", python=tmp_path / "nowhere").run()


async def test_stopping_twice_and_waiting_for_a_stopped_one_are_harmless(make_engine: MakeEngine) -> None:
    engine = make_engine()
    await engine.stop()
    async with engine:
        await engine.wait_ready()
    await engine.stop()
    with pytest.raises(CannotStart, match="was stopped"):
        await engine.wait_ready()


def test_ready_is_said_when_the_gateway_has_noticed(make_engine: MakeEngine) -> None:
    engine = make_engine()
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        status = b"200 OK" if len(asked) > 2 else b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    said_after: list[int] = []

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        async def gateway() -> int:
            while not said_after:
                await asyncio.sleep(0.01)
            return 0

        await up(engine, gateway, at=(host, port), on_ready=lambda: said_after.append(len(asked)))
        server.close()

    uvloop.run(run())
    assert said_after == [3]
    assert set(asked) == {b"GET /health HTTP/1.1"}
