"""The commands for the word lists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.command import WRONG, Commands, Stopped, built

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from gateway.settings import Settings


def add(commands: Commands) -> None:
    """Declare words test and words compile."""
    words = commands.group("words", "The word lists.")
    test = words.add("test", words_test, "Say which rule fires on a text, on which span, and through which fold.")
    test.add_argument("text", metavar="TEXT", help="the text; - reads standard input")
    test.add_argument("--key", metavar="NAME", help="as for the key of this name; else for whichever")
    test.add_argument("--model", metavar="NAME", help="as for this model; else for whichever")
    test.add_argument("--direction", choices=["request", "answer"], help="only in requests, or only in answers")
    test.add_argument("--json", action="store_true", help="as one JSON object")
    check = words.add("compile", words_compile, "Check word lists: faults, and what is odd in them.")
    check.add_argument("files", metavar="FILE", nargs="*", type=Path, help="word files; else the configuration's lists")
    check.add_argument("--encoding", default="utf-8", help="of the files (default: utf-8)")
    check.add_argument("--strict", action="store_true", help="exit code 2 for warnings too")
    check.add_argument("--plugin", metavar="NAME", default="sensitive_words", help="whose files they are")
    check.add_argument("--json", action="store_true", help="as one JSON object, with every finding")


def words_test(arguments: argparse.Namespace) -> int:
    """Ask every plugin of the chain that can explain itself."""
    settings, links = built(arguments)
    from gateway.explain import Question, able, explained, lists

    text = sys.stdin.read() if arguments.text == "-" else arguments.text
    if not able(links):
        raise Stopped(["sluice words test: no plugin of the chain has words: add sensitive_words to it"])
    question = Question(text, _key(arguments.key, settings), _model(arguments.model, settings), arguments.direction)
    hits = explained(links, question)
    if arguments.json:
        _print_json({"hits": hits, "lists": list(lists(links))})
        return 0
    told = [f"{hit['plugin']}{' (shadow)' if hit['mode'] == 'shadow' else ''}: {hit['said']}" for hit in hits]
    print("\n".join(told) or "no rule fires")
    return 0


def words_compile(arguments: argparse.Namespace) -> int:
    """Ask the plugin what it thinks of word files, or every plugin of the chain what it thinks of its lists."""
    if arguments.files:
        told = [_review_of_files(arguments)]
    else:
        _, links = built(arguments)
        told = [review() for link in links if (review := getattr(link.plugin, "review", None))]
        if not told:
            raise Stopped(["sluice words compile: no plugin of the chain has words: add sensitive_words to it"])
    together = {part: [each for one in told for each in one[part]] for part in ("said", "files", "findings")}
    if arguments.json:
        _print_json({part: together[part] for part in ("files", "findings")})
    else:
        print(*together["said"], sep="\n")
    faults = [each for each in together["findings"] if each["severity"] == "fault"]
    return WRONG if faults or (arguments.strict and together["findings"]) else 0


def _review_of_files(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from gateway.registry import Fault, plugin_class

    try:
        review = getattr(plugin_class(arguments.plugin), "review_files", None)
    except Fault as fault:
        raise Stopped([f"sluice words compile: {fault}"]) from None
    if review is None:
        raise Stopped([f"sluice words compile: the plugin {arguments.plugin!r} has no word files"])
    try:
        "".encode(arguments.encoding)
    except LookupError:
        raise Stopped([f"sluice words compile: --encoding: {arguments.encoding!r} is not known; try gb18030"]) from None
    reviewed: Mapping[str, Any] = review(arguments.files, arguments.encoding)
    return reviewed


def _key(name: str | None, settings: Settings) -> str | None:
    if name is not None and name not in {key.name for key in settings.keys}:
        raise Stopped([f"sluice words test: --key: there is no key {name!r} in the configuration"])
    return name


def _model(name: str | None, settings: Settings) -> str | None:
    """Return a model's own name, also for an alias."""
    from gateway.settings import ANY_MODEL

    names = {called: model.name for model in settings.models for called in (model.name, *model.aliases)}
    if name is None or ANY_MODEL in names:
        return name
    if name not in names:
        raise Stopped([f"sluice words test: --model: there is no model {name!r} in the configuration"])
    return names[name]


def _print_json(told: Mapping[str, Any]) -> None:
    import json

    print(json.dumps(told, ensure_ascii=False, indent=2))
