"""A small application behind the real server, run as a process: what it does is said by the request's query."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from gateway import serving
from gateway.middleware.access_log import AccessLog
from gateway.middleware.request_id import RequestId
from gateway.ops import Lifecycle, Ops
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.output import Output
from gateway.telemetry.table import Table

CHAT = "/v1/chat/completions"


def make_app(fault: str, table: Path | None, lifecycle: Lifecycle, output: Output) -> Any:
    metrics = Metrics(Table(table))
    metrics.known(models=["m"])

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        if fault == "start":
            raise RuntimeError("no such word list: words.txt")
        if fault == "sleep":
            output.write(b'{"event":"starting"}\n')
            await asyncio.sleep(60)
        lifecycle.reload = lambda: output.write(b'{"event":"reload asked"}\n')
        yield
        output.write(b'{"event":"application stopped"}\n')

    async def chat(request: Request) -> Response:
        record = request.scope["sluice"]
        record.model = "m"
        pieces, pause = int(request.query_params.get("pieces", "1")), float(request.query_params.get("pause", "0"))

        async def stream() -> AsyncGenerator[bytes]:
            metrics.in_flight("m", 1)
            try:
                for _ in range(pieces):
                    yield b"data: x\n\n"
                    await asyncio.sleep(pause)
            finally:
                metrics.in_flight("m", -1)

        return StreamingResponse(stream(), headers={"x-pid": str(os.getpid())})

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(Ops(lifecycle, lambda: {"m": {"m-0": True}}, metrics.render, "1").router())
    app.add_route(CHAT, chat, methods=["GET", "POST"])
    return RequestId(AccessLog(app, metrics, output))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--drain", type=float, default=20.0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--descriptor", type=int)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--metrics", type=Path)
    asked = parser.parse_args()
    if asked.fault == "exit" and asked.worker is not None:
        return 2
    if asked.descriptor is not None:
        table = asked.metrics / f"worker-{asked.worker}"
        return serving.serve_worker(
            lambda lifecycle, output: make_app(asked.fault, table, lifecycle, output),
            asked.descriptor,
            drain_s=asked.drain,
        )
    try:
        return serving.serve(
            lambda lifecycle, output: make_app(asked.fault, None, lifecycle, output),
            "127.0.0.1",
            asked.port,
            drain_s=asked.drain,
            workers=asked.workers,
            worker_command=[sys.executable, __file__, f"--drain={asked.drain}", f"--fault={asked.fault}"],
        )
    except serving.CannotListen as fault:
        print(f"sluice: {fault}", file=sys.stderr)
        return serving.COULD_NOT_START


class Served:
    """The process, what it printed, and how it is asked."""

    def __init__(self, *words: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.errors = ""
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--port", str(self.port), *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.printed: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: str) -> None:
        with getattr(self.process, stream) as lines:
            for line in lines:
                if stream == "stdout":
                    self.printed.append(line.decode())
                else:
                    self.errors += line.decode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.printed)]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=10, **options)

    def metric(self, name: str) -> float:
        lines = [line for line in self.get("/metrics").text.splitlines() if line.partition("{")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def status(self, within: float = 10.0) -> int:
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for reader in self._readers:
            reader.join(5)
        return status

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in listed]


def until(condition: Any, within: float = 10.0, otherwise: str = "it never happened") -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


@contextlib.contextmanager
def served(*words: str, ready: bool = True) -> Iterator[Served]:
    made = Served(*words)

    def answers() -> bool:
        assert made.process.poll() is None, made.errors
        with contextlib.suppress(httpx.TransportError):
            return made.get("/livez").status_code == 200
        return False

    try:
        if ready:
            until(answers, 20)
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.status()


if __name__ == "__main__":
    sys.exit(main())
