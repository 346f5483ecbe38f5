"""Serving: binds the socket and runs the application behind it, in this process or in several workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence

import structlog
from starlette.types import ASGIApp

from gateway import __version__
from gateway.ops import Lifecycle
from gateway.serving.server import BACKLOG, COULD_NOT_START, Server
from gateway.serving.workers import Workers
from gateway.telemetry.log import configure
from gateway.telemetry.output import Output

__all__ = ["COULD_NOT_START", "CannotListen", "bind", "serve", "serve_here", "serve_worker"]

log = structlog.get_logger()

MakeApp = Callable[[Lifecycle, Output], ASGIApp]
#: Two for each stream that is open; the usual soft limit of 1024 ends at 500 streams.
OPEN_FILES = 1 << 16


class CannotListen(Exception):
    """The address cannot be had; the message is one line with the mend."""


def bind(host: str, port: int) -> socket.socket:
    """Listen at an address, "::" for IPv4 too; port 0 is a free one. Raises CannotListen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as fault:
        reason = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else str(fault)
        raise CannotListen(
            f"cannot listen on {_authority(host, port)}: {reason}. Choose another with --host and --port."
        ) from None


def serve(
    make_app: MakeApp,
    host: str,
    port: int,
    *,
    drain_s: float,
    workers: int = 1,
    worker_command: Sequence[str] = (),
) -> int:
    """Serve until a signal; return the exit status: 0, 3 (the application could not start), 128 and a second signal's
    number. Raises CannotListen, and what ``make_app`` raises.

    With several ``workers`` each runs ``worker_command``, with ``--descriptor N --worker N --metrics DIRECTORY`` added,
    which must come to ``serve_worker``.
    """
    with bind(host, port) as listener, _process() as output:
        if workers > 1:
            _announce(listener, workers=workers)
            return asyncio.run(Workers(worker_command, listener, workers).run())
        return _server(make_app, output, drain_s, listener).run_on(listener)


async def serve_here(make_app: MakeApp, host: str, port: int, *, drain_s: float) -> int:
    """Do as ``serve``, one worker, in the event loop that runs already."""
    with bind(host, port) as listener, _process() as output:
        return await _server(make_app, output, drain_s, listener).serve_on(listener)


def serve_worker(make_app: MakeApp, descriptor: int, *, drain_s: float) -> int:
    """Serve as one of several, on a socket that the parent has bound; ends when the parent is gone."""
    with socket.socket(fileno=descriptor) as listener, _process() as output:
        lifecycle = Lifecycle()
        server = Server(make_app(lifecycle, output), lifecycle, drain_s=drain_s, leash=0)
        return server.run_on(listener)


def _server(make_app: MakeApp, output: Output, drain_s: float, listener: socket.socket) -> Server:
    lifecycle = Lifecycle()
    app = make_app(lifecycle, output)
    return Server(app, lifecycle, drain_s=drain_s, started=lambda: _announce(listener, workers=1))


@contextlib.contextmanager
def _process() -> Generator[Output]:
    """Make this process one that serves: many files, JSON logs, and no death by a SIGHUP that comes too early."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    output = Output()
    configure(output)
    try:
        yield output
    finally:
        output.close()


def _announce(listener: socket.socket, *, workers: int) -> None:
    """Say where we listen: to people on standard error, to machines in the log."""
    address = f"http://{_authority(*listener.getsockname()[:2])}"
    print(f"Sluice {__version__} listens on {address}", file=sys.stderr, flush=True)  # noqa: T201 - for people
    log.info("started", address=address, workers=workers, version=__version__)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
