"""Rolling restarts, slow readers, dead engines: what must not be felt by those who have nothing to do with it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from tests.fakes.script import paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import (
    CHAT,
    HI,
    TEAM,
    Gateway,
    RawCaller,
    authorization,
    configuration,
    free_port,
    hear,
    model,
    until,
)
from tests.system.conftest import StartGateway
from tests.tools import needs, running_nginx

STREAMS = 300
WORDS = 30

#: Two gateways behind one address. Connections are kept; what nginx could not send goes to the other.
CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream sluice {{ {servers} keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://sluice; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_next_upstream error timeout http_503; proxy_buffering off; proxy_read_timeout 60s;
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx_before(ports: list[int], folder: Path) -> Iterator[str]:
    """An nginx that spreads over these gateways: its address."""
    port = free_port()
    servers = " ".join(f"server 127.0.0.1:{each} max_fails=0;" for each in ports)
    with running_nginx(CONFIGURATION.format(folder=folder, port=port, servers=servers), port, folder):
        yield f"http://127.0.0.1:{port}/v1"


async def _listen(client: openai.AsyncOpenAI, number: int) -> str:
    stream = await client.chat.completions.create(
        model="smollm2", stream=True, messages=[{"role": "user", "content": f"caller {number}"}]
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def _keep_asking(url: str, finished: threading.Event) -> list[str | BaseException]:
    """Begin a stream every few milliseconds until all have begun, whatever happens to the gateways meanwhile."""
    async with openai.AsyncOpenAI(base_url=url, api_key=TEAM, max_retries=0, timeout=60) as client:
        asking = []
        for number in range(STREAMS):
            asking.append(asyncio.create_task(_listen(client, number)))
            await asyncio.sleep(0.04)
        finished.set()
        return await asyncio.gather(*asking, return_exceptions=True)


@needs("nginx")
def test_three_hundred_sdk_streams_outlive_a_rolling_restart(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """K8-01: two gateways behind nginx are replaced one after the other; no stream is broken, none is sent twice."""
    fake.always(says(*paced("word ", WORDS, 0.1)))
    configurations = [
        configuration([model("smollm2", fake.url, max_in_flight=STREAMS)], chain=[], drain_s=30) for _ in range(2)
    ]
    running = [start_gateway(each) for each in configurations]
    heard: list[str | BaseException] = []
    all_begun = threading.Event()
    with nginx_before([each.port for each in running], tmp_path) as url:
        callers = threading.Thread(target=lambda: heard.extend(asyncio.run(_keep_asking(url, all_begun))))
        callers.start()
        fake.wait_for(20, route=CHAT)
        for old, config in zip(running, configurations, strict=True):
            assert not all_begun.is_set(), "the restart is to happen while streams begin"
            old.process.send_signal(signal.SIGTERM)
            assert old.process.wait(30) == 0
            start_gateway(config)
        callers.join(60)
    assert [each for each in heard if each != "word " * WORDS] == []
    asked = [received.body["messages"][0]["content"] for received in fake.requests() if received.route == CHAT]
    assert sorted(asked) == sorted(f"caller {number}" for number in range(STREAMS))


HALF = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\ncontent-length: 99\r\n\r\n{{".encode()


@pytest.mark.parametrize("sent", [b"POST", HALF], ids=["half a head", "half a body"])
def test_a_request_that_is_not_complete_does_not_hold_up_the_end(
    fake: FakeVLLM, start_gateway: StartGateway, sent: bytes
) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], drain_s=60))
    with RawCaller(gateway.port, timeout=10) as caller:
        caller.send(sent)
        gateway.get("/livez")  # it came later, so the other has been read
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGINT)
        heard = caller.rest()
    assert gateway.process.wait(10) == 0
    assert time.monotonic() - began < 8
    if sent is HALF:
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in heard
        until(lambda: "request_timeout" in [line.get("outcome") for line in gateway.records()])


def test_who_reads_slowly_slows_himself_only_and_fills_no_memory(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """An engine offers each of five callers 60 MB; they read none of it, and the sixth does not notice."""
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=[], timeouts={"idle_s": 30}))
    hear(gateway, {})
    fake.always(says(*["x" * 60_000] * 1000))
    before = gateway.rss()
    with contextlib.ExitStack() as callers:
        for _ in range(5):
            caller = callers.enter_context(RawCaller(gateway.port))
            caller.socket.settimeout(20)
            caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True}).until(b"xxxx")
        stuck = fake.wait_for(6, route=CHAT)[1:]
        written = -1
        while written != (written := sum(each.written for each in stuck)):
            time.sleep(0.3)  # until nobody takes more
        assert written < 5 * 60_000_000
        assert gateway.rss() - before < 24 << 20
        fake.script(says("quick"))
        began = time.monotonic()
        assert hear(gateway, {}).text() == "quick"
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("engine", ["alive", "dead"])
def test_liveness_answers_within_a_second_whatever_is_open(start_gateway: StartGateway, engine: str) -> None:
    """K8-04: a thousand open streams, prompts of two megabytes in the filters, and an engine that dies."""
    with contextlib.ExitStack() as life, contextlib.ExitStack() as callers:
        fake = life.enter_context(FakeVLLM())
        models = [{**model("smollm2", fake.url), "max_in_flight": 2000}]
        gateway = start_gateway(configuration(models, timeouts={"idle_s": 60}))
        fake.always(says("first ", fake.gate(), "last"))
        for _ in range(1000):
            caller = callers.enter_context(RawCaller(gateway.port, timeout=30))
            caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True})
        until(lambda: gateway.metric("sluice_in_flight", model="smollm2") == 1000, 30)
        fake.wait_for(1000, 30, route=CHAT)
        with watched(gateway) as waits, ThreadPoolExecutor() as pool:
            if engine == "dead":
                life.close()
            prompts = [pool.submit(_ask_at_length, gateway) for _ in range(3)]
            if engine == "dead":
                assert {prompt.result() for prompt in prompts} <= {502, 503}
                until(lambda: gateway.get("/readyz").status_code == 503, 10)
            else:
                until(lambda: len(fake.requests(CHAT)) == 1003, 30)
                fake.reset()
        assert len(waits) > 3
        assert max(waits) < 1


@contextlib.contextmanager
def watched(gateway: Gateway) -> Iterator[list[float]]:
    """Ask for liveness over and over; the seconds that each answer took."""
    waits: list[float] = []
    done = threading.Event()

    def watch() -> None:
        with httpx.Client(timeout=5) as client:
            while not done.wait(0.01):
                began = time.monotonic()
                assert client.get(f"{gateway.url}/livez").status_code == 200
                waits.append(time.monotonic() - began)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield waits
    finally:
        done.set()
        watching.join()


def _ask_at_length(gateway: Gateway) -> int:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "清水 " * 300_000}]}
    return httpx.post(gateway.url + CHAT, json=body, headers=authorization(TEAM), timeout=30).status_code
