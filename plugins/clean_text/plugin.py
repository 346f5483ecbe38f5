"""The plugin: its options, and the cleaner at work on requests and on the channels of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from gateway.sdk import (
    Blocked,
    Channel,
    ConfigPath,
    Edit,
    Exchange,
    Options,
    Plugin,
    Reading,
    Refused,
    Text,
    TextFilter,
)
from plugins.clean_text.cleaner import Cleaner, Cut, Patterns
from plugins.clean_text.patterns import BRACKETS
from plugins.clean_text.tokens import WORDS, own_tokens, removable

_LONG = 32_768  # code points that are not plain; more are cleaned in a thread
_HELD = 1024  # code points that wait; only what is removed, inside a token, can be so many
_RULE = "clean_text:special_token"
_HELD_TOO_LONG = "clean_text:held_too_long"
_REFUSED = "The request contains control tokens of a chat template."

_WITH_BRACKETS = frozenset(BRACKETS)  # what no ordinary text has, but for the ASCII ones

NO_EDITS: tuple[Edit, ...] = ()

Direction = Literal["request", "answer"]


class CleanTextOptions(Options):
    """What is to be cleaned, and how."""

    directions: frozenset[Direction] = Field(default=frozenset(("request", "answer")), description="what to clean")
    max_marks: int = Field(default=4, ge=1, le=64, description="combining marks left on one base character")
    special_tokens: Literal["escape", "block", "off"] = Field(
        default="escape",
        description="tokens of chat templates: defused in requests and removed from answers, or blocked",
    )
    tokens: tuple[Annotated[str, Field(min_length=3, max_length=64)], ...] = Field(
        default=(), description="further tokens of the models, beside the common families'"
    )
    tokenizers: tuple[ConfigPath, ...] | None = Field(
        default=None,
        validate_default=True,
        description="folders with a model's `tokenizer.json` or `tokenizer_config.json`, whose control tokens count "
        "too; if not said, what the models of the configuration have as `tokenizer`",
    )

    @field_validator("tokenizers", mode="before")
    @classmethod
    def _of_the_models(cls, tokenizers: Any, info: ValidationInfo) -> Any:
        return (info.context or {}).get("tokenizers", ()) if tokenizers is None else tokenizers


class CleanText(Plugin):
    """Removes control characters, bidi overrides and floods of marks; defuses template tokens."""

    Options = CleanTextOptions
    options: CleanTextOptions

    def __init__(self, options: CleanTextOptions) -> None:
        super().__init__(options)
        on = options.special_tokens != "off"
        folders = options.tokenizers or ()
        own = frozenset(options.tokens).union(*map(own_tokens, folders)) if on else frozenset()
        self._request = Patterns(options.max_marks, _defused if on else None, own.union(WORDS), wide=True)
        self._answer = Patterns(options.max_marks, _removed if on else None, removable(own))
        self._block = options.special_tokens == "block"
        hooks = {"request": ("on_request",), "answer": ("text_filter", "is_clean")}
        self.idle = [hook for direction, its in hooks.items() if direction not in options.directions for hook in its]

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Clean every text of the request; most need no more than a look."""
        if _is_clean(self._request, exchange.reading()):
            return None
        texts = [text for text in exchange.texts() if text.text and not self._request.is_plain(text.text)]
        if sum(len(text.text) for text in texts) > _LONG:
            return self._in_thread(texts)
        for text in texts:
            self._edit(text, Cleaner(self._request).cuts(text.text)[0])
        return None

    async def _in_thread(self, texts: Sequence[Text]) -> None:
        def clean() -> list[list[Cut]]:
            return [Cleaner(self._request).cuts(text.text)[0] for text in texts]

        for text, cuts in zip(texts, await asyncio.to_thread(clean), strict=True):
            self._edit(text, cuts)

    def _edit(self, text: Text, cuts: Sequence[Cut]) -> None:
        if self._block and any(token for *_, token in cuts):
            raise Refused(_REFUSED, code="content_filter", param=text.path, rule=_RULE)
        if cuts:
            text.edit([cut[:3] for cut in cuts])

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:  # noqa: ARG002 - a hook's signature
        """Clean every channel of the answer."""
        return CleanFilter(self._answer, block=self._block)

    def is_clean(self, text: Reading) -> bool:
        """Say that nothing is to be done in an answer."""
        return _is_clean(self._answer, text)


class CleanFilter:
    """Cleans one channel; holds back only what a longer text may turn into an escape, a flag or a token.

    Raises Blocked where a token is to be, and where nothing but what is removed makes the text that waits longer than
    any of these.
    """

    __slots__ = ("_block", "_cleaner", "_fed", "_held", "_plain")

    def __init__(self, patterns: Patterns, *, block: bool) -> None:
        self._cleaner, self._block, self._plain = Cleaner(patterns), block, patterns.is_plain
        self._held, self._fed = "", 0

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Return what may be shown now, cleaned."""
        self._fed += len(text)
        if not self._held and self._plain(text):
            self._cleaner.passed(text)
            return text, NO_EDITS
        return self._step(self._held + text, final=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Return what was held, cleaned."""
        return self._step(self._held, final=True) if self._held else ("", NO_EDITS)

    def _step(self, text: str, *, final: bool) -> tuple[str, Sequence[Edit]]:
        cuts, end = self._cleaner.cuts(text, final=final)
        base = self._fed - len(text)
        self._held = text[end:]
        parts: list[str] = []
        edits: list[Edit] = []
        done = 0
        for begin, stop, new, token in cuts:
            if token and self._block:
                shown = "".join([*parts, text[done:begin]])
                raise Blocked(_RULE, shown=shown, edits=edits)
            parts += [text[done:begin], new]
            edits.append(Edit(base + begin, base + stop, new))
            done = stop
        shown = "".join([*parts, text[done:end]]) if edits else text[:end]
        if len(self._held) > _HELD:
            raise Blocked(_HELD_TOO_LONG, shown=shown, edits=edits)
        return shown, edits or NO_EDITS


def _is_clean(patterns: Patterns, text: Reading) -> bool:
    """Say that nothing is to be done: at a look for a text of ordinary characters."""
    if text.ordinary and patterns.starts <= _WITH_BRACKETS and "<" not in text.text and "[" not in text.text:
        return True
    return patterns.is_plain(text.text)


def _defused(token: str) -> str:
    """Write a template's token so that a tokenizer takes it for text."""
    return f"{token[0]} {token[1:]}"


def _removed(_: str) -> str:
    return ""
