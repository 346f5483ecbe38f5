"""What the commands share: how they are declared, how they end, how they read the configuration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # sluice --help must not wait for these
    from gateway.pipeline import Link
    from gateway.settings import Settings

WRONG = 2
COULD_NOT_START = 3
INTERRUPTED = 130
#: The checkout, where make has put the engine's environment.
CHECKOUT = Path(__file__).parents[2]

Run = Callable[[argparse.Namespace], int]


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


class Commands:
    """Where commands are added: ``sluice`` itself, or one of its commands that only has commands of its own."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._under: Any = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(self, name: str, run: Run, summary: str | None, *, config: bool = True) -> Parser:
        """Add a command; without a summary it is listed nowhere. ``config``: it takes -c."""
        listed = {} if summary is None else {"help": summary}
        added: Parser = self._under.add_parser(name, description=summary, allow_abbrev=False, **listed)
        added.set_defaults(run=run)
        if config:
            added.add_argument(
                "-c", "--config", metavar="FILE", type=Path, help="the configuration; else SLUICE_CONFIG"
            )
        return added

    def group(self, name: str, summary: str) -> Commands:
        """Add a command that only has commands of its own."""
        return Commands(self._under.add_parser(name, help=summary, description=summary, allow_abbrev=False))


def server_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was said of the server on the command line."""
    given = {name: getattr(arguments, name, None) for name in ("host", "port", "workers")}
    return {name: value for name, value in given.items() if value is not None}


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Read the configuration. Raises ConfigurationError."""
    from gateway.settings import environment, load

    return load(arguments.config, dict(environment()), server_options(arguments))


def warned(settings: Settings) -> Settings:
    """Tell the configuration's warnings."""
    for line in settings.warnings:
        print(line, file=sys.stderr)
    return settings


def built(arguments: argparse.Namespace) -> tuple[Settings, list[Link]]:
    """Read the configuration and build its chain. Raises ConfigurationError."""
    import structlog

    from gateway.registry import chain_of

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    settings = warned(settings_of(arguments))
    return settings, chain_of(settings)


def shipped() -> Path:
    """Return the default configuration: in a wheel beside the code, in a checkout at its top."""
    wheel = Path(__file__).parents[1] / "shipped" / "sluice.yaml"
    return wheel if wheel.exists() else CHECKOUT / "sluice.yaml"
