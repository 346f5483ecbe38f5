"""The commands for the word lists."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gateway.cli.command import Commands, Stopped, built

if TYPE_CHECKING:
    import argparse


def add(commands: Commands) -> None:
    """Declare words test."""
    words = commands.group("words", "The word lists.")
    test = words.add("test", words_test, "Say which rule fires on a text, where, and why.")
    test.add_argument("text", metavar="TEXT", help="the text; - reads standard input")


def words_test(arguments: argparse.Namespace) -> int:
    """Ask every plugin of the chain that can explain itself."""
    _, links = built(arguments)
    text = sys.stdin.read() if arguments.text == "-" else arguments.text
    able = [(link.name, explain) for link in links if (explain := getattr(link.plugin, "explain", None))]
    if not able:
        raise Stopped(["sluice words test: no plugin of the chain has words: add sensitive_words to it"])
    for name, explain in able:
        lines = list(explain(text))
        print(*(f"{name}: {line}" for line in lines or ["no rule fires"]), sep="\n")
    return 0
