"""Logprobs repeat the text: what is held back, masked or blocked there is so here."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.protocol.numbers import decoded

Edits = Sequence[tuple[int, int, str]]

#: What some engines write is no JSON; -9999 is vLLM's own floor of a log probability.
CONSTANTS = {"-Infinity": -9999.0, "Infinity": 9999.0, "NaN": None}
#: Behind the end of whatever logprobs go on with behind a text.
END = sys.maxsize

is_silent = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]").fullmatch  # tokens that no text repeats: <|im_end|>, </think>


def in_step(logprobs: bytes | msgspec.Raw, text: str) -> bool:
    """Say whether a chunk's logprobs are those of its text; where an engine holds text back they are ahead of it."""
    return _in_step(decoded(logprobs), text)


def _in_step(logprobs: Any, text: str) -> bool:
    tokens = _tokens(logprobs)
    if not text:
        return not tokens
    said = sum(len(token.replace("\ufffd", "")) for token in tokens if not is_silent(token))
    return said <= len(text)


def _tokens(logprobs: Any) -> list[str]:
    if not isinstance(logprobs, dict):
        return []
    if "tokens" in logprobs:
        return [str(token) for token in logprobs["tokens"] or ()]
    return [str(entry.get("token", "")) for name in _LISTS for entry in logprobs.get(name) or ()]


_LISTS = ("content", "refusal")


class LogprobQueue:
    """The logprobs (and token ids) of one choice's chunks whose text has not all been shown, in order.

    Those that are ahead of their text wait until it has caught up. Positions are code points of the choice's original
    text.
    """

    __slots__ = ("_ahead", "_begun", "_edits", "_text", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, str, Any, Any]] = []  # start, end, text, logprobs, token ids
        self._edits: list[tuple[int, int, str]] = []
        self._ahead: tuple[Any, Any] = (None, None)
        self._text, self._begun = "", 0  # what was said since those ahead began, and where

    @property
    def empty(self) -> bool:
        """Is nothing waiting?"""
        return not self._waiting and self._ahead == (None, None)

    def feed(
        self,
        logprobs: bytes | msgspec.Raw,
        token_ids: bytes | msgspec.Raw,
        text: str,
        fed: int,
        told: int,
        edits: Edits,
    ) -> tuple[Any, Any]:
        """Take one chunk's logprobs, whose ``text`` ends at ``fed``; return logprobs and ids to show up to ``told``."""
        if self._ahead == (None, None):
            self._text, self._begun = "", fed - len(text)
        entries, ids = self._ahead
        self._ahead = (
            _joined(entries, decoded(logprobs) or None),
            _joined(ids, decoded(token_ids) or None),
        )
        self._text += text
        if _in_step(self._ahead[0], self._text):
            self._caught_up(fed)
        return self.release(told, edits, None)

    def _caught_up(self, fed: int) -> None:
        self._waiting.append((self._begun, fed, self._text, *self._ahead))
        self._ahead, self._text = (None, None), ""

    def finish(
        self, fed: int, told: int, edits: Edits, before: tuple[Any, Any] | None, *, hidden: bool
    ) -> tuple[Any, Any]:
        """The text has ended; ``hidden``: something of the choice is not shown as it was said."""
        if self._ahead != (None, None):
            if hidden:
                self._ahead = (all_masked(self._ahead[0]), None)
            self._caught_up(fed)
        return self.release(told, edits, before)

    def release(self, told: int, edits: Edits, before: tuple[Any, Any] | None) -> tuple[Any, Any]:
        """Return what belongs to the text up to ``told``, behind what ``before`` holds already."""
        self._edits += edits
        logprobs, ids = before if before is not None else (None, None)
        while self._waiting and self._waiting[0][1] <= told:
            start, end, text, entries, tokens = self._waiting.pop(0)
            touching = [(a - start, b - start, new) for a, b, new in self._edits if a < end and b > start]
            logprobs = _joined(logprobs, masked(entries, text, touching) if touching else entries)
            ids = _joined(ids, None if touching else tokens)
        floor = self._waiting[0][0] if self._waiting else self._begun if self._ahead != (None, None) else told
        self._edits = [edit for edit in self._edits if edit[1] > floor]
        return logprobs, ids


def _joined(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, list):
        return first + second
    return {key: (first.get(key) or []) + (second.get(key) or []) for key in {**first, **second}}


def masked(logprobs: Any, text: str, edits: Edits, told: int = END) -> Any:
    """Return logprobs in which no token repeats an edited part of ``text``, which may be one part of what they tell.

    Where a filter ended the text at ``told``, only tokens up to there are left: not even how many followed is told.
    Where the tokens do not join to the text (a character cut into byte tokens) every one of them is masked, or gone.
    """
    if not isinstance(logprobs, dict):
        return logprobs
    if "tokens" in logprobs:
        return _masked_completion(logprobs, text, edits, told)
    return {key: _masked_list(value, text, edits, told) if key in _LISTS else value for key, value in logprobs.items()}


def all_masked(logprobs: Any) -> Any:
    """Return logprobs of which nothing is shown but their number."""
    return masked(logprobs, "", [(0, END, "")])


def none_left(logprobs: Any) -> Any:
    """Return logprobs of which nothing is shown, for a choice that ended where no text can be found in them."""
    return masked(logprobs, "", (), -1)


def _touched(tokens: Sequence[str], text: str, edits: Edits, told: int) -> list[bool]:
    """Say of each token up to ``told`` whether it is to be masked."""
    joined = "".join(tokens)
    at = -joined.find(text) if joined.count(text) == 1 else 1
    if at > 0:
        return [True] * len(tokens) if told == END else []
    touched = []
    for token in tokens:
        if at + len(token) > told:
            break
        touched.append(any(start < at + len(token) and end > at for start, end, _ in edits))
        at += len(token)
    return touched


def _masked_list(entries: Any, text: str, edits: Edits, told: int) -> Any:
    if not isinstance(entries, list):
        return entries
    tokens = [str(entry.get("token", "")) for entry in entries]
    return [
        {**entry, "token": "*" * len(token), "bytes": list(b"*" * len(token)), "top_logprobs": []} if hit else entry
        for entry, token, hit in zip(entries, tokens, _touched(tokens, text, edits, told), strict=False)
    ]


def _masked_completion(logprobs: dict[str, Any], text: str, edits: Edits, told: int) -> dict[str, Any]:
    tokens = [str(token) for token in logprobs.get("tokens") or []]
    touched = _touched(tokens, text, edits, told)
    left = {key: value[: len(touched)] if isinstance(value, list) else value for key, value in logprobs.items()}
    shown = ["*" * len(token) if hit else token for token, hit in zip(tokens, touched, strict=False)]
    tops = left.get("top_logprobs")
    if isinstance(tops, list):
        tops = [None if hit else top for top, hit in zip(tops, touched, strict=False)]
    return {**left, "tokens": shown, "top_logprobs": tops}


def trimmed(logprobs: Any, kept: int) -> Any:
    """Return logprobs with at most ``kept`` alternatives a token; below 0 none at all. For who asked for more than the
    caller had.
    """
    if kept < 0 or not isinstance(logprobs, dict):
        return None
    if "tokens" not in logprobs:
        return {key: _fewer(value, kept) for key, value in logprobs.items()}
    tops = logprobs.get("top_logprobs")
    if isinstance(tops, list):
        tops = [
            {name: value for at, (name, value) in enumerate(_ranked(top)) if at < kept or name == token} if top else top
            for top, token in zip(tops, logprobs["tokens"], strict=False)
        ]
    return {**logprobs, "top_logprobs": tops}


def _ranked(top: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(top.items(), key=lambda each: -(each[1] or 0.0))


def _fewer(entries: Any, kept: int) -> Any:
    if not isinstance(entries, list):
        return entries
    return [{**entry, "top_logprobs": (entry.get("top_logprobs") or [])[:kept]} for entry in entries]
