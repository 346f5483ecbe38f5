"""The commands that look at what is configured and what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.cli.command import Commands, built

if TYPE_CHECKING:
    import argparse


def add(commands: Commands) -> None:
    """Declare check and plugins."""
    commands.add("check", check, "Check configuration, plugins and word lists; one line for each fault.")
    commands.add("plugins", plugins, "List the installed plugins and their options.", config=False)


def check(arguments: argparse.Namespace) -> int:
    """Validate everything that can be validated without a socket."""
    settings, links = built(arguments)
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
