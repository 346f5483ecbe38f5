"""The command: each group of subcommands has its module, and each thing that goes wrong its one clear line.

Exit codes: 0 fine, 2 wrong usage or configuration, 3 could not start.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from gateway import __version__
from gateway.cli import audit, check, compare, doctor, engines, keys, plan, profile, running, why, words
from gateway.cli.command import CHECKOUT, COULD_NOT_START, INTERRUPTED, WRONG, Commands, Parser, Stopped

__all__ = ["CHECKOUT", "COULD_NOT_START", "INTERRUPTED", "WRONG", "Stopped", "main"]

#: In the order in which help lists them.
GROUPS = (running, check, keys, words, engines, audit, plan, doctor, why, compare, profile)


def main(given: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a text asked about may be anything
    arguments = _parsed(list(sys.argv[1:] if given is None else given))
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


def _parsed(given: list[str]) -> argparse.Namespace:
    engine_args: list[str] = []
    if given[:1] == ["up"] and "--" in given:
        at = given.index("--")
        given, engine_args = given[:at], given[at + 1 :]
    arguments = _parser().parse_args(given)
    arguments.engine_args = engine_args
    return arguments


def _parser() -> Parser:
    parser = Parser(
        prog="sluice", description="A thin, OpenAI-compatible gateway in front of vLLM.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = Commands(parser)
    for group in GROUPS:
        group.add(commands)
    return parser
