"""The commands that look at what is configured and what is installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gateway.cli.command import COULD_NOT_START, WRONG, Commands, Stopped, built

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.engine.tokenizer import Tokenizer
    from gateway.settings import Settings


def add(commands: Commands) -> None:
    """Declare check and plugins."""
    check_ = commands.add("check", check, "Check configuration, plugins and word lists; one line for each fault.")
    check_.add_argument(
        "--engine",
        action="store_true",
        help="ask the engines too: do they serve the models, and make the prompts that the models' own files make?",
    )
    commands.add("plugins", plugins, "List the installed plugins and their options.", config=False)


def check(arguments: argparse.Namespace) -> int:
    """Validate everything that can be validated without a socket; with --engine what only the engines can say too."""
    from gateway.registry import read_tokenizers

    settings, links = built(arguments)
    tokenizers = read_tokenizers(settings.models, settings.source)
    if tokenizers:
        from gateway.engine.guard import doubts

        for line in (line for tokenizer in tokenizers.values() for line in doubts(tokenizer)):
            print(line, file=sys.stderr)
    if arguments.engine:
        _ask_engines(settings, tokenizers)
    chain = ", ".join(link.name for link in links) or "none"
    counts = (
        ("model", len(settings.models)),
        ("engine", sum(len(model.engines) for model in settings.models)),
        ("key", len(settings.keys)),
    )
    told = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts)
    print(f"{settings.file or 'environment'}: fine: {told}; chain: {chain}")
    return 0


def _ask_engines(settings: Settings, tokenizers: Mapping[Path, Tokenizer]) -> None:
    """Ask every engine of every model. Raises Stopped: 2 where one is not what was configured, 3 where one is away."""
    import asyncio

    from gateway.engine.guard import examine
    from gateway.upstream.client import Origin, Pool
    from gateway.upstream.engine import Engine

    async def all_of_them() -> tuple[list[str], list[str]]:
        wrong: list[str] = []
        away: list[str] = []
        for model in settings.models:
            for entry in model.engines:
                secret = entry.api_key.get_secret_value() if entry.api_key else None
                pool = Pool(Origin.parse(entry.url), connect_s=settings.timeouts.connect_s)
                engine = Engine(entry.name, pool, served_model=entry.served_model, api_key=secret)
                try:
                    found = await examine(tokenizers[model.tokenizer] if model.tokenizer else None, engine, model.name)
                finally:
                    await pool.close()
                (away if found is None else wrong).extend(
                    f"{entry.name}: {line}" for line in (["does not answer"] if found is None else found)
                )
        return wrong, away

    wrong, away = asyncio.run(all_of_them())
    if wrong or away:
        raise Stopped([*away, *wrong], WRONG if wrong else COULD_NOT_START)


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
