"""Notices answers that have gone wrong by themselves: garbled, going round in a loop, empty, without end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from gateway.sdk import Answer, Blocked, Channel, Edit, Exchange, Hit, Options, Plugin, Reading, TextFilter

_COMPLETIONS = "/v1/completions"
_ROUTES = frozenset({"/v1/chat/completions", _COMPLETIONS, "/v1/messages", "/v1/responses"})
_STEP = 128  # code points between two looks: at the same places however the text is cut
_MEMORY = 4096  # code points of the text's end that are kept
_PROBE = 32  # code points by which a repetition is found
_OVERLAP = 8  # the longest mark of garbled text, and a character before it
_RULES = 5  # a unit without letters (a rule, a table's frame) has to fill this many times as much
#: A replacement character, a tokenizer's own space, byte or unknown token, UTF-8 read as something else.
_GARBLED = re.compile("\ufffd|▁(?=\\w)|<0x[0-9A-F]{2}>|<unk>|\\[UNK\\]|(?<=[a-z.,])Ġ|â€[™œ“”¦]")

_MARKS = ("\ufffd", "▁", "<0x", "<unk>", "[UNK]", "Ġ", "â€")  # one of them is in whatever that finds

GARBLED, LOOPING, EMPTY, ENDLESS = "garbled", "looping", "empty_answer", "endless"
NO_EDITS: tuple[Edit, ...] = ()


class AnswerSanityOptions(Options):
    """What counts as wrong, and what is done about it."""

    action: Literal["tag", "stop"] = Field(
        default="tag", description="say so in the tags, or also end the answer there (finish_reason length)"
    )
    garbled_marks: int = Field(default=3, ge=1, description="marks of garbled text that make an answer garbled")
    loop_repeats: int = Field(default=8, ge=3, le=100, description="a unit that comes this often in a row is a loop")
    loop_characters: int = Field(default=400, ge=32, le=2048, description="if all its repeats are at least this long")
    max_characters: int = Field(default=100_000, ge=_STEP, description="an answer that is longer has no end")


class AnswerSanity(Plugin):
    """Tags answers that are garbled, loop, are empty or do not end; or stops them, and the engine with them."""

    Options = AnswerSanityOptions
    options: AnswerSanityOptions

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        """Watch every text of a generated answer."""
        return SanityFilter(self.options, exchange, self.name, channel.kind) if exchange.route in _ROUTES else None

    def is_clean(self, text: Reading) -> bool:
        """Say of a text too short to loop whether it has no mark of garbled text: then nobody has to watch it."""
        return _is_sound(self.options, text.text)

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        """See what only the whole shows: that there is nothing, or that the engine itself had to end it."""
        if exchange.route not in _ROUTES:
            return
        stopped = any(hit.plugin == self.name and hit.action == "stop" for hit in exchange.record.hits)
        # The ceiling is the model's, not the caller's; nor a completion's own, which is 16 tokens.
        no_end = bool(exchange.filled) and exchange.route != _COMPLETIONS and not stopped
        for choice in answer.choices():
            reason = choice.get("finish_reason")
            if reason == "repetition":  # vLLM's own repetition_detection
                note(exchange, self.name, LOOPING)
            elif reason == "length" and no_end:
                note(exchange, self.name, ENDLESS)
            if reason != "content_filter" and _is_empty(choice):
                note(exchange, self.name, EMPTY)


def note(exchange: Exchange, plugin: str, symptom: str, where: str = "", at: int = 0, action: str = "tag") -> None:
    """Tell caller and operator, once for each symptom."""
    if not any(hit.plugin == plugin and hit.rule == symptom for hit in exchange.record.hits):
        exchange.hit(Hit(plugin, symptom, action, "answer", symptom, where, at, at))
    exchange.tag(symptom)


def _is_sound(options: AnswerSanityOptions, text: str) -> bool:
    short = len(text) < min(options.loop_characters, options.max_characters)
    return short and not any(mark in text for mark in _MARKS)


def _is_empty(choice: dict[str, Any]) -> bool:
    message = choice.get("message")
    if not isinstance(message, dict):
        return not str(choice.get("text") or "").strip()
    return not (str(message.get("content") or "").strip() or message.get("tool_calls") or message.get("refusal"))


class SanityFilter:
    """Watches one channel and lets everything pass; it keeps the last 4,096 code points and two counts."""

    __slots__ = ("_end", "_exchange", "_garbled", "_kind", "_name", "_options", "_position")

    def __init__(self, options: AnswerSanityOptions, exchange: Exchange, name: str, kind: str) -> None:
        self._options, self._exchange, self._name, self._kind = options, exchange, name, kind
        self._position = self._garbled = 0
        self._end = ""

    def is_clean(self, text: str) -> bool:
        """Say that there is nothing to be noticed in a text that is whole."""
        return _is_sound(self._options, text)

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Let the text pass, and look at it every 128 code points. Raises Blocked where that is wanted."""
        at = 0
        while True:
            size = _STEP - self._position % _STEP
            piece = text[at : at + size]
            self._position += len(piece)
            self._end += piece
            at += len(piece)
            if len(piece) < size:
                return text, NO_EDITS
            symptom = self._look(_STEP)
            self._end = self._end[-_MEMORY:]
            if symptom is not None and self._options.action == "stop":
                note(self._exchange, self._name, symptom, self._kind, self._position, "stop")
                raise Blocked(f"{self._name}:{symptom}", tag=symptom, shown=text[:at], finish_reason="length")
            if symptom is not None:
                note(self._exchange, self._name, symptom, self._kind, self._position)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Look at the rest; there is nothing left to stop."""
        symptom = self._look(self._position % _STEP) if self._position % _STEP else None
        if symptom is not None:
            note(self._exchange, self._name, symptom, self._kind, self._position)
        return "", NO_EDITS

    def _look(self, new: int) -> str | None:
        """Look at the last ``new`` code points, and at what they end."""
        begins = max(0, len(self._end) - new)
        marks = _GARBLED.finditer(self._end, max(0, begins - _OVERLAP))
        self._garbled += sum(mark.end() > begins for mark in marks)
        if self._garbled >= self._options.garbled_marks:
            return GARBLED
        if self._loops():
            return LOOPING
        return ENDLESS if self._position > self._options.max_characters else None

    def _loops(self) -> bool:
        """Does the text end in one unit over and over?"""
        text = self._end
        before = text.rfind(text[-_PROBE:], 0, len(text) - 1)
        if before < 0:
            return False
        period = len(text) - _PROBE - before
        long = max(self._options.loop_characters, self._options.loop_repeats * period)
        if not any(map(str.isalnum, text[-period:])):
            long *= _RULES
        return len(text) >= long and text[-long:-period] == text[period - long :]
