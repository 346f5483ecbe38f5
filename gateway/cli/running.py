"""The commands that serve: an engine and the gateway, the gateway alone, one worker of several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.command import (
    CHECKOUT,
    COULD_NOT_START,
    Commands,
    Stopped,
    server_options,
    settings_of,
    shipped,
    warned,
)

if TYPE_CHECKING:  # sluice --help must not wait for these
    import argparse

    from gateway.settings import Settings


def add(commands: Commands) -> None:
    """Declare up, serve and worker."""
    up_ = commands.add("up", up, "Start a vLLM and the gateway in front of it; flags for vLLM follow --.")
    up_.add_argument("--model", metavar="MODEL", help="a folder or a hub's name (default: SmolLM2-135M-Instruct)")
    up_.add_argument("-tp", "--tensor-parallel", metavar="N", type=int, help="devices to split the model over")
    up_.add_argument("--quantization", metavar="METHOD", help="how weights are quantised (default: as the model says)")
    serve_ = commands.add("serve", serve, "The gateway alone, in front of engines that run already.")
    serve_.add_argument("--workers", metavar="N", help="processes that serve")
    worker_ = commands.add("worker", worker, None)
    worker_.add_argument("--workers")
    worker_.add_argument("--worker", type=int, required=True)
    worker_.add_argument("--descriptor", type=int, required=True)
    worker_.add_argument("--metrics", type=Path, required=True)
    for each in (up_, serve_, worker_):
        each.add_argument("--host", metavar="ADDRESS", help="address to listen on")
        each.add_argument("--port", metavar="PORT", help="port to listen on")


def up(arguments: argparse.Namespace) -> int:
    """Start an engine, and the gateway in front of it."""
    from functools import partial

    import uvloop

    from gateway import serving
    from gateway.app import create_app
    from gateway.engine.prepare import tokenizer_of
    from gateway.engine.up import CannotStart, EmbeddedEngine, Wishes, python_of
    from gateway.engine.up import up as run_both
    from gateway.settings import Embedded, environment, load

    if arguments.model is not None and not arguments.model.strip():
        raise Stopped(["sluice up: --model is empty: a folder or a hub's name"])
    if arguments.tensor_parallel is not None and arguments.tensor_parallel < 1:
        raise Stopped(["sluice up: --tensor-parallel has to be more than 0"])
    environ = dict(environment())
    file = arguments.config or Path(environ.get("SLUICE_CONFIG") or shipped())
    read = partial(load, file, environ, server_options(arguments))
    engine_section = read(Embedded("http://127.0.0.1:1", "unknown")).engine
    parallel = engine_section.tensor_parallel
    quantization = ("--quantization", arguments.quantization) if arguments.quantization else ()
    wishes = Wishes(
        model=arguments.model or engine_section.model,
        tensor_parallel=arguments.tensor_parallel or (None if parallel == "auto" else parallel),
        max_model_len=engine_section.max_model_len,
        gpu_memory_utilization=engine_section.gpu_memory_utilization,
        args=(*engine_section.args, *quantization, *arguments.engine_args),
    )
    home = CHECKOUT if (CHECKOUT / "Makefile").exists() else Path.cwd()
    try:
        engine = EmbeddedEngine(
            wishes, python=python_of(home / ".engine-venv"), cache=home / ".cache/models", environ=environ
        )
    except CannotStart as fault:
        raise Stopped([f"sluice up: {fault}"]) from None
    called = engine.served_model if arguments.model else None
    own = tokenizer_of(wishes.model, home / ".cache/models")
    settings = warned(read(Embedded(engine.url, engine.served_model, engine.api_key, called, own)))
    server = settings.server
    gateway = partial(
        serving.serve_here, partial(create_app, settings), server.host, server.port, drain_s=server.drain_s
    )
    try:
        at = (server.host, server.port)
        return uvloop.run(run_both(engine, gateway, at=at, on_ready=lambda: print(_try_it(settings), flush=True)))
    except serving.CannotListen as fault:
        raise Stopped([f"sluice: {fault}"], COULD_NOT_START) from None
    except CannotStart as failure:
        raise Stopped([*failure.log, f"sluice: {failure}"], COULD_NOT_START) from None


def serve(arguments: argparse.Namespace) -> int:
    """Serve in front of engines that run already."""
    settings = warned(settings_of(arguments))  # before the imports that take longer
    from functools import partial

    from gateway import serving
    from gateway.app import create_app
    from gateway.registry import chain_of

    server = settings.server
    if server.workers > 1:  # faults are told once, not by each worker
        chain_of(settings)
    given = [f"--{name}={value}" for name, value in server_options(arguments).items()]
    config = [f"--config={settings.file}"] if settings.file else []
    try:
        return serving.serve(
            partial(create_app, settings),
            server.host,
            server.port,
            drain_s=server.drain_s,
            workers=server.workers,
            worker_command=[sys.executable, "-m", "gateway", "worker", *config, *given],
        )
    except serving.CannotListen as fault:
        raise Stopped([f"sluice: {fault}"], COULD_NOT_START) from None


def worker(arguments: argparse.Namespace) -> int:
    """Serve as one of several workers: what ``serve`` starts, not people."""
    from functools import partial

    from gateway import serving
    from gateway.app import create_app

    settings = settings_of(arguments)
    make_app = partial(create_app, settings, metrics_dir=arguments.metrics, worker=arguments.worker)
    return serving.serve_worker(make_app, arguments.descriptor, drain_s=settings.server.drain_s)


def _try_it(settings: Settings) -> str:
    server, name = settings.server, settings.models[0].name
    host = "localhost" if settings.keys or ":" in server.host else server.host
    key = " -H 'Authorization: Bearer YOUR-KEY'" if settings.keys else ""
    return (
        f"\n{name} is ready. Try it:\n\n"
        f"  curl http://{host}:{server.port}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n"
        f'    -d \'{{"model": "{name}", "stream": true, "messages": [{{"role": "user", "content": "Say hello."}}]}}\'\n'
    )
