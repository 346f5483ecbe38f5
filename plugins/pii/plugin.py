"""The plugin: its options, and what a found value means for a request and for a channel of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from typing import Annotated, Any, Literal

import structlog
from pydantic import Field, field_validator

from gateway.sdk import Channel, Exchange, Hit, Options, Plugin, Refused, Text, TextFilter
from plugins.pii.kinds import KindName
from plugins.pii.own import OwnForm
from plugins.pii.scan import Action, Found, Rule, Scanner, scan
from plugins.pii.stream import PiiFilter, union

_LONG = 16_384  # code points of a request; more are scanned in a thread
_HITS = 1_000  # told of one exchange; a list of numbers must not fill the log
_BLOCKED = "The request was blocked by the content filter."
_log = structlog.get_logger()

Kept = Annotated[int, Field(ge=0, le=64)]

Direction = Literal["request", "answer"]


class KindOptions(Options):
    """A kind with an action or a mask of its own."""

    kind: KindName
    action: Action | None = None
    keep_head: Kept | None = None
    keep_tail: Kept | None = None


class PatternOptions(Options):
    """A pattern of one's own, under a name for log and audit."""

    name: str = Field(pattern="^[a-z][a-z0-9_]{0,39}$")
    pattern: str
    action: Action | None = None
    keep_head: Kept | None = None
    keep_tail: Kept | None = None

    @field_validator("pattern")
    @classmethod
    def _usable(cls, pattern: str) -> str:
        OwnForm(pattern)
        return pattern


class PiiOptions(Options):
    """What to look for, where, and what to do about it."""

    kinds: tuple[KindName | KindOptions, ...] = Field(
        default=("phone_cn", "id_card_cn", "bank_card", "email"), description="what to look for"
    )
    patterns: tuple[PatternOptions, ...] = Field(default=(), description="further kinds, as regular expressions")
    action: Action = Field(default="mask", description="what to do about it")
    keep_head: Kept = Field(default=3, description="characters at the beginning that a mask leaves")
    keep_tail: Kept = Field(default=4, description="characters at the end that a mask leaves")
    directions: frozenset[Direction] = Field(default=frozenset(("request", "answer")), description="where to look")
    mask_char: str = Field(default="*", min_length=1, max_length=1, description="takes the place of each character")

    @field_validator("kinds", "patterns")
    @classmethod
    def _each_once(cls, named: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [getattr(one, "kind", None) or getattr(one, "name", one) for one in named]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is named {names.count(name)} times; name it once")
        return named


class Pii(Plugin):
    """Masks, blocks or tags personal data: phone numbers, ID and bank cards, e-mail addresses and more."""

    Options = PiiOptions
    options: PiiOptions

    def __init__(self, options: PiiOptions) -> None:
        super().__init__(options)
        named = [KindOptions(kind=kind) if isinstance(kind, str) else kind for kind in options.kinds]
        kinds = {one.kind: self._rule(one.kind, one) for one in named}
        own = [(OwnForm(one.pattern), self._rule(one.name, one)) for one in options.patterns]
        self._scanner = Scanner(kinds, own)
        self._on_request = bool(kinds or own) and "request" in options.directions
        self._on_answer = bool(kinds or own) and "answer" in options.directions
        #: The gateway then refuses token ids and embeddings, which would pass unread.
        self.blocks_requests = self._on_request and self._scanner.blocks
        for form, rule in own:
            if form.limit is not None:
                _log.warning("pii_pattern", said=_endless(rule.id, form.limit, form.longest))

    def _rule(self, name: str, own: KindOptions | PatternOptions) -> Rule:
        options = self.options
        head = options.keep_head if own.keep_head is None else own.keep_head
        tail = options.keep_tail if own.keep_tail is None else own.keep_tail
        return Rule(f"pii:{name}", own.action or options.action, head, tail)

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Look at every text of the request, in a thread where that takes long."""
        if not self._on_request:
            return None
        texts = exchange.texts()
        if sum([len(text.text) for text in texts]) > _LONG:
            return self._in_thread(exchange, texts)
        for text in texts:
            if not self._scanner.is_clean(text.text):
                self._judge(exchange, text, list(scan(self._scanner, text.text)))
        return None

    async def _in_thread(self, exchange: Exchange, texts: Sequence[Text]) -> None:
        def look() -> list[list[Found]]:
            return [list(scan(self._scanner, text.text)) for text in texts]

        for text, found in zip(texts, await asyncio.to_thread(look), strict=True):
            self._judge(exchange, text, found)

    def _judge(self, exchange: Exchange, text: Text, found: Sequence[Found]) -> None:
        """Record what was found in one text of the request; refuse the request, or mask the text."""
        for one in found:
            self._record(exchange, one, "request", text.path)
            if one.rule.action == "block":
                raise Refused(_BLOCKED, code="content_filter", param=text.path, rule=one.rule.id, tag=one.rule.id)
        if masks := union(mask for one in found for mask in one.masks):
            text.edit([(start, end, self.options.mask_char * (end - start)) for start, end in masks])

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        """Watch every channel of the answer."""
        if not self._on_answer:
            return None

        def report(found: Found) -> None:
            self._record(exchange, found, "answer", _place(channel))

        return PiiFilter(self._scanner, report, mask=self.options.mask_char)

    def explain(self, text: str) -> Iterator[str]:
        """Say which rules fire on a text, and where; for the operator's eyes only."""
        for start, end, rule, _ in scan(self._scanner, text):
            yield f"{rule.id}: {rule.action}: {text[start:end]!r} at {start} to {end}"

    def _record(self, exchange: Exchange, found: Found, direction: Direction, where: str) -> None:
        rule = found.rule
        if rule.action == "tag":
            exchange.tag(rule.id)
        if len(exchange.record.hits) < _HITS or rule.action == "block":
            exchange.hit(Hit(self.name, rule.id, rule.action, direction, rule.id, where, found.start, found.end))


def _endless(rule: str, limit: int, longest: int) -> str:
    return (
        f"{rule}: the pattern has no longest match, so + and * reach {limit} characters at most; "
        f"up to {longest} characters of an answer are held back while one may be under way"
    )


def _place(channel: Channel) -> str:
    if channel.kind == "arguments":
        return f"choices[{channel.choice}].tool_calls[{channel.tool}].arguments"
    return f"choices[{channel.choice}].{channel.kind}"
