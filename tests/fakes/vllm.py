"""A scriptable vLLM on a real socket: it records what it is asked and plays what the test wrote.

``with FakeVLLM() as fake: fake.script(says("Hello"))``; it runs on an event loop in a thread of its own, so a test may
block. ``python -m tests.fakes.vllm --port 8100`` serves its default answer until interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import threading
from collections import deque
from typing import Self

from gateway.upstream.warming import REQUEST_ID
from tests.fakes.connection import Connection, Received
from tests.fakes.default import GENERATION, default_for
from tests.fakes.script import Gate, Script


class FakeVLLM:
    """The engine: scripts in, records out."""

    def __init__(self, *, keep_alive_s: float = 5.0, port: int = 0, models: tuple[str, ...] = ("smollm2",)) -> None:
        self.keep_alive_s, self.port, self.models = keep_alive_s, port, models
        self.read_pause_s = 0.0  # slow reading: a pause after each piece of a request
        self.healthy = True
        self.running = 0
        self._received: list[Received] = []
        self._scripts: dict[tuple[str | None, str | None], deque[Script]] = {}
        self._standing: dict[tuple[str | None, str | None], Script] = {}
        self._early: set[Script] = set()
        self._gates: list[Gate] = []
        self._arrived = threading.Condition()
        self._numbers = itertools.count(1)
        self.connections: set[Connection] = set()
        self.accepted = itertools.count(1)

    # -- the test's side -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def script(self, *scripts: Script, route: str | None = None, model: str | None = None, early: bool = False) -> None:
        """Queue scripts: each plays once. ``early`` answers when the head has arrived, before the body was read."""
        self._scripts.setdefault((route, model), deque()).extend(scripts)
        if early:
            self._early.update(scripts)

    def always(self, script: Script, route: str | None = None, model: str | None = None) -> None:
        """Play this script whenever no queued one is left."""
        self._standing[route, model] = script

    def gate(self) -> Gate:
        """Return a gate for a script to wait at; ``reset`` opens it."""
        self._gates.append(gate := Gate())
        return gate

    def reset(self) -> None:
        """Forget scripts and records."""
        self._scripts.clear()
        self._standing.clear()
        self._early.clear()
        self.read_pause_s, self.healthy = 0.0, True
        for gate in self._gates:
            gate.set()
        self._gates.clear()
        with self._arrived:
            self._received.clear()

    def requests(self, route: str | None = None, model: str | None = None) -> list[Received]:
        """Return the generation requests so far, or those of one route, of one model if named."""
        with self._arrived:
            return [
                item for item in self._received
                if not _warms(item)
                and (item.route in GENERATION if route is None else item.route == route)
                and (model is None or (isinstance(item.body, dict) and item.body.get("model") == model))
            ]  # fmt: skip

    def everything(self) -> list[Received]:
        """Return all that arrived, probes and scrapes too."""
        with self._arrived:
            return list(self._received)

    def wait_for(self, count: int = 1, within: float = 5.0, **which: str) -> list[Received]:
        """Wait until so many requests have arrived; ``which`` as in ``requests``."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.requests(**which)) >= count, within)
        found = self.requests(**which)
        assert len(found) >= count, f"{len(found)} of {count} requests arrived within {within} s"
        return found

    def close_all(self) -> None:
        """Reset every connection, as a dying engine does."""
        for connection in list(self.connections):
            self._loop.call_soon_threadsafe(connection.reset)

    # -- its own side ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="fake-vllm", daemon=True)
        self._thread.start()
        assert started.wait(5), "the fake engine did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the fake engine did not end"

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        self._loop.remove_reader(server.sockets[0].fileno())
        await asyncio.sleep(0)  # a server that is closed would drop, still open, whom it has just let in
        server.close()
        while self.connections or asyncio.all_tasks() - {asyncio.current_task()}:  # a task lets in, or plays
            for connection in list(self.connections):
                connection.reset()
            await asyncio.sleep(0.01)

    def arrived(self, received: Received) -> None:
        """Record a request."""
        with self._arrived:
            self._received.append(received)
            self._arrived.notify_all()

    def next_number(self) -> int:
        """Number the requests."""
        return next(self._numbers)

    def early_script(self, route: str) -> Script | None:
        """Take the next queued script if it does not wait for the body."""
        for key in ((route, None), (None, None)):
            queue = self._scripts.get(key)
            if queue and queue[0] in self._early and (key[0] or route in GENERATION):
                return queue.popleft()
        return None

    def script_for(self, received: Received) -> Script:
        """Choose what to play: queued before standing, the narrower key first; a warm-up is no test's business."""
        if _warms(received):
            return default_for(self, received)
        model = received.body.get("model") if isinstance(received.body, dict) else None
        keys: list[tuple[str | None, str | None]] = [(received.route, model), (received.route, None)]
        keys += [(None, model), (None, None)] if received.route in GENERATION else []
        for key in keys:
            if self._scripts.get(key):
                return self._scripts[key].popleft()
        for key in keys:
            if key in self._standing:
                return self._standing[key]
        return default_for(self, received)


def _warms(received: Received) -> bool:
    return (received.header("x-request-id") or "").startswith(REQUEST_ID)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="a scriptable fake of vLLM, playing its default answers")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--model", default="smollm2")
    given = parser.parse_args()
    with FakeVLLM(port=given.port, models=(given.model,)) as fake, contextlib.suppress(KeyboardInterrupt):
        print(f"fake engine on {fake.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
