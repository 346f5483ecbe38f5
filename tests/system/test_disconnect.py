"""The caller leaves: the engine is told within a second, and everything acquired is given back."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable

import pytest

from tests.fakes.connection import Received
from tests.fakes.forms import event
from tests.fakes.script import SILENCE, Script, delayed, paced, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, RawCaller, configuration, key, model, until
from tests.system.conftest import StartGateway

HUNDRED = says(*paced("piece ", 100, 0.1))
LEAVING: dict[str, Callable[[RawCaller], None]] = {"FIN": RawCaller.close, "RST": RawCaller.reset}


@pytest.mark.parametrize("how", LEAVING)
def test_a_caller_who_leaves_in_mid_stream_frees_the_engine(
    fake: FakeVLLM, gateway: Gateway, fragile: str, how: str
) -> None:
    """TD-01."""
    fake.always(HUNDRED)
    caller = RawCaller(gateway.port)
    caller.post(CHAT, {"model": fragile, "messages": HI, "stream": True}, x_request_id=f"leaving-by-{how}")
    while caller.seen.count(b'"piece "') < 3:
        caller.until(b'"piece "')
        caller.seen += caller.socket.recv(65536)
    left = time.monotonic()
    LEAVING[how](caller)
    received = fake.requests(model=fragile)[0]
    assert received.seconds_until_left(left, 1) < 1
    assert received.written < 30
    gateway.wait_metric("sluice_in_flight", 0, model=fragile)
    assert gateway.wait_record(f"leaving-by-{how}")["outcome"] == "client_left"


SILENT: dict[str, Script] = {
    "before the head": delayed(says("late"), 30),
    "between head and first event": says(SILENCE),
    "after some text": says("text", SILENCE),
    "in the middle of an event": streams(event({"choices": []})[:9], SILENCE),
}


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("when", SILENT)
def test_a_caller_who_leaves_a_silent_engine_frees_it(
    fake: FakeVLLM, gateway: Gateway, *, fragile: str, when: str, stream: bool, how: str
) -> None:
    """Streaming or not: also while not one byte of an answer is there."""
    fake.always(SILENT[when])
    caller = RawCaller(gateway.port)
    caller.post(CHAT, {"model": fragile, "messages": HI, "stream": stream})
    received = fake.wait_for(1, model=fragile)[0]
    until(lambda: gateway.metric("sluice_in_flight", model=fragile) == 1)
    left = time.monotonic()
    LEAVING[how](caller)
    assert received.seconds_until_left(left, 1) < 1
    gateway.wait_metric("sluice_in_flight", 0, model=fragile)
    assert len(fake.requests(model=fragile)) == 1  # leaving is no reason to ask again


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("behind", [b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", b"GET", b"no HTTP"], ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_what_a_caller_has_sent_behind_his_request_hides_no_leaving(
    fake: FakeVLLM, gateway: Gateway, *, fragile: str, stream: bool, behind: bytes, how: str
) -> None:
    fake.always(says("text", SILENCE))
    caller = RawCaller(gateway.port)
    caller.post(CHAT, {"model": fragile, "messages": HI, "stream": stream}, x_request_id=(own := f"{id(caller)}"))
    received = fake.wait_for(1, model=fragile)[0]
    until(lambda: gateway.metric("sluice_in_flight", model=fragile) == 1)
    caller.send(behind)
    gateway.get("/livez")  # it came later, so the other has been read
    left = time.monotonic()
    LEAVING[how](caller)
    assert received.seconds_until_left(left, 1) < 1
    gateway.wait_metric("sluice_in_flight", 0, model=fragile)
    assert gateway.wait_record(own)["outcome"] == "client_left"


def test_a_caller_who_leaves_without_having_read_frees_the_engine(
    fake: FakeVLLM, gateway: Gateway, fragile: str
) -> None:
    """The gateway has stopped reading the engine, and is waiting for the caller to take something."""
    fake.always(says(*["x" * 20_000] * 1500))
    with RawCaller(gateway.port) as caller:
        caller.post(CHAT, {"model": fragile, "messages": HI, "stream": True})
        received = fake.wait_for(1, model=fragile)[0]
        until(lambda: stalled(received), 10)
        left = time.monotonic()
        caller.reset()
    assert received.seconds_until_left(left, 1) < 1
    gateway.wait_metric("sluice_in_flight", 0, model=fragile)


def stalled(received: Received) -> bool:
    """Say whether the engine has something to write and cannot."""
    before = received.written
    time.sleep(0.1)
    return received.written == before > 0


@pytest.mark.parametrize("timeouts", [{"total_s": 1.5}, {"idle_s": 1.0}], ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_caller_who_never_reads_is_dropped_in_time(
    fake: FakeVLLM, start_gateway: StartGateway, timeouts: dict[str, float], stream: bool
) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], timeouts=timeouts, chain=[]))
    fake.always(says(*["x" * 20_000] * 1500))
    with RawCaller(gateway.port) as caller:
        caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": stream}, x_request_id="never-reads")
        received = fake.wait_for(1)[0]
        assert received.done.wait(4)
        gateway.wait_metric("sluice_in_flight", 0, 4)
        outcome = gateway.wait_record("never-reads")["outcome"]
    assert outcome == ("client_left" if stream else "ok")  # a whole answer was handed over; never the engine's fault


def test_a_caller_who_leaves_while_the_engine_does_not_accept_is_let_go(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    with socket.socket() as deaf:  # its queue of one is full: the kernel ignores who comes next
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        with socket.create_connection(deaf.getsockname()):
            models = [model("deaf", f"http://127.0.0.1:{deaf.getsockname()[1]}"), model("smollm2", fake.url)]
            gateway = start_gateway(configuration(models, timeouts={"connect_s": 10}))
            caller = RawCaller(gateway.port)
            caller.post(CHAT, {"model": "deaf", "messages": HI})
            until(lambda: gateway.metric("sluice_in_flight", model="deaf") == 1, 5)
            caller.close()
            gateway.wait_metric("sluice_in_flight", 0, 1, model="deaf")


def test_leaving_gives_the_slots_of_key_and_model_back(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    models = [model("smollm2", fake.url, max_in_flight=1)]
    gateway = start_gateway(configuration(models, keys=[key("team", TEAM, max_in_flight=1)]))
    fake.script(says("a", SILENCE), delayed(says("b"), 30), says(SILENCE))
    for stream in (True, False, True):
        caller = RawCaller(gateway.port)
        caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": stream})
        fake.wait_for(1)
        caller.reset()
        gateway.wait_metric("sluice_in_flight", 0)
        until(lambda: all(received.left.is_set() for received in fake.requests()), 1)
        fake.reset()
        fake.script(says("a", SILENCE))
    fake.reset()
    assert gateway.post(CHAT, {"model": "smollm2", "messages": HI}).status_code == 200


async def test_aborted_requests_do_not_use_up_the_pool(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """TD-03: fifty streams reset at random moments, then four at once."""
    gateway = start_gateway(configuration([model("smollm2", fake.url, max_in_flight=4)]))
    moments = random.Random(3)
    fake.always(says(0.01, *paced("piece ", 20, 0.01)))

    async def leave(turn: asyncio.Semaphore) -> None:
        async with turn:
            caller = await asyncio.to_thread(RawCaller, gateway.port)
            caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True})
            await asyncio.sleep(moments.random() * 0.15)
            caller.reset()

    turns = asyncio.Semaphore(4)
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(leave(turns))
    await asyncio.to_thread(gateway.wait_metric, "sluice_in_flight", 0, 2)
    async with gateway.async_client() as client, asyncio.TaskGroup() as group:
        four = [group.create_task(client.chat.completions.create(model="smollm2", messages=HI)) for _ in range(4)]
    assert all(task.result().choices[0].message.content for task in four)
    states = gateway.sockets(fake.port)
    assert len(states) <= 5  # the four, and the one over which the figures of the engine are read
    assert "08" not in states  # close-wait


@pytest.mark.parametrize("pause_s", [0.29, 0.31])
async def test_an_idle_connection_that_the_engine_closes_costs_nobody_an_answer(
    start_gateway: StartGateway, pause_s: float
) -> None:
    """TD-05, the race: the engine closes just when the next request is on its way."""
    with FakeVLLM(keep_alive_s=0.3) as fake:
        gateway = start_gateway(configuration([model("smollm2", fake.url)]))
        async with gateway.async_client() as client:
            for _ in range(3):
                async with asyncio.TaskGroup() as group:
                    for _ in range(20):
                        group.create_task(client.chat.completions.create(model="smollm2", messages=HI))
                await asyncio.sleep(pause_s)
        assert len(fake.requests()) == 60


async def test_requests_six_seconds_apart_meet_no_dead_connection(fake: FakeVLLM, gateway: Gateway) -> None:
    """TD-05: twenty connections at once instead of twenty times; the engine closes idle ones after five seconds."""
    async with gateway.async_client() as client:
        for pause in (6, 0):
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(client.chat.completions.create(model="smollm2", messages=HI))
            await asyncio.sleep(pause)
    assert len(fake.requests()) == 40
    assert "08" not in gateway.sockets(fake.port)
