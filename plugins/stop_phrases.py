"""Ends an answer where a phrase begins, and takes the prompt out of an answer that begins by repeating it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from gateway.sdk import Blocked, Channel, Edit, Exchange, Hit, Options, Plugin, TextFilter

_COMPLETIONS = "/v1/completions"
_ROUTES = frozenset({"/v1/chat/completions", _COMPLETIONS, "/v1/messages", "/v1/responses"})
_ASKED = frozenset({"prompt", "input"})  # places of what is asked where nobody is said to ask it
_SHORTEST_ECHO = 16  # code points of a prompt; an answer may well begin with a shorter one
_LONGEST_ECHO = 10_000  # a longer prompt would have to be held back without end
_SENTENCE_END = re.compile(r"[.!?:;。！？：；…\"'”’)\]]\Z")
_BREAK = re.compile(r"[ \t]*[\r\n]")

NO_EDITS: tuple[Edit, ...] = ()


class StopPhrasesOptions(Options):
    """Where answers end."""

    phrases: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=100, description="an answer ends before the first of them, with finish_reason stop"
    )
    prompt_echo: Literal["cut", "off"] = Field(
        default="cut", description="an answer that begins with the whole prompt: leave it out, or leave it"
    )


class StopPhrases(Plugin):
    """Ends an answer at given phrases and stops the engine there; cuts the prompt off an answer that repeats it."""

    Options = StopPhrasesOptions
    options: StopPhrasesOptions

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        """Watch what the model says; not what it thinks or hands to tools."""
        if channel.kind != "content" or exchange.route not in _ROUTES:
            return None
        prompts = _prompts(exchange) if self.options.prompt_echo == "cut" else ()
        if not prompts:
            return PhraseFilter(self.options.phrases, exchange, self.name) if self.options.phrases else None
        phrases = PhraseFilter(self.options.phrases, exchange, self.name)
        return EchoFilter(prompts, phrases, exchange, self.name)


def _prompts(exchange: Exchange) -> tuple[str, ...]:
    """Return what the model was asked last, where an answer that begins with it would be an echo.

    Of a prompt that a plugin has put words before, that is also the caller's part alone.
    """
    if exchange.route == _COMPLETIONS and exchange.body.get("echo"):
        return ()
    texts = [text.text for text in exchange.texts() if text.role == "user" or text.path in _ASKED]
    whole = own = texts[-1].strip() if texts else ""
    for words in reversed(exchange.state.get("put_before", ())):
        own = own.removeprefix(words)
    return tuple(each for each in dict.fromkeys((whole, own.strip())) if _SHORTEST_ECHO <= len(each) <= _LONGEST_ECHO)


class PhraseFilter:
    """Ends the text before the phrase that is complete first; holds back what may still become one."""

    __slots__ = ("_beginnings", "_exchange", "_held", "_longest", "_name", "_phrases")

    def __init__(self, phrases: Sequence[str], exchange: Exchange, name: str) -> None:
        self._phrases, self._exchange, self._name = phrases, exchange, name
        self._beginnings = frozenset(phrase[:end] for phrase in phrases for end in range(1, len(phrase)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = ""

    def is_clean(self, text: str) -> bool:
        """Say that no phrase is in a text that is whole."""
        return not any(phrase in text for phrase in self._phrases)

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Show all but what may be the beginning of a phrase. Raises Blocked."""
        text = self._held + text
        found = [(text.find(phrase), rule, len(phrase)) for rule, phrase in enumerate(self._phrases)]
        hits = [(at + length, at, rule) for at, rule, length in found if at >= 0]
        if hits:
            _, at, rule = min(hits)
            self._exchange.hit(Hit(self._name, f"phrases:{rule}", "stop", "answer", where="content"))
            raise Blocked(f"{self._name}:phrases:{rule}", shown=text[:at], finish_reason="stop")
        sizes = range(min(self._longest, len(text)), 0, -1)
        held = next((size for size in sizes if text[-size:] in self._beginnings), 0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], NO_EDITS

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """What was held became no phrase."""
        return self._held, NO_EDITS


class EchoFilter:
    """Leaves out one of the prompts at the beginning of the text, if it is there whole and something follows.

    Until that is known the text is held back: an answer that goes its own way is held for as long as it agrees.
    """

    __slots__ = ("_at", "_exchange", "_held", "_name", "_phrases", "_prompts")

    def __init__(self, prompts: tuple[str, ...], phrases: PhraseFilter, exchange: Exchange, name: str) -> None:
        self._prompts, self._phrases, self._exchange, self._name = prompts, phrases, exchange, name
        self._held: str | None = ""  # None once it is decided
        self._at = 0

    def is_clean(self, text: str) -> bool:
        """Say that a text that is whole does not begin with a prompt, and holds no phrase."""
        return not text.lstrip().startswith(self._prompts) and self._phrases.is_clean(text)

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Decide, or hold back. Raises Blocked."""
        if self._held is None:
            return self._phrases.feed(text)
        self._held = text = self._held + text
        blank = len(text) - len(text.lstrip())
        said = text[blank:]
        agreeing = [prompt for prompt in self._prompts if said[: len(prompt)] == prompt[: len(said)]]
        if not agreeing:
            return self._go_on(text, ())
        prompt = max(agreeing, key=len)
        rest = said[len(prompt) :]
        if len(said) < len(prompt) or not rest.strip():
            return "", NO_EDITS
        if not (_SENTENCE_END.search(prompt) or _BREAK.match(rest)):
            return self._go_on(text, ())  # the answer takes the prompt up and goes on with it
        start = len(text) - len(rest.lstrip())
        self._exchange.hit(Hit(self._name, "prompt_echo", "cut", "answer", where="content", end=start))
        return self._go_on(text[start:], [Edit(0, start, "")])

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """An answer that is nothing but the prompt is shown: it may have been asked for."""
        if self._held is None:
            return self._phrases.finish()
        shown, edits = self._go_on(self._held, ())
        tail, _ = self._phrases.finish()
        return shown + tail, edits

    def _go_on(self, text: str, edits: Sequence[Edit]) -> tuple[str, Sequence[Edit]]:
        self._held = None
        try:
            shown, _ = self._phrases.feed(text)
        except Blocked as blocked:
            blocked.edits = edits
            raise
        return shown, edits
