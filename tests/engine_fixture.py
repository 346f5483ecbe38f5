"""The real vLLM of the test session: started once, by our own supervisor, and gone when the session is.

A test that takes ``real_engine`` talks to it (and carries ``@pytest.mark.engine``). ``running_engine`` starts another
one, for tests that need flags of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gateway.engine.failure import CannotStart
from gateway.engine.prepare import prepare
from gateway.engine.progress import Progress
from gateway.engine.up import EmbeddedEngine, Wishes, python_of

ROOT = Path(__file__).parents[1]
ENGINE_PYTHON = python_of(ROOT / ".engine-venv")
MODELS = ROOT / ".cache" / "models"


@dataclass(frozen=True, slots=True)
class RealEngine:
    """A running vLLM: ``url`` without ``/v1``, the name it serves under, and the file with all it has printed."""

    url: str
    model: str
    log: Path
    folder: Path = MODELS  # where its model and what belongs to it are

    def metric(self, name: str) -> float:
        """Sum the series of one of vLLM's metrics, ``vllm:num_requests_running`` and the like."""
        lines = httpx.get(f"{self.url}/metrics", timeout=10).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


@pytest.fixture(scope="session")
def real_engine() -> Iterator[RealEngine]:
    """SmolLM2 on the CPU with a window of 2,048 tokens and 1 GiB of KV cache, warm."""
    with running_engine(Wishes(max_model_len=2048)) as engine:
        yield engine


def default_model() -> Path:
    """Return the default model's directory, made if it is not there yet."""
    progress = Progress(io.StringIO())
    preparing = prepare(None, name="", python=ENGINE_PYTHON, cache=MODELS, environ=os.environ, progress=progress)
    return Path(asyncio.run(preparing).source)


@contextlib.contextmanager
def running_engine(wishes: Wishes, environ: Mapping[str, str] | None = None) -> Iterator[RealEngine]:
    """Run an engine, on an event loop in a thread of its own, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="sluice-engine-") as folder:
        log = Path(folder) / "engine.log"
        engine = EmbeddedEngine(
            wishes,
            python=ENGINE_PYTHON,
            cache=MODELS,
            environ=os.environ if environ is None else environ,
            log=log,
            progress=Progress(io.StringIO()),
        )
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(_live(engine, ready)), name="real engine", daemon=True)
        thread.start()
        try:
            loop, over = ready.result()
        except CannotStart as failure:
            pytest.fail("\n".join([*failure.log, f"no real engine: {failure}"]), pytrace=False)
        try:
            yield RealEngine(engine.url, engine.served_model, log)
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()


async def _live(engine: EmbeddedEngine, ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    over = asyncio.Event()
    async with engine:
        try:
            await engine.wait_ready()
        except BaseException as failure:  # noqa: BLE001 -- told in the thread that waits
            ready.set_exception(failure)
            return
        ready.set_result((asyncio.get_running_loop(), over))
        await over.wait()
