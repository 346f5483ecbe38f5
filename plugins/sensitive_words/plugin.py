"""The plugin: what a found word means for a request and for a channel of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gateway.sdk import Channel, Exchange, Hit, Plugin, Reading, Refused, Text, TextFilter
from plugins.sensitive_words.cover import covers
from plugins.sensitive_words.explain import Question, explained
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.lists import WordList, load
from plugins.sensitive_words.matcher import Found, Matcher
from plugins.sensitive_words.options import Direction, SensitiveWordsOptions
from plugins.sensitive_words.review import review
from plugins.sensitive_words.stream import States, WordFilter
from plugins.sensitive_words.wordlist import Asker

_LONG = 32_768  # code points of a request; more are scanned in a thread
_HITS = 1_000  # told of one exchange; a mask for a very common word must not fill the log
_TAG = "sensitive_words"  # of an entry with the action tag and no tag of its own
_BLOCKED = "The request was blocked by the content filter."


class SensitiveWords(Plugin):
    """Blocks, masks, replaces or tags listed words."""

    Options = SensitiveWordsOptions
    options: SensitiveWordsOptions

    def __init__(self, options: SensitiveWordsOptions) -> None:
        super().__init__(options)
        self.files = [one.path for one in options.lists]
        loaded = load(options)
        self.lists = [one.listing for one in loaded]
        self._scopes = {one.source.scope for one in loaded if one.source.scope is not None}
        asked, answered = (
            [one for one in loaded if direction in one.directions] for direction in ("request", "answer")
        )
        self._requests = _compiled(asked, options.folding)
        self._answers = self._requests if asked == answered else _compiled(answered, options.folding)
        self._states = States(self._answers)
        unused = [] if self._requests else ["on_request"]
        self.idle = unused if self._answers else [*unused, "text_filter", "is_clean"]
        #: The gateway then refuses token ids and embeddings, which would pass unread.
        self.blocks_requests = self._requests.blocks

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Check every text of the request at once, or in a thread where it is long."""
        reading = exchange.reading()
        if len(reading.text) > _LONG:
            return self._in_thread(exchange, exchange.texts())
        if not self._requests.is_clean(reading):
            for text in exchange.texts():
                self._judge(exchange, text, self._requests.scan(text.text, asker=_asker(exchange)).found)
        return None

    async def _in_thread(self, exchange: Exchange, texts: Sequence[Text]) -> None:
        def scan() -> list[list[Found]]:
            return [list(self._requests.scan_long(text.text, _asker(exchange))) for text in texts]

        for text, found in zip(texts, await asyncio.to_thread(scan), strict=True):
            self._judge(exchange, text, found)

    def _judge(self, exchange: Exchange, text: Text, found: Sequence[Found]) -> None:
        """Record what was found in one text of the request; refuse the request, or cover the words."""
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
        """Say that no entry is in an answer's text, whoever asks."""
        return self._answers.is_clean(text)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        """Watch every channel of the answer."""

        def report(found: Found) -> None:
            self._record(exchange, found, "answer", _place(channel))

        return WordFilter(self._states, report, asker=_asker(exchange), mask=self.options.mask_char)

    def explain(
        self, text: str, *, key: str | None = None, model: str | None = None, direction: str | None = None
    ) -> list[dict[str, Any]]:
        """Say which rules fire on a text, where, and why; for the operator's eyes only. None: whichever."""
        directions = {"request": self._requests, "answer": self._answers}
        wanted = {name: its for name, its in directions.items() if direction in {None, name}}
        return explained(Question(text, key, model), wanted, self.lists, self._scopes)

    def review(self) -> dict[str, Any]:
        """Say what is odd in its lists."""
        return review(self.options)

    @staticmethod
    def review_files(files: Sequence[Path], encoding: str) -> dict[str, Any]:
        """Say what is wrong or odd in word files, before they go into service. Raises ValueError."""
        lists = [{"path": path, "encoding": encoding, "replacement": ""} for path in dict.fromkeys(files)]
        return review(SensitiveWordsOptions.model_validate({"lists": lists}))

    def _record(self, exchange: Exchange, found: Found, direction: Direction, where: str) -> None:
        rule = found.rule
        if rule.action == "tag":
            exchange.tag(rule.tag or _TAG)
        if len(exchange.record.hits) < _HITS or rule.action == "block":
            exchange.hit(Hit(self.name, rule.id, rule.action, direction, rule.tag, where, found.start, found.end))


def _compiled(lists: Iterable[WordList], folding: Folding) -> Matcher:
    return Matcher((entry for one in lists for entry in one.entries), folding)


def _asker(exchange: Exchange) -> Asker:
    return Asker(exchange.key, exchange.model)


def _place(channel: Channel) -> str:
    if channel.kind == "arguments":
        return f"choices[{channel.choice}].tool_calls[{channel.tool}].arguments"
    return f"choices[{channel.choice}].{channel.kind}"
