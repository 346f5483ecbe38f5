"""The engine of `sluice up`, as the command line sees it.

    wishes = Wishes(model=…, tensor_parallel=…, max_model_len=…, gpu_memory_utilization=…, args=(…))
    engine = EmbeddedEngine(wishes, python=python_of(environment), cache=Path(".cache/models"), environ=os.environ)
    status = await up(engine, serve_gateway, at=(host, port), on_ready=print_a_request_to_try)

``engine.url``, ``engine.served_model`` and ``engine.api_key`` are known at once, so that the gateway can be configured
before anything runs. ``up`` runs both: the gateway comes up first and answers 503 while the engine loads. Whoever ends
first, for whatever reason, takes the other along; a cancelled ``up`` leaves no process. For anything else there is
``async with engine:``, with ``wait_ready()`` inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from gateway.engine import command, warm
from gateway.engine.command import Wishes
from gateway.engine.failure import CannotStart
from gateway.engine.install import python_of
from gateway.engine.machine import Machine, look
from gateway.engine.prepare import prepare, served_name
from gateway.engine.progress import Progress
from gateway.engine.supervise import State, Supervisor
from gateway.upstream.client import Pool
from gateway.upstream.origin import Origin

#: The gateway probes its engines every second or two.
NOTICED_S = 10.0

__all__ = ["CannotStart", "EmbeddedEngine", "State", "Wishes", "python_of", "up"]


class EmbeddedEngine:
    """One vLLM that lives and dies with us, on a loopback port of its own.

    ``python`` is the interpreter of the engine's environment, ``cache`` keeps the default model, ``log`` (a file) gets
    all that vLLM prints. ``progress`` tells people; by default on standard error.
    """

    def __init__(
        self,
        wishes: Wishes,
        *,
        python: Path,
        cache: Path,
        environ: Mapping[str, str],
        log: Path | None = None,
        progress: Progress | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.served_model = wishes.value("--served-model-name") or served_name(wishes.model)
        self.api_key = wishes.value("--api-key") or environ.get("VLLM_API_KEY") or None
        self._port = wishes.number("--port") or free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.progress = progress or Progress(sys.stderr)
        self._wishes = wishes
        self._python = python
        self._cache = cache
        self._environ = environ
        self._log = log
        self._machine = machine
        self._supervisor: Supervisor | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Where the engine is in its life; ``STARTING`` too while the model is being made or fetched."""
        if self._task is None:
            return State.STOPPED
        return self._supervisor.state if self._supervisor else State.STARTING

    async def run(self) -> None:
        """Prepare the model and keep the engine up until cancelled. Raises ``CannotStart``."""
        if not self._python.exists():
            raise CannotStart(f"no vLLM at {self._python}: run make engine, or python -m gateway.engine.install")
        clock = asyncio.get_running_loop().create_task(self.progress.keep_time())
        try:
            await self._supervise(await self._command())
        finally:
            clock.cancel()

    async def _command(self) -> command.Command:
        model = await prepare(
            self._wishes.model,
            name=self.served_model,
            python=self._python,
            cache=self._cache,
            environ=self._environ,
            progress=self.progress,
        )
        machine = self._machine or look(self._environ)
        return command.build(model, machine, self._wishes, python=self._python, port=self._port, environ=self._environ)

    async def _supervise(self, engine: command.Command) -> None:
        pool = Pool(Origin.parse(self.url))
        with contextlib.ExitStack() as files:
            self._supervisor = Supervisor(
                engine,
                alive=lambda: warm.alive(pool),
                warm=lambda: warm.warm(pool, self.served_model, self.api_key, self.progress),
                progress=self.progress,
                log=files.enter_context(self._log.open("wb")) if self._log else None,
            )
            try:
                await self._supervisor.run()
            finally:
                await pool.close()

    def start(self) -> None:
        """Begin; returns at once. Then ``wait_ready``, and ``stop`` in any case."""
        self._task = self._task or asyncio.get_running_loop().create_task(self.run(), name="embedded engine")

    async def wait_ready(self) -> None:
        """Return once the engine answers and is warm. Raises ``CannotStart`` when it never will."""
        while self._task is not None and not self._task.done():
            if self.state is State.READY:
                return
            await asyncio.wait([self._task], timeout=0.1)
        await self.wait_ended()

    async def wait_ended(self) -> NoReturn:
        """Return never: raises what ended the engine for good, ``CannotStart`` if it was stopped."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
        raise CannotStart("the engine was stopped")

    async def stop(self) -> None:
        """Take the engine down; nothing of it is left when this returns. Without effect on a stopped one."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._supervisor = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.stop()


async def up(
    engine: EmbeddedEngine,
    serve: Callable[[], Coroutine[Any, Any, int]],
    *,
    at: tuple[str, int] | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Run the engine and, beside it, ``serve`` (the gateway, listening ``at`` host and port); return its result.

    ``on_ready`` is called once, when the engine is ready and the gateway has noticed. Raises ``CannotStart`` when the
    engine never comes up (``serve`` is cancelled then), and whatever ``serve`` raises. Nothing runs on afterwards.
    """
    loop = asyncio.get_running_loop()
    async with engine:
        serving = loop.create_task(serve(), name="gateway")
        watching = loop.create_task(_watch(engine, at, on_ready), name="engine watch")
        try:
            await asyncio.wait([serving, watching], return_when=asyncio.FIRST_COMPLETED)
            return await (serving if serving.done() else watching)
        finally:
            for task in (serving, watching):
                task.cancel()
            await asyncio.wait([serving, watching])


async def _watch(engine: EmbeddedEngine, at: tuple[str, int] | None, on_ready: Callable[[], None]) -> NoReturn:
    await engine.wait_ready()
    if at is not None:
        await _noticed(*at)
    on_ready()
    await engine.wait_ended()


async def _noticed(host: str, port: int) -> None:
    """Return when the gateway calls itself ready; after a while also if it does not: its own log says why."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- where it listens is not ours
    pool = Pool(Origin("http", local, port))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTICED_S):
                while not await warm.alive(pool):  # noqa: ASYNC110 -- another server's state has no event
                    await asyncio.sleep(0.1)
    finally:
        await pool.close()


def free_port() -> int:
    """Find a loopback port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
