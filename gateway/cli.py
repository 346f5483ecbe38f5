"""The command: one function for each subcommand, one clear line for each thing that goes wrong.

Exit codes: 0 fine, 2 wrong usage or configuration, 3 could not start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gateway import __version__

if TYPE_CHECKING:  # sluice --help must not wait for these
    from gateway.pipeline import Link
    from gateway.settings import Settings

WRONG = 2
COULD_NOT_START = 3
INTERRUPTED = 130
#: The checkout, where make has put the engine's environment.
CHECKOUT = Path(__file__).parents[1]


class Stopped(Exception):
    """The command cannot go on: what to say, in lines, and the exit code."""

    def __init__(self, lines: Sequence[str], code: int = WRONG) -> None:
        super().__init__("\n".join(lines))
        self.code = code


class Parser(argparse.ArgumentParser):
    """Tells wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        self.exit(WRONG, f"{self.prog}: {message} ({self.prog} --help)\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a text asked about may be anything
    arguments = _parsed(list(sys.argv[1:] if words is None else words))
    try:
        code: int = arguments.run(arguments)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # sluice plugins | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:
        from gateway.settings import ConfigurationError

        if isinstance(fault, ConfigurationError):
            print(fault, file=sys.stderr)
            return WRONG
        if sys.flags.dev_mode:
            raise
        told = " ".join(f"{type(fault).__name__}: {fault}".split())
        print(f"sluice: {told} (a bug of ours: python -X dev -m gateway … shows where)", file=sys.stderr)
        return COULD_NOT_START
    return code


def _parsed(words: list[str]) -> argparse.Namespace:
    engine_args: list[str] = []
    if words[:1] == ["up"] and "--" in words:
        at = words.index("--")
        words, engine_args = words[:at], words[at + 1 :]
    arguments = _parser().parse_args(words)
    arguments.engine_args = engine_args
    return arguments


def _parser() -> Parser:
    parser = Parser(
        prog="sluice", description="A thin, OpenAI-compatible gateway in front of vLLM.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, summary: str | None, *, under: Any = commands, config: bool = True) -> Parser:
        listed = {} if summary is None else {"help": summary}
        added: Parser = under.add_parser(name, description=summary, allow_abbrev=False, **listed)
        added.set_defaults(run=run)
        if config:
            added.add_argument(
                "-c", "--config", metavar="FILE", type=Path, help="the configuration; else SLUICE_CONFIG"
            )
        return added

    up_ = command("up", up, "Start a vLLM and the gateway in front of it; flags for vLLM follow --.")
    up_.add_argument("--model", metavar="MODEL", help="a folder or a hub's name (default: SmolLM2-135M-Instruct)")
    up_.add_argument("-tp", "--tensor-parallel", metavar="N", type=int, help="devices to split the model over")
    serve_ = command("serve", serve, "The gateway alone, in front of engines that run already.")
    serve_.add_argument("--workers", metavar="N", help="processes that serve")
    worker_ = command("worker", worker, None)
    worker_.add_argument("--workers")
    worker_.add_argument("--worker", type=int, required=True)
    worker_.add_argument("--descriptor", type=int, required=True)
    worker_.add_argument("--metrics", type=Path, required=True)
    for each in (up_, serve_, worker_):
        each.add_argument("--host", metavar="ADDRESS", help="address to listen on")
        each.add_argument("--port", metavar="PORT", help="port to listen on")
    command("check", check, "Check configuration, plugins and word lists; one line for each fault.")
    command("plugins", plugins, "List the installed plugins and their options.", config=False)
    keys = parser_of(commands, "keys", "Keys for callers.")
    new = command(
        "new", keys_new, "Make a key: print it once, and its line for the configuration.", under=keys, config=False
    )
    new.add_argument("--name", required=True, help="whose it is; logs and metrics show it")
    words = parser_of(commands, "words", "The word lists.")
    test = command("test", words_test, "Say which rule fires on a text, where, and why.", under=words)
    test.add_argument("text", metavar="TEXT", help="the text; - reads standard input")
    return parser


def parser_of(commands: Any, name: str, summary: str) -> Any:
    """Add a command that only has commands of its own."""
    added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    return added.add_subparsers(metavar="COMMAND", required=True)


def up(arguments: argparse.Namespace) -> int:
    """Start an engine, and the gateway in front of it."""
    from functools import partial

    import uvloop

    from gateway import serving
    from gateway.app import create_app
    from gateway.engine.up import CannotStart, EmbeddedEngine, Wishes, python_of
    from gateway.engine.up import up as run_both
    from gateway.settings import Embedded, environment, load

    environ = dict(environment())
    file = arguments.config or Path(environ.get("SLUICE_CONFIG") or _shipped())
    read = partial(load, file, environ, _server(arguments))
    engine_section = read(Embedded("http://127.0.0.1:1", "unknown")).engine
    parallel = engine_section.tensor_parallel
    wishes = Wishes(
        model=arguments.model or engine_section.model,
        tensor_parallel=arguments.tensor_parallel or (None if parallel == "auto" else parallel),
        max_model_len=engine_section.max_model_len,
        gpu_memory_utilization=engine_section.gpu_memory_utilization,
        args=(*engine_section.args, *arguments.engine_args),
    )
    home = CHECKOUT if (CHECKOUT / "Makefile").exists() else Path.cwd()
    engine = EmbeddedEngine(
        wishes, python=python_of(home / ".engine-venv"), cache=home / ".cache/models", environ=environ
    )
    called = engine.served_model if arguments.model else None
    settings = _warned(read(Embedded(engine.url, engine.served_model, engine.api_key, called)))
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
    settings = _warned(_settings(arguments))  # before the imports that take longer
    from functools import partial

    from gateway import serving
    from gateway.app import create_app
    from gateway.registry import build_chain

    server = settings.server
    if server.workers > 1:  # faults are told once, not by each worker
        build_chain(settings.chain, settings.base, settings.source)
    given = [f"--{name}={value}" for name, value in _server(arguments).items()]
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

    settings = _settings(arguments)
    make_app = partial(create_app, settings, metrics_dir=arguments.metrics, worker=arguments.worker)
    return serving.serve_worker(make_app, arguments.descriptor, drain_s=settings.server.drain_s)


def check(arguments: argparse.Namespace) -> int:
    """Validate everything that can be validated without a socket."""
    settings, links = _built(arguments)
    chain = ", ".join(link.name for link in links) or "none"
    counts = (
        ("model", len(settings.models)),
        ("engine", sum(len(model.engines) for model in settings.models)),
        ("key", len(settings.keys)),
    )
    told = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts)
    print(f"{settings.file or 'environment'}: fine: {told}; chain: {chain}")
    return 0


def plugins(arguments: argparse.Namespace) -> int:
    """Print what is installed."""
    del arguments
    from gateway.registry import catalogue

    for plugin in catalogue():
        print(f"{plugin.name} ({plugin.package}): {plugin.fault or plugin.summary}")
        if plugin.hooks:
            print(f"  hooks: {', '.join(plugin.hooks)}")
        for option in plugin.options:
            print(f"  {option.name}: {option.kind} ({option.default}) {option.description}".rstrip())
        print()
    return 0


def keys_new(arguments: argparse.Namespace) -> int:
    """Make a key."""
    import hashlib
    import json
    import secrets

    from pydantic import ValidationError

    from gateway.settings import Key

    key = f"sk-sluice-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    try:
        Key(name=arguments.name, sha256=digest)
    except ValidationError as error:
        raise Stopped([f"sluice keys new: --name: {error.errors()[0]['ctx']['error']}"]) from None
    print(f"The key, shown this once:\n\n  {key}\n\nIts line under keys: in the configuration:\n")
    print(f'  - {{name: {json.dumps(arguments.name, ensure_ascii=False)}, sha256: "{digest}"}}')
    return 0


def words_test(arguments: argparse.Namespace) -> int:
    """Ask every plugin of the chain that can explain itself."""
    _, links = _built(arguments)
    text = sys.stdin.read() if arguments.text == "-" else arguments.text
    able = [(link.name, explain) for link in links if (explain := getattr(link.plugin, "explain", None))]
    if not able:
        raise Stopped(["sluice words test: no plugin of the chain has words: add sensitive_words to it"])
    for name, explain in able:
        lines = list(explain(text))
        print(*(f"{name}: {line}" for line in lines or ["no rule fires"]), sep="\n")
    return 0


def _server(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(arguments, name, None) for name in ("host", "port", "workers")}
    return {name: value for name, value in given.items() if value is not None}


def _settings(arguments: argparse.Namespace) -> Settings:
    from gateway.settings import environment, load

    return load(arguments.config, dict(environment()), _server(arguments))


def _warned(settings: Settings) -> Settings:
    for line in settings.warnings:
        print(line, file=sys.stderr)
    return settings


def _built(arguments: argparse.Namespace) -> tuple[Settings, list[Link]]:
    import structlog

    from gateway.registry import build_chain

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    settings = _warned(_settings(arguments))
    return settings, build_chain(settings.chain, settings.base, settings.source)


def _shipped() -> Path:
    """Return the default configuration: in a wheel beside the code, in a checkout at its top."""
    wheel = Path(__file__).parent / "shipped" / "sluice.yaml"
    return wheel if wheel.exists() else CHECKOUT / "sluice.yaml"


def _try_it(settings: Settings) -> str:
    server, name = settings.server, settings.models[0].name
    host = "localhost" if settings.keys or ":" in server.host else server.host
    key = " -H 'Authorization: Bearer YOUR-KEY'" if settings.keys else ""
    return (
        f"\n{name} is ready. Try it:\n\n"
        f"  curl http://{host}:{server.port}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n"
        f'    -d \'{{"model": "{name}", "stream": true, "messages": [{{"role": "user", "content": "Say hello."}}]}}\'\n'
    )
