"""Asks the plugins of a chain which of their rules fire on a text, and why: what an operator asks, never a caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.pipeline import Link


class Question(NamedTuple):
    """A text, and whose it is: a key's and a model's name, and ``request`` or ``answer``. None: whichever."""

    text: str
    key: str | None = None
    model: str | None = None
    direction: str | None = None


Explain = Callable[..., Iterable[Mapping[str, Any]]]
"""A plugin's ``explain(text, *, key, model, direction)``: an object for each hit, ``said`` in one line."""


def able(links: Iterable[Link]) -> list[tuple[Link, Explain]]:
    """Return the links whose plugins can explain themselves."""
    return [(link, explain) for link in links if (explain := getattr(link.plugin, "explain", None))]


def explained(links: Iterable[Link], question: Question) -> list[dict[str, Any]]:
    """Ask them all; each object also names its plugin and the mode that it runs in. It may take its time."""
    return [
        {"plugin": link.name, "mode": "shadow" if link.shadow else "enforce", **said}
        for link, explain in able(links)
        if _applies(link, question)
        for said in explain(question.text, key=question.key, model=question.model, direction=question.direction)
    ]


def _applies(link: Link, question: Question) -> bool:
    wanted = ((link.keys, question.key), (link.models, question.model))
    return all(names is None or name is None or name in names for names, name in wanted)


def lists(links: Sequence[Link]) -> Iterator[dict[str, Any]]:
    """Yield the lists that the plugins of a chain go by."""
    for link in links:
        for listing in link.plugin.lists:
            yield {"plugin": link.name, "list": listing.name, "entries": listing.entries, "version": listing.version}
