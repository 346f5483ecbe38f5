"""The server of one process: uvicorn's, which ends as a gateway should: told first, then drained, then gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from math import inf
from time import monotonic

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from gateway.ops import Lifecycle
from gateway.serving.connection import Connection

log = structlog.get_logger()

COULD_NOT_START = 3
BACKLOG = 2048
#: How long new connections still come in while readiness is off: load balancers take a few seconds to notice.
NOTICE_S = 5.0
#: The same where nobody asks for readiness and nothing runs.
SHORT_NOTICE_S = 0.5
#: Longer than the idle time of common proxies (60 s), so that it is they who close, and no request meets a closed door.
KEEP_ALIVE_S = 75
_LOOK_S = 0.05
_CLEAN_UP_S = 10.0
_FORCED_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FAULT = re.compile(r"[\s|+]*(?:[\w.]*\.)?(\w+: .+)")


class Server(uvicorn.Server):
    """Serves ``app`` until the first SIGTERM or SIGINT, then ends in this order.

    Readiness goes off, and for a moment (``notice_s``) connections are still taken. Then the listener closes, and what
    runs may go on until ``drain_s`` after the signal. A second signal ends all that at once. ``status`` is the exit
    status: 0, or 128 and the number of the second signal. ``leash`` is a descriptor whose end says that whoever started
    us is gone.
    """

    def __init__(
        self,
        app: ASGIApp,
        lifecycle: Lifecycle,
        *,
        drain_s: float,
        notice_s: float = NOTICE_S,
        started: Callable[[], None] = lambda: None,
        leash: int | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                interface="asgi3",
                log_config=None,
                access_log=False,
                workers=1,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self.status = 0
        self._lifecycle = lifecycle
        self._drain_s, self._notice_s = drain_s, notice_s
        self._ends_at = inf
        self._tell_started = started
        self._leash = leash
        self._woken = asyncio.Event()
        self._main: asyncio.Task[object] | None = None

    def run_on(self, listener: socket.socket) -> int:
        """Serve on this socket in an event loop of its own; return the exit status."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self.serve_on(listener))

    async def serve_on(self, listener: socket.socket) -> int:
        """Serve on this socket and close it; return the exit status. Cancelled, it ends as on a second signal."""
        try:
            await self.serve(sockets=[listener])
        except SystemExit:  # uvicorn's way of saying that the application did not start
            return COULD_NOT_START
        except asyncio.CancelledError:
            if self._lifecycle.draining and not self.started and self._main is not None:
                self._main.uncancel()  # it was us: a signal while the application was starting
                return self.status
            self.force_exit = True
            if self.started:
                await self.shutdown([listener])
            raise
        return self.status

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Begin to end; the second time: end now."""
        if self._lifecycle.draining:
            self.force_exit = True
            self.status = 128 + number
        else:
            log.info("stopping", signal=signal.Signals(number).name, running=len(self.server_state.tasks))
            self._lifecycle.draining = True
            self._ends_at = monotonic() + self._drain_s
            if number == signal.SIGINT:  # somebody at a keyboard, not a load balancer
                self._notice_s = 0.0
        self._woken.set()
        if not self.started and self._main is not None:
            self._main.cancel()

    def _pulled(self, leash: int) -> None:
        if not os.read(leash, 4096):
            asyncio.get_running_loop().remove_reader(leash)
            self._notice_s = 0.0  # there may be a new one already that wants the port
            if not self._lifecycle.draining:
                self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals our way; uvicorn closes the listener at once and ends with the signal's status."""
        self._main = asyncio.current_task()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        if self._leash is not None:
            loop.add_reader(self._leash, self._pulled, self._leash)
        try:
            yield
        finally:
            for number in (*_SIGNALS, signal.SIGHUP):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a reload that comes too late must not kill

    def _reload(self) -> None:
        if self._lifecycle.reload is not None:
            self._lifecycle.reload()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application. If it cannot, say why in one line; raises SystemExit then, as uvicorn does."""
        faults = _Faults()
        server_log = logging.getLogger("uvicorn.error")
        server_log.addHandler(faults)
        server_log.propagate = False
        try:
            await super().startup(sockets)
        except SystemExit:
            print(f"sluice: could not start: {faults.said}", file=sys.stderr)  # noqa: T201 - for whoever started us
            raise
        finally:
            server_log.propagate = True
            server_log.removeHandler(faults)
        gc.collect()
        gc.set_threshold(50_000, 20, 20)  # an exchange leaves no cycles; what others leave is few
        gc.freeze()  # word lists and code stay for life: no collection need walk them again
        self._tell_started()

    async def main_loop(self) -> None:
        """Serve until told to stop, and through the notice."""
        while not (self.should_exit or self._lifecycle.draining):
            await self.on_tick(0)  # the date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._woken.wait()
        self.config.encoded_headers.append((b"connection", b"close"))  # who keeps a connection looks for another
        await self.on_tick(0)
        now = monotonic()
        least, most = now + min(SHORT_NOTICE_S, self._notice_s), min(now + self._notice_s, self._ends_at)
        while not self.force_exit and (now := monotonic()) < most:
            if now >= least and not self.server_state.tasks and not self._lifecycle.watched():
                break
            await asyncio.sleep(_LOOK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let what runs end, cut off what does not, and stop the application."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while (state.connections or state.tasks) and not self.force_exit and monotonic() < self._ends_at:  # noqa: ASYNC110 - uvicorn's sets tell nobody
            await asyncio.sleep(_LOOK_S)
        if running := list(state.tasks):
            log.warning("drain_cut_short", running=len(running))
            for task in running:
                task.cancel()
            if ending := tuple(state.tasks):  # what ran in place has become a task by now
                await asyncio.wait(ending, timeout=_FORCED_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FORCED_S if self.force_exit else _CLEAN_UP_S):
                await self.lifespan.shutdown()
        log.info("stopped")


class _Faults(logging.Handler):
    """Hears why the application did not start: of a traceback the line with the reason."""

    said = "the application ended while it was starting"

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (fault := record.exc_info[1]):
            self.said = f"{type(fault).__name__}: {fault}"
            return
        for line in record.getMessage().splitlines():
            if found := _FAULT.fullmatch(line):
                self.said = found[1]
