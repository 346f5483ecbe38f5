"""Finds the JSON in an answer: behind thoughts, between other words, inside a code fence."""

from __future__ import annotations

import re
from collections.abc import Callable

from plugins.json_answer.mending import Broken, mend
from plugins.json_answer.schema import decoded

_TRIES = 64  # brackets of prose that are looked at
_BRACKET = re.compile(r"[\[{]")
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w+-]*\s*\Z")

Fault = Callable[[str], "str | None"]
"""Says what is wrong with a JSON text, None where nothing is."""


def find(text: str, fault: Fault) -> str:
    """Return the one JSON text in an answer that has no fault. Raises Broken with what is wrong.

    Where several different ones would do, the one in a code fence is meant; if that does not decide it, none is taken.
    """
    start = _behind_thoughts(text)
    found = _candidates(text, start)
    if not found:
        raise Broken("there is no JSON in it")
    faults = [(fault(json), json, fenced) for json, fenced in found]
    good = [(text, fenced) for wrong, text, fenced in faults if wrong is None]
    if not good:
        raise Broken(str(faults[-1][0]))
    for those in (good, [each for each in good if each[1]]):
        if those and all(decoded(text) == decoded(those[0][0]) for text, _ in those):
            return those[0][0]
    raise Broken("there are several JSON texts in it")


def _behind_thoughts(text: str) -> int:
    """Return where the answer proper begins. Raises Broken where thoughts do not end."""
    at = 0
    bracket = _BRACKET.search(text)
    while True:
        thought = _THOUGHT.search(text, at)
        if bracket is not None and bracket.start() < at:
            bracket = _BRACKET.search(text, at)
        if thought is None or (bracket is not None and bracket.start() < thought.start()):
            break
        end = _THOUGHT_END.search(text, thought.end())
        if end is None:
            raise Broken("it is cut off inside the thoughts", cut_off=True)
        at = end.end()
    orphan = _THOUGHT_END.search(text, at)  # some templates open the thoughts in the prompt
    if orphan is not None and (thought is None or orphan.start() < thought.start()):
        at = orphan.end()
    return at


def _candidates(text: str, at: int) -> list[tuple[str, bool]]:
    """Return every array and object that stands by itself, and whether in a fence; raises Broken.

    Brackets of prose are passed over: those behind which nothing of JSON comes. What begins as JSON and is broken
    or cut off spoils the whole, for a part of it must not be taken for the answer.
    """
    found: list[tuple[str, bool]] = []
    for _ in range(_TRIES):
        bracket = _BRACKET.search(text, at)
        if bracket is None:
            break
        at = bracket.start()
        fenced = _FENCE.search(text[max(0, at - 80) : at]) is not None
        try:
            json, at = mend(text, at)
        except Broken as broken:
            if broken.cut_off or (broken.begun and not found):
                raise
            at += 1
        else:
            found.append((json, fenced))
    return found
