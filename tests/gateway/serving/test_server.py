from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from gateway.ops import Lifecycle
from gateway.serving.server import Server
from tests.gateway.serving.stub import CHAT, Served, served, until

LONG = f"{CHAT}?pieces=40&pause=0.05"
ENDLESS = f"{CHAT}?pieces=100000&pause=0.05"


class Reading:
    """A caller that reads a stream beside the test."""

    def __init__(self, server: Served, path: str) -> None:
        self.pieces = 0
        self.fault: Exception | None = None
        self._path = server.url + path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: self.pieces or self.fault)

    def _read(self) -> None:
        try:
            with httpx.stream("GET", self._path, timeout=20) as answer:
                for _ in answer.iter_raw():
                    self.pieces += 1
        except httpx.TransportError as fault:
            self.fault = fault

    def end(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_running_stream_ends_in_peace_and_readiness_is_off_at_once() -> None:
    with served() as server:
        assert server.get("/readyz").status_code == 200
        reading = Reading(server, LONG)
        server.signal(signal.SIGTERM)
        until(lambda: server.events("stopping"))
        answer = server.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        assert answer.headers["connection"] == "close"
        assert server.get(CHAT).status_code == 200, "a request that came before the balancer noticed"
        reading.end()
        assert reading.fault is None
        assert reading.pieces >= 40
        assert server.status() == 0
        assert server.events("application stopped")
        assert [line["outcome"] for line in server.events("request")] == ["ok", "ok"]


def test_an_idle_server_ends_within_a_moment() -> None:
    with served() as server:
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.status() == 0
        assert time.monotonic() - began < 3


def test_who_asks_regularly_is_given_time_to_notice() -> None:
    with served() as server:
        for _ in range(3):
            server.get("/readyz")
        server.signal(signal.SIGTERM)
        until(lambda: server.events("stopping"))
        time.sleep(1.5)
        assert server.get("/readyz").status_code == 503, "still listening"


def test_a_second_signal_ends_now() -> None:
    with served() as server:
        reading = Reading(server, ENDLESS)
        server.signal(signal.SIGTERM)
        until(lambda: server.events("stopping"))
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.status() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 3
        reading.end()
        assert reading.fault is not None
        assert server.events("application stopped"), "what was acquired is given back all the same"


def test_what_runs_longer_than_the_drain_is_cut_off_and_said_so() -> None:
    with served("--drain", "0.5") as server:
        reading = Reading(server, ENDLESS)
        server.signal(signal.SIGINT)
        assert server.status(15) == 0
        reading.end()
        assert reading.fault is not None
        assert server.events("drain_cut_short")[0]["running"] == 1
        assert server.events("request")[0]["outcome"] == "shutdown"


def test_ctrl_c_on_an_idle_server_ends_it_at_once() -> None:
    with served() as server:
        began = time.monotonic()
        server.signal(signal.SIGINT)
        assert server.status() == 0
        assert time.monotonic() - began < 1.5


def test_a_kept_alive_connection_does_not_hold_up_the_end() -> None:
    with served() as server, httpx.Client() as client:
        assert client.get(server.url + "/livez").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.status() == 0


def test_sighup_asks_for_a_reload_and_never_kills() -> None:
    with served() as server:
        server.signal(signal.SIGHUP)
        until(lambda: server.events("reload asked"))
        assert server.get("/livez").status_code == 200


def test_an_application_that_cannot_start_says_why_in_one_line() -> None:
    with served("--fault", "start", ready=False) as server:
        assert server.status() == 3
    assert server.errors == "sluice: could not start: RuntimeError: no such word list: words.txt\n"


def test_a_signal_while_the_application_starts_ends_it() -> None:
    with served("--fault", "sleep", ready=False) as server:
        until(lambda: server.events("starting"))
        server.signal(signal.SIGTERM)
        assert server.status(5) == 0


async def test_cancelled_it_stops_the_application_too() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        while True:
            message = await receive()
            seen.append(message["type"])
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return

    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(app, Lifecycle(), drain_s=5)
    serving = asyncio.get_running_loop().create_task(server.serve_on(listener))
    while not server.started:
        await asyncio.sleep(0.01)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert seen == ["lifespan.startup", "lifespan.shutdown"]
