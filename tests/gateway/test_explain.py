"""Whoever can explain itself is asked, where its entry in the chain would look at all."""

from __future__ import annotations

from typing import Any

from gateway.explain import Question, able, explained, lists
from gateway.pipeline import Link
from gateway.sdk import Listing, Plugin


class Explains(Plugin):
    lists = (Listing("a.txt", 3, "00ff"),)

    def explain(
        self, text: str, *, key: str | None = None, model: str | None = None, direction: str | None = None
    ) -> list[dict[str, Any]]:
        return [{"said": text, "key": key, "model": model, "direction": direction}]


def link(name: str, **options: Any) -> Link:
    return Link(name, Explains(None), **options)


def test_each_hit_names_its_plugin_and_mode() -> None:
    links = [Link("silent", Plugin(None)), link("words", shadow=True)]
    assert explained(links, Question("hi", direction="answer")) == [
        {"plugin": "words", "mode": "shadow", "said": "hi", "key": None, "model": None, "direction": "answer"}
    ]
    assert [each.name for each, _ in able(links)] == ["words"]


def test_an_entry_of_the_chain_for_others_says_nothing() -> None:
    links = [link("a", keys=frozenset(["team-a"])), link("m", models=frozenset(["m"])), link("all")]

    def asked(question: Question) -> list[str]:
        return [each["plugin"] for each in explained(links, question)]

    assert asked(Question("hi")) == ["a", "m", "all"]
    assert asked(Question("hi", key="team-b")) == ["m", "all"]
    assert asked(Question("hi", key="team-a", model="n")) == ["a", "all"]


def test_the_lists_of_a_chain_are_told_with_their_plugin() -> None:
    assert list(lists([Link("silent", Plugin(None)), link("words")])) == [
        {"plugin": "words", "list": "a.txt", "entries": 3, "version": "00ff"}
    ]
