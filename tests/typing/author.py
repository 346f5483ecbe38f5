"""A plugin as its author writes it, with every hook in both forms: never run, only type-checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_type

from pydantic import Field

from gateway.sdk import (
    Answer,
    Blocked,
    Channel,
    ConfigPath,
    ContentFiltered,
    Edit,
    Exchange,
    Failure,
    Hit,
    Options,
    Plugin,
    Record,
    Refused,
    Reply,
    Run,
    Text,
    TextFilter,
)
from gateway.testing import Played, play


class AuthorOptions(Options):
    """Options of every kind."""

    path: ConfigPath | None = None
    mode: Literal["a", "b"] = "a"
    limit: int = Field(3, ge=0)


class Waiting(Plugin):
    """Every hook that may wait, waiting."""

    Options = AuthorOptions
    options: AuthorOptions
    needs_whole_answer = True

    def __init__(self, options: AuthorOptions) -> None:
        super().__init__(options)
        self.files = [options.path] if options.path else []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def on_request(self, exchange: Exchange) -> None:
        assert_type(exchange.texts(), list[Text])
        assert_type(await exchange.count_tokens("text"), int)
        again = await exchange.ask(exchange.request)
        exchange.reply = Reply(again, headers=(("x-mine", "1"),))
        raise ContentFiltered("No.", param="messages[0].content")

    async def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        for text in answer.texts():
            text.edit([Edit(0, 1, "")])

    async def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None:
        return Reply({"status": failure.status}) if exchange.stream else None

    async def on_complete(self, exchange: Exchange) -> None:
        assert_type(exchange.record, Record)
        assert_type(exchange.record.runs, dict[str, Run])


class Quick(Plugin):
    """The same without waiting."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def on_request(self, exchange: Exchange) -> None:
        exchange.tag("seen")
        exchange.extra["mine"] = exchange.state.setdefault(self.name, 1)
        exchange.hit(Hit(self.name, "rule", "tag", "request"))
        raise Refused("No.", status=403, code="no", rule="rule", tag="tag", retry_after=1)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        return Nothing() if channel.kind == "content" and channel.choice == 0 else None

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        answer.body["shown"] = answer.shown

    def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None: ...

    def on_complete(self, exchange: Exchange) -> None: ...


class Nothing:
    """Lets nothing through."""

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        raise Blocked("rule", tag="tag", shown=text[:0])

    def finish(self) -> tuple[str, Sequence[Edit]]:
        return "", ()


async def tested() -> None:
    """A test of it."""
    played = await play([Waiting(AuthorOptions()), Quick(Options())], "Hello", ["a", "b"], again=["c"])
    assert_type(played, Played)
    assert_type(played.failure, Failure | None)
    assert_type(played.hits, list[Hit])
