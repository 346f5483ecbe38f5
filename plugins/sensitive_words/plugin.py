"""The plugin: its options, and what a found word means for a request and for a channel of the answer."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from gateway.sdk import Channel, ConfigPath, Exchange, Hit, Options, Plugin, Reading, Refused, Text, TextFilter
from plugins.sensitive_words.cover import covers
from plugins.sensitive_words.fold import fold
from plugins.sensitive_words.matcher import Found, Matcher
from plugins.sensitive_words.stream import States, WordFilter
from plugins.sensitive_words.wordlist import Action, Asker, Entry, Scope, Source, read, warn

_LONG = 32_768  # code points of a request; more are scanned in a thread
_HITS = 1_000  # told of one exchange; a mask for a very common word must not fill the log
_TAG = "sensitive_words"  # of an entry with the action tag and no tag of its own
_BLOCKED = "The request was blocked by the content filter."

Direction = Literal["request", "answer"]


class ListOptions(Options):
    """A word file. A line may say its own action and tag; ``keys``: only for these keys (names)."""

    path: ConfigPath
    action: Action = "block"
    tag: str | None = None
    keys: frozenset[str] | None = None
    encoding: str = "utf-8"

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("not an encoding that Python knows; utf-8 or gb18030 are usual") from None
        return encoding


class WordOptions(Options):
    """An entry in the configuration itself."""

    word: str
    action: Action = "block"
    tag: str | None = None


class SensitiveWordsOptions(Options):
    """What to look for, and where."""

    lists: tuple[ListOptions, ...] = Field(default=(), description="word files; a plain path too, its action is block")
    words: tuple[str | WordOptions, ...] = Field(default=(), description="further entries, an entry alone is blocked")
    allow: tuple[str, ...] = Field(default=(), description="entries inside which no other counts")
    directions: frozenset[Direction] = Field(default=frozenset(("request", "answer")), description="where to look")
    max_skip: int = Field(default=3, ge=0, le=64, description="separators skipped inside an entry; not in use yet")
    mask_char: str = Field(default="*", min_length=1, max_length=1, description="takes the place of each character")

    @field_validator("lists", mode="before")
    @classmethod
    def _plain_paths(cls, lists: Any, _: ValidationInfo) -> Any:
        if isinstance(lists, list | tuple):
            return [{"path": one} if isinstance(one, str | Path) else one for one in lists]
        return lists


class SensitiveWords(Plugin):
    """Blocks, masks or tags listed words."""

    Options = SensitiveWordsOptions
    options: SensitiveWordsOptions

    def __init__(self, options: SensitiveWordsOptions) -> None:
        super().__init__(options)
        self.files = [one.path for one in options.lists]
        self.matcher = Matcher(self._entries())
        self._states = States(self.matcher)
        watched = options.directions if self.matcher else ()
        hooks = {"request": ("on_request",), "answer": ("text_filter", "is_clean")}
        self.idle = [hook for direction, its in hooks.items() if direction not in watched for hook in its]
        #: The gateway then refuses token ids and embeddings, which would pass unread.
        self.blocks_requests = "request" in watched and self.matcher.blocks

    def _entries(self) -> Iterable[Entry]:
        names = [one.path.name for one in self.options.lists]
        for one in self.options.lists:
            name = one.path.name if names.count(one.path.name) == 1 else "/".join(one.path.parts[-2:])
            scope = Scope(one.keys) if one.keys is not None else None
            yield from read(one.path, Source(name, one.action, one.tag, scope), one.encoding)
        inline = Source("words", place="entry")
        for number, word in enumerate(self.options.words, 1):
            given = WordOptions(word=word) if isinstance(word, str) else word
            if entry := inline.entry(given.word, number, given.action, given.tag):
                yield entry
        allow = Source("allow", "allow", place="entry")
        for number, word in enumerate(self.options.allow, 1):
            if entry := allow.entry(word, number):
                yield entry
        warn(inline)
        warn(allow)

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Check every text of the request at once, or in a thread where it is long."""
        reading = exchange.reading()
        if len(reading.text) > _LONG:
            return self._in_thread(exchange, exchange.texts())
        if not self.matcher.is_clean(reading):
            for text in exchange.texts():
                self._judge(exchange, text, self.matcher.scan(text.text, asker=_asker(exchange)).found)
        return None

    async def _in_thread(self, exchange: Exchange, texts: Sequence[Text]) -> None:
        def scan() -> list[list[Found]]:
            return [list(self.matcher.scan_long(text.text, _asker(exchange))) for text in texts]

        for text, found in zip(texts, await asyncio.to_thread(scan), strict=True):
            self._judge(exchange, text, found)

    def _judge(self, exchange: Exchange, text: Text, found: Sequence[Found]) -> None:
        """Record what was found in one text of the request; refuse the request, or mask the text."""
        for match in found:
            self._record(exchange, match, "request", text.path)
        for match in found:
            if match.rule.action == "block":
                rule = match.rule
                raise Refused(_BLOCKED, code="content_filter", param=text.path, rule=rule.id, tag=rule.tag)
        if spans := covers(found):
            mask = self.options.mask_char
            text.edit([(start, end, mask * (end - start) if new is None else new) for start, end, new in spans])

    def is_clean(self, text: Reading) -> bool:
        """Say that no entry is in a text, whoever asks."""
        return self.matcher.is_clean(text)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        """Watch every channel of the answer."""

        def report(found: Found) -> None:
            self._record(exchange, found, "answer", _place(channel))

        return WordFilter(self._states, report, asker=_asker(exchange), mask=self.options.mask_char)

    def explain(self, text: str) -> Iterator[str]:
        """Say which rules fire on a text, where, and why; for the operator's eyes only."""
        keys = {key for one in self.options.lists for key in one.keys or ()}
        fired = {found for key in (None, *keys) for found in self.matcher.scan_long(text, Asker(key))}
        for start, end, rule in sorted(fired, key=lambda found: (*found[:2], found.rule.id)):
            found = text[start:end]
            says = f"{rule.action} ({rule.tag})" if rule.tag else rule.action
            whose = f", for the keys {', '.join(sorted(rule.scope.keys or ()))} only" if rule.scope else ""
            yield f"{rule.id}: {says}: {found!r} at {start} to {end}, read as {fold(found)[0]!r}{whose}"

    def _record(self, exchange: Exchange, found: Found, direction: Direction, where: str) -> None:
        rule = found.rule
        if rule.action == "tag":
            exchange.tag(rule.tag or _TAG)
        if len(exchange.record.hits) < _HITS or rule.action == "block":
            exchange.hit(Hit(self.name, rule.id, rule.action, direction, rule.tag, where, found.start, found.end))


def _asker(exchange: Exchange) -> Asker:
    return Asker(exchange.key, exchange.model)


def _place(channel: Channel) -> str:
    if channel.kind == "arguments":
        return f"choices[{channel.choice}].tool_calls[{channel.tool}].arguments"
    return f"choices[{channel.choice}].{channel.kind}"
