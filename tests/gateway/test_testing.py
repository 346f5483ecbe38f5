"""The kit for plugin authors, on plugins of a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import EngineError
from gateway.sdk import Answer, Blocked, Channel, Edit, Exchange, Failure, Hit, Plugin, Refused, Reply
from gateway.testing import COMPLETIONS, play


class Shout:
    """Holds the last character back and shows the rest in capitals."""

    def __init__(self) -> None:
        self.held, self.at = "", 0

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        text, self.held = self.held + text[:-1], text[-1:]
        return self._loud(text)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        if "!" in self.held:
            raise Blocked("no-shouting", shown="")
        return self._loud(self.held)

    def _loud(self, text: str) -> tuple[str, Sequence[Edit]]:
        at, self.at = self.at, self.at + len(text)
        loud = text.upper()
        return loud, [Edit(at, at + len(text), loud)] if loud != text else []


class Everything(Plugin):
    """Has every hook."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.seen: list[str] = []

    async def start(self) -> None:
        self.seen.append("start")

    async def stop(self) -> None:
        self.seen.append("stop")

    def on_request(self, exchange: Exchange) -> None:
        for text in exchange.texts():
            if "bug" in text.text:
                raise KeyError("a bug")
            if "refuse" in text.text:
                exchange.hit(Hit(self.name, "r1", "block", "request"))
                raise Refused("No.", rule="r1")
            if "ping" in text.text:
                exchange.reply = Reply({"choices": []})
            text.replace(text.text.strip())
        exchange.tag("seen")

    def text_filter(self, exchange: Exchange, channel: Channel) -> Shout | None:
        return Shout() if channel.kind == "content" else None

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        self.seen.append(answer.texts()[0].text)

    def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None:
        return Reply({"sorry": failure.status})

    def on_complete(self, exchange: Exchange) -> None:
        self.seen.append(exchange.record.outcome)


async def test_request_and_answer_go_through_every_hook() -> None:
    plugin = Everything()
    played = await play(plugin, " hi ", ["ab", "cd"])
    assert played.request is not None
    assert played.request["messages"] == [{"role": "user", "content": "hi"}]
    assert (played.shown, played.pieces) == ("ABCD", ["A", "BC", "D"])
    assert played.body["choices"][0]["message"]["content"] == "ABCD"
    assert (played.tags, played.hits, played.failure, played.blocked) == (["seen"], [], None, False)
    assert plugin.seen == ["start", "ABCD", "ok", "stop"]
    assert plugin.name == "Everything"


@pytest.mark.parametrize("stream", [True, False])
async def test_streamed_or_whole_the_text_is_the_same(*, stream: bool) -> None:
    request = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    played = await play(Everything(), request, ["ab", "c"])
    assert played.shown == "ABC"
    assert played.body["choices"][0]["finish_reason"] == "stop"


async def test_completions_and_whole_bodies_work_too() -> None:
    assert (await play(Everything(), "x", ["ab", "c"], route=COMPLETIONS)).shown == "ABC"
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": "stop"}]}
    assert (await play(Everything(), "x", body)).shown == "AB"


async def test_a_refusal_is_told_and_no_engine_is_asked() -> None:
    played = await play(Everything(), "refuse")
    assert isinstance(played.failure, Refused)
    assert (played.request, played.shown, played.reply) == (None, "", Reply({"sorry": 400}))
    assert [hit.rule for hit in played.hits] == ["r1"]


async def test_a_plugin_may_answer_itself_and_instead_of_a_failure() -> None:
    played = await play(Everything(), "ping")
    assert (played.reply, played.request) == (Reply({"choices": []}), None)
    played = await play(Everything(), "x", EngineError("It broke off."))
    assert played.reply == Reply({"sorry": 502})
    assert isinstance(played.failure, EngineError)


async def test_a_block_ends_the_answer() -> None:
    played = await play(Everything(), "x", ["ab", "!"])
    assert (played.shown, played.blocked) == ("AB", True)


async def test_a_bug_of_the_plugin_comes_out_as_it_is() -> None:
    plugin = Everything()
    with pytest.raises(KeyError, match="a bug"):
        await play(plugin, "bug")
    assert plugin.seen[-1] == "stop"


async def test_asking_again_and_counting_tokens_are_played_too() -> None:
    class Again(Plugin):
        needs_whole_answer = True

        async def on_answer(self, exchange: Exchange, answer: Answer) -> None:
            more = await exchange.ask(exchange.request)
            count = await exchange.count_tokens("one two three")
            answer.body["choices"][0]["message"]["content"] += more["choices"][0]["message"]["content"] + str(count)

    assert (await play(Again(None), "x", ["a", "b"], again=["c"])).shown == "abc3"
    with pytest.raises(AssertionError, match="again="):
        await play(Again(None), "x", "a")


async def test_a_chain_is_an_onion() -> None:
    class Mark(Plugin):
        def on_request(self, exchange: Exchange) -> None:
            exchange.tag(self.name)

    first, second = Mark(None), Mark(None)
    first.name, second.name = "first", "second"
    assert (await play([first, second], "x")).tags == ["first", "second"]
