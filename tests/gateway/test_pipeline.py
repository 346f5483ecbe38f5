"""The chain: onion order, selectors, failure policy, deadlines, shadow mode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import EngineError, Failure, FilterUnavailable, Refused
from gateway.pipeline import Chain, Link
from gateway.record import Hit, Record
from gateway.sdk import Answer, Blocked, Channel, Edit, Exchange, Plugin, Reading, Reply, TextFilter
from gateway.wording import Wording


def exchange(model: str = "m", key: str | None = None) -> Exchange:
    record = Record(request_id="r", route="/v1/chat/completions", model=model, key=key)
    return Exchange(record, {"model": model, "messages": []}, {}, None)  # type: ignore[arg-type] # no plugin here asks back


class Noting(Plugin):
    """Writes down when each hook ran."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(None)
        self.name, self.log = name, log

    def on_request(self, exchange: Exchange) -> None:
        self.log.append(f"{self.name} request")

    async def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        self.log.append(f"{self.name} answer")

    def on_complete(self, exchange: Exchange) -> None:
        self.log.append(f"{self.name} complete")

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        plugin = self

        class Suffix:
            def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
                plugin.log.append(f"{plugin.name} text")
                return text, ()

            def finish(self) -> tuple[str, Sequence[Edit]]:
                return "", ()

        return Suffix()


async def run(chain: Chain, x: Exchange) -> None:
    waiting = chain.on_request(x)
    if waiting is not None:
        await waiting


async def test_requests_pass_from_first_to_last_and_answers_from_last_to_first() -> None:
    log: list[str] = []
    chain = Chain([Link("a", Noting("a", log)), Link("b", Noting("b", log))])
    x = exchange()
    assert chain.on_request(x) is None, "hooks that do not wait cost no task"
    filtered = chain.filter_for(x, Channel(0, "content"))
    assert filtered is not None
    filtered.feed("x")
    waiting = chain.on_answer(x, Answer(x.route, {}))
    assert waiting is not None
    await waiting
    chain.on_complete(x)
    assert log == ["a request", "b request", "b text", "a text", "b answer", "a answer", "b complete", "a complete"]
    assert {name: run.outcome for name, run in x.record.runs.items()} == {"a": "ran", "b": "ran"}


class Waiting(Noting):
    """Has to wait in every hook, and may fail at the end."""

    def __init__(self, name: str, log: list[str], fault: Exception | None = None) -> None:
        super().__init__(name, log)
        self.fault = fault

    async def on_request(self, exchange: Exchange) -> None:  # type: ignore[override] # hooks may be either
        await asyncio.sleep(0)
        super().on_request(exchange)

    async def on_complete(self, exchange: Exchange) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        super().on_complete(exchange)


class Answering(Noting):
    """Answers itself."""

    def on_request(self, exchange: Exchange) -> None:
        super().on_request(exchange)
        exchange.reply = Reply({})


@pytest.mark.parametrize("shadow", [True, False])
async def test_a_reply_ends_the_walk_also_where_somebody_before_it_had_to_wait(shadow: bool) -> None:
    log: list[str] = []
    first = Link("a", Waiting("a", log), shadow=shadow)
    await run(Chain([first, Link("b", Answering("b", log)), Link("c", Noting("c", log))]), exchange())
    assert log == ["a request", "b request"]


@pytest.mark.parametrize("fault", [ValueError(), EngineError("Gone."), TimeoutError(), None])
async def test_every_plugin_is_told_of_the_end_whoever_waits_or_fails_there(fault: Exception | None) -> None:
    log: list[str] = []
    chain = Chain([Link("a", Noting("a", log)), Link("b", Waiting("b", log, fault)), Link("c", Noting("c", log))])
    for reply in (None, Reply({})):
        x = exchange()
        x.reply = reply
        waiting = chain.on_complete(x)
        assert waiting is not None
        await waiting
        assert [each for each in log if not each.startswith("b")] == ["c complete", "a complete"]
        log.clear()


async def test_an_entry_looks_only_at_its_models_and_keys() -> None:
    log: list[str] = []
    chain = Chain(
        [
            Link("m1", Noting("m1", log), models=frozenset({"m1"})),
            Link("k1", Noting("k1", log), keys=frozenset({"k1"})),
        ]
    )
    chain.on_request(exchange("m1"))
    chain.on_request(exchange("m2", "k1"))
    assert log == ["m1 request", "k1 request"]
    assert chain.filter_for(exchange("m2"), Channel(0, "content")) is None


async def test_a_hook_that_a_plugin_calls_idle_is_not_called() -> None:
    log: list[str] = []
    plugin = Noting("a", log)
    plugin.idle = ["on_request", "text_filter"]
    chain = Chain([Link("a", plugin)])
    x = exchange()
    chain.on_request(x)
    assert chain.filter_for(x, Channel(0, "content")) is None
    chain.on_complete(x)
    assert log == ["a complete"]


class Telling(Noting):
    """Knows clean text when it sees it."""

    def is_clean(self, text: Reading) -> bool:
        self.log.append(f"{self.name} asked")
        return "x" not in text.text


def test_whole_clean_text_needs_no_filter_where_every_plugin_can_tell() -> None:
    log: list[str] = []
    telling = Link("a", Telling("a", log)), Link("b", Telling("b", log), models=frozenset({"m"}))
    chain = Chain(telling)
    x = exchange()
    for text, asked in (("ok", ["b asked", "a asked"]), ("x", ["b asked", "b text", "a text"])):
        log.clear()
        channel = chain.filter_for(x, Channel(0, "content"))
        assert channel is not None
        assert channel.whole(text) == (text, [] if text == "x" else ())
        assert log == asked
    assert x.record.runs["a"].seconds > 0

    mixed = Chain([*telling, Link("c", Noting("c", log))]).filter_for(x, Channel(0, "content"))
    assert mixed is not None
    log.clear()
    mixed.whole("ok")
    assert log == ["c text", "b text", "a text"]


class Failing(Plugin):
    def on_request(self, exchange: Exchange) -> None:
        raise RuntimeError("secret text")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_plugin_that_fails_refuses_or_is_skipped_as_declared(waits: bool) -> None:
    class Slow(Plugin):
        async def on_request(self, exchange: Exchange) -> None:
            await asyncio.sleep(60)

    plugin: Plugin = Slow(None) if waits else Failing(None)
    outcome = "timed_out" if waits else "failed"
    log: list[str] = []
    x = exchange()
    with pytest.raises(FilterUnavailable) as failure:
        await run(Chain([Link("p", plugin, timeout_s=0.01), Link("a", Noting("a", log))]), x)
    assert "secret" not in failure.value.message
    assert x.record.runs["p"].outcome == outcome
    assert not log

    x = exchange()
    await run(Chain([Link("p", plugin, timeout_s=0.01, on_error="skip"), Link("a", Noting("a", log))]), x)
    assert x.record.runs["p"].outcome == outcome, "failed is never counted as passed"
    assert log == ["a request"]


async def test_a_refusal_passes_and_names_plugin_and_rule_for_the_operator() -> None:
    class No(Plugin):
        async def on_request(self, exchange: Exchange) -> None:
            raise Refused("no", rule="list:3", code="content_filter")

    x = exchange()
    with pytest.raises(Refused):
        await run(Chain([Link("no", No(None))]), x)
    assert (x.record.plugin, x.record.rule) == ("no", "list:3")


async def test_a_reply_ends_the_walk() -> None:
    class Answers(Plugin):
        def on_request(self, exchange: Exchange) -> None:
            exchange.reply = Reply({"hello": 1})

    log: list[str] = []
    x = exchange()
    await run(Chain([Link("r", Answers(None)), Link("a", Noting("a", log))]), x)
    assert x.reply is not None
    assert not log


class Harsh(Plugin):
    needs_whole_answer = True

    def on_request(self, exchange: Exchange) -> None:
        exchange.request["messages"].append("changed")
        exchange.tag("t")
        exchange.hit(Hit("harsh", "r", "block", "request"))
        raise Refused("no")

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        class Drop:
            def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
                exchange.hit(Hit("harsh", "r", "mask", "answer"))
                return "", (Edit(0, len(text), ""),)

            def finish(self) -> tuple[str, Sequence[Edit]]:
                return "", ()

        return Drop()


@pytest.mark.parametrize(("accept", "said", "worded"), [("zh", "涉政", True), ("fr", "Blocked.", False)])
async def test_a_blocked_caller_reads_it_in_its_language(accept: str, said: str, worded: bool) -> None:
    class Blocks(Plugin):
        def on_request(self, exchange: Exchange) -> None:
            raise Refused("Blocked.", code="content_filter", tag="politics")

    x = exchange()
    x.headers = {"accept-language": accept}
    with pytest.raises(Refused) as caught:
        await run(Chain([Link("a", Blocks(None))], Wording(tags={"politics": {"zh": "涉政"}})), x)
    assert (caught.value.body()["error"]["message"], x.record.worded) == (said, worded)


async def test_shadow_mode_records_what_it_would_have_done_and_changes_nothing() -> None:
    log: list[str] = []
    chain = Chain([Link("harsh", Harsh(None), shadow=True), Link("a", Noting("a", log))])
    x = exchange()
    await run(chain, x)
    filtered = chain.filter_for(x, Channel(0, "content"))
    assert filtered is not None
    assert filtered.feed("text")[0] == "text"
    assert x.request["messages"] == []
    assert not x.record.tags
    assert [(hit.direction, hit.shadow) for hit in x.record.hits] == [("request", True), ("answer", True)]
    assert log == ["a request", "a text"]
    assert not chain.needs_whole_answer(x)


async def test_a_plugin_may_answer_instead_of_a_failure_and_the_outermost_has_the_last_word() -> None:
    def saying(word: str) -> Plugin:
        class Says(Plugin):
            async def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None:
                return Reply({"says": word, "code": failure.code})

        return Says(None)

    chain = Chain([Link("outer", saying("outer")), Link("inner", saying("inner"))])
    reply = await chain.on_failure(exchange(), EngineError("x"))
    assert reply is not None
    assert reply.body == {"says": "outer", "code": "engine_error"}


async def test_what_was_started_is_stopped_when_a_later_one_does_not_start() -> None:
    log: list[str] = []

    class Part(Plugin):
        def __init__(self, name: str, *, fails: bool = False) -> None:
            super().__init__(None)
            self.name, self.fails = name, fails

        async def start(self) -> None:
            if self.fails:
                raise OSError(self.name)
            log.append(f"start {self.name}")

        def stop(self) -> Any:
            log.append(f"stop {self.name}")

    with pytest.raises(OSError, match="b"):
        await Chain([Link("a", Part("a")), Link("b", Part("b", fails=True))]).start()
    assert log == ["start a", "stop b", "stop a"]


def test_what_a_model_has_not_said_is_judged_and_not_noted() -> None:
    class Noticing(Plugin):
        def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
            assert (channel, exchange.state) == (Channel(0, "content"), {"noticing": 1})

            class Blocking:
                def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
                    exchange.hit(Hit("noticing", "1", "block", "answer"))
                    exchange.tag("seen")
                    raise Blocked("1")

                def finish(self) -> tuple[str, Sequence[Edit]]:
                    raise AssertionError

            return Blocking()

    x = exchange()
    x.state["noticing"] = 1
    channel = Chain([Link("noticing", Noticing(None))]).filter_for(x, Channel(0, "alternative"))
    assert channel is not None
    channel.whole("x")
    assert channel.blocked is not None
    assert (x.record.hits, x.record.tags, x.record.rule, x.record.runs) == ([], [], None, {})
