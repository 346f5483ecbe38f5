"""Tells answers, pieces of streams and failures in the shape of a profile; stateless, one serves all requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.sdk import Record
from plugins.envelope import facts
from plugins.envelope.facts import Fact, Told
from plugins.envelope.profiles import Profile
from plugins.envelope.template import fill, names

_GENERATED = frozenset({"chat.completion", "text_completion"})
_NOTHING: Mapping[str, Any] = {}

ByError = Mapping[str | int, Any]
"""Something for an error code or, where there is nothing for that, for a status."""


class Shape:
    """One profile at work. ``tokens`` of an answer are told at most; ``statuses`` maps errors to HTTP statuses."""

    def __init__(
        self,
        profile: Profile,
        *,
        codes: ByError,
        statuses: ByError,
        messages: ByError,
        preset: ByError,
        always_200: bool,
        tokens: int,
    ) -> None:
        self.name, self.done = profile.name, profile.done
        self._profile, self._last = profile, profile.last or profile.answer
        self._codes, self._statuses, self._messages, self._preset = codes, statuses, messages, preset
        self._always_200, self._tokens = always_200, tokens
        self._pieces = [facts.EVENT[name] for name in facts.PIECES if name in names(profile.event)]
        #: Who is not told which choice a piece is of would take the pieces of several for one text.
        self._every_choice = not names(profile.event).isdisjoint({"index", "body"})
        #: Does it tell tokens? Then the engine has to be asked for them.
        self.tells_tokens = tokens > 0 and "tokens" in names(profile.answer) | names(self._last)

    def answer(self, body: dict[str, Any], record: Record) -> dict[str, Any]:
        """Tell a whole answer."""
        generated = body.get("object") in _GENERATED
        template = self._profile.answer if generated else self._profile.other
        return body if template is None else self._filled(template, facts.ANSWER, body, record)

    def event(self, chunk: dict[str, Any], record: Record) -> list[dict[str, Any]]:
        """Tell a chunk of a stream: one event for each choice that has something new, or for the first choice alone."""
        template = self._profile.event
        if template is None:
            return [chunk] if self._last is None else []
        return [
            fill(template, _look(facts.EVENT, told))
            for choice in facts.choices(chunk)
            if (self._every_choice or choice.get("index", 0) == 0)
            and any(piece(told := Told(chunk, choice, record)) for piece in self._pieces)
        ]

    def last(self, body: dict[str, Any], record: Record) -> dict[str, Any] | None:
        """Tell the end of a stream, whose answer put together is ``body``; None where nothing is to be told."""
        return None if self._last is None else self._filled(self._last, facts.ANSWER, body, record)

    def failure(self, error: dict[str, Any], status: int, record: Record) -> tuple[int, dict[str, Any]]:
        """Tell a failure: its HTTP status, and its body. ``error`` is what OpenAI's form has under "error"."""
        shown = 200 if self._always_200 else self._of(self._statuses, error, status, status)
        template = self._profile.error
        if template is None:
            return shown, {"error": error}
        mapped = {
            "status": shown,
            "code": self._of(self._codes, error, status, status),
            "message": self._message(error, status, record),
        }
        look = _look(facts.ERROR, Told(error, _NOTHING, record))
        told: dict[str, Any] = fill(template, lambda name: mapped[name] if name in mapped else look(name))
        return shown, told

    def _message(self, error: dict[str, Any], status: int, record: Record) -> Any:
        """Return what is said: the option's words, else the gateway's configured ones, else the profile's own."""
        said = error.get("message")
        if not record.worded:
            said = self._of(self._preset, error, status, said)
        return self._of(self._messages, error, status, said)

    def _filled(
        self, template: Mapping[str, Any], known: Mapping[str, Fact], body: Mapping[str, Any], record: Record
    ) -> dict[str, Any]:
        choice = next(iter(facts.choices(body)), _NOTHING)
        filled: dict[str, Any] = fill(template, _look(known, Told(body, choice, record, self._tokens)))
        return filled

    @staticmethod
    def _of(table: ByError, error: Mapping[str, Any], status: int, otherwise: Any) -> Any:
        code = error.get("code")
        return table[code] if isinstance(code, str | int) and code in table else table.get(status, otherwise)


def _look(known: Mapping[str, Fact], told: Told) -> Any:
    return lambda name: known[name](told)
