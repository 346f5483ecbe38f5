"""A fallback answers when it is told to, says so every time, and never takes an answer back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import LogCapture

from gateway.errors import (
    ContentFiltered,
    EngineError,
    EngineTimeout,
    Failure,
    InvalidRequest,
    NoEngineAvailable,
    QueueFull,
)
from gateway.record import Record
from gateway.sdk import Answer, Blocked, Channel, Exchange, Plugin, Refused, Reply, TextFilter
from gateway.testing import COMPLETIONS, MESSAGES, RESPONSES, Played, play
from plugins.fallback import Fallback, best, languages
from tests.plugins.pages import example


def fallback(**options: Any) -> Fallback:
    return Fallback(Fallback.Options.model_validate({"text": "Later.", **options}))


def said(played: Played) -> Any:
    assert played.reply is not None
    return played.reply.body["choices"][0]["message"]["content"]


FAILURES = {
    "engine_error": EngineError("Broke."),
    "engine_timeout": EngineTimeout("Slow."),
    "no_engine_available": NoEngineAvailable("Away."),
    "queue_full": QueueFull("Busy."),
}


@pytest.mark.parametrize("code", FAILURES)
async def test_each_failure_has_its_trigger(code: str, log: LogCapture) -> None:
    played = await play(fallback(on=[code]), "hi", FAILURES[code])
    assert said(played) == "Later."
    assert played.extra == {"fallback": {"reason": code}}
    assert played.reply is not None
    assert played.reply.headers == (("cache-control", "no-store"),)
    assert [(hit.plugin, hit.rule, hit.action) for hit in played.hits] == [("Fallback", f"fallback:{code}", "fallback")]
    assert [(line["event"], line["reason"], line["by"]) for line in log.entries] == [("fallback", code, "text")]
    for other in FAILURES.keys() - {code}:
        played = await play(fallback(on=[code]), "hi", FAILURES[other])
        assert (played.reply, played.extra, played.hits) == (None, {}, [])


async def test_without_being_told_it_stands_in_for_the_engine_alone() -> None:
    for code, failure in FAILURES.items():
        played = await play(fallback(), "hi", failure)
        assert (played.reply is not None) is (code != "queue_full")
    assert (await play(fallback(), "hi", InvalidRequest("Wrong."))).reply is None


async def test_the_answer_is_an_answer_of_its_route() -> None:
    chat = await play(fallback(), {"model": "alias", "messages": []}, FAILURES["engine_error"])
    assert chat.reply is not None
    assert chat.reply.body["object"] == "chat.completion"
    assert chat.reply.body["model"] == "alias"
    assert chat.reply.body["choices"][0]["finish_reason"] == "stop"
    completion = await play(fallback(), "hi", FAILURES["engine_error"], route=COMPLETIONS)
    assert completion.reply is not None
    assert completion.reply.body["object"] == "text_completion"
    assert completion.reply.body["choices"][0]["text"] == "Later."


async def test_what_is_no_text_has_no_fallback() -> None:
    played = await play(fallback(), {"input": "hi"}, FAILURES["engine_error"], route="/v1/embeddings")
    assert played.reply is None


class Refusing(Plugin):
    """Blocks every request."""

    def on_request(self, exchange: Exchange) -> None:
        raise Refused("No.", code="content_filter")


async def test_a_refused_request_is_answered_but_never_sent_to_another_model() -> None:
    played = await play([fallback(on=["content_filter"], model="other"), Refusing(None)], "hi")
    assert said(played) == "Later."


BLOCKED = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"content": "par"}, "finish_reason": "content_filter"}],
}


async def test_a_blocked_answer_is_replaced_before_it_is_seen() -> None:
    plugin = fallback(on=["content_filter"])
    assert plugin.needs_whole_answer
    played = await play(plugin, "hi", BLOCKED)
    assert said(played) == "Later."
    assert played.extra["fallback"] == {"reason": "content_filter"}
    assert len(played.hits) == 1


async def test_streams_flow_where_no_trigger_needs_the_whole_answer() -> None:
    plugin = fallback(on=["engine_error", "queue_full", "first_token_late"])
    assert not plugin.needs_whole_answer
    assert (await play(plugin, "hi", ["a", "b"])).pieces[:2] == ["a", "b"]


class Says(Plugin):
    """Says of every answer what it is told to."""

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        if "tag" in self.options:
            exchange.tag(self.options["tag"])
        exchange.extra |= self.options.get("extra", {})


@pytest.mark.parametrize(
    ("trigger", "says"),
    [
        ("low_confidence", {"tag": "low_confidence"}),
        ("invalid_json", {"tag": "invalid_json"}),
        ("invalid_json", {"extra": {"json": {"valid": False}}}),
        ("invalid_json", {"extra": {"json": [{"valid": True}, {"valid": False}]}}),
    ],
)
async def test_what_a_plugin_below_says_of_an_answer_is_a_trigger(trigger: str, says: dict[str, Any]) -> None:
    assert said(await play([fallback(on=[trigger]), Says(says)], "hi", "a")) == "Later."
    assert (await play([fallback(on=["content_filter"]), Says(says)], "hi", "a")).shown == "a"
    assert (await play([fallback(on=[trigger]), Says({"extra": {"json": {"valid": True}}})], "hi", "a")).shown == "a"


async def test_a_failure_that_a_plugin_below_raises_is_a_trigger() -> None:
    assert said(await play(fallback(on=["invalid_json"]), "hi", Refused("No.", code="invalid_json"))) == "Later."


async def test_an_answer_that_was_seen_is_not_taken_back() -> None:
    plugin = fallback(on=["content_filter"])
    exchange = asked(Model())
    assert plugin.on_answer(exchange, Answer(exchange.route, BLOCKED, shown=True)) is None


async def test_a_late_first_token_is_a_trigger_of_its_own() -> None:
    plugin = fallback(on=["first_token_late"], first_token_s=2)
    exchange = asked(Model())
    plugin.on_request(exchange)
    assert exchange.first_token_s == 2
    played = await play(plugin, "hi", EngineTimeout("Slow."))
    assert played.extra["fallback"] == {"reason": "first_token_late"}


# ---- another model ----


class Model:
    """Another model, that answers with what it is given."""

    def __init__(self, *answers: Mapping[str, Any] | Failure) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Failure):
            raise answer
        return dict(answer)

    async def embed(self, exchange: Exchange, model: str, texts: Any) -> list[list[float]]:
        raise AssertionError

    async def count_tokens(self, exchange: Exchange, text: Any, tools: Any = None) -> int:
        raise AssertionError

    def window(self, exchange: Exchange) -> int | None:
        raise AssertionError


def asked(model: Model, *, checked: bool = True, content: str = "hi", accept: str | None = None) -> Exchange:
    record = Record(request_id="r", route="/v1/chat/completions", model="m")
    if checked:
        record.phases["chain_request"] = 0.001
    body = {"model": "m", "messages": [{"role": "user", "content": content}], "temperature": 0.5}
    return Exchange(record, body, {"accept-language": accept} if accept else {}, model)


ANSWER = {
    "object": "chat.completion",
    "model": "served",
    "choices": [{"message": {"content": "b"}, "finish_reason": "stop"}],
}


async def other(plugin: Fallback, exchange: Exchange, failure: Failure | None = None) -> Reply:
    reply = await plugin.on_failure(exchange, failure or EngineError("Broke."))
    assert reply is not None
    return reply


async def test_another_model_is_asked_the_same() -> None:
    model = Model(ANSWER)
    exchange = asked(model)
    reply = await other(fallback(model="spare"), exchange)
    assert model.asked == [{**exchange.request, "model": "spare"}]
    assert reply.body == {**ANSWER, "model": "spare"}
    assert exchange.extra["fallback"] == {"reason": "engine_error", "model": "spare"}


@pytest.mark.parametrize("bad", [EngineError("Broke."), TimeoutError, BLOCKED])
async def test_where_that_fails_too_the_text_follows(bad: Any, log: LogCapture) -> None:
    exchange = asked(Model(EngineTimeout("Slow.") if bad is TimeoutError else bad))
    reply = await other(fallback(model="spare"), exchange)
    assert reply.body["choices"][0]["message"]["content"] == "Later."
    assert exchange.extra["fallback"] == {"reason": "engine_error"}
    assert log.entries[-1]["by"] == "text"


async def test_with_neither_the_failure_goes_to_the_caller() -> None:
    plugin = Fallback(Fallback.Options.model_validate({"model": "spare"}))
    exchange = asked(Model(EngineError("Broke.")))
    assert await plugin.on_failure(exchange, EngineError("Broke.")) is None
    assert (exchange.extra, exchange.record.hits) == ({}, [])


async def test_a_request_that_the_chain_has_not_seen_whole_goes_to_no_model() -> None:
    for failure in (QueueFull("Busy."), ContentFiltered("No.")):
        model = Model()
        reply = await other(
            fallback(on=["queue_full", "content_filter"], model="spare"), asked(model, checked=False), failure
        )
        assert reply.body["choices"][0]["message"]["content"] == "Later."


async def test_an_unfit_answer_stays_where_there_is_nothing_else() -> None:
    plugin = Fallback(Fallback.Options.model_validate({"model": "spare", "on": ["content_filter"]}))
    exchange = asked(Model(EngineError("Broke.")))
    waiting = plugin.on_answer(exchange, Answer(exchange.route, BLOCKED))
    assert waiting is not None
    await waiting
    assert exchange.extra == {}


# ---- languages ----

TEXTS = {"en": "Later.", "zh": "稍后", "zh-TW": "稍後", "ja": "後で"}


@pytest.mark.parametrize(
    ("header", "content", "text"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "hi", "稍后"),
        ("zh-tw", "hi", "稍後"),
        ("fr, ja;q=0.5, en;q=0.4", "hi", "後で"),
        ("en;q=0, zh", "hi", "稍后"),
        ("fr", "你好", "Later."),
        ("", "你好吗？OK", "稍后"),
        ("", "こんにちは漢字", "後で"),
        ("", "What?", "Later."),
        ("", "Что?", "Later."),
        ("", "", "Later."),
        (";;;,q=,", "你好", "稍后"),
    ],
)
async def test_the_text_is_in_the_callers_language(header: str, content: str, text: str) -> None:
    plugin = Fallback(Fallback.Options.model_validate({"texts": TEXTS}))
    reply = await other(plugin, asked(Model(), content=content, accept=header))
    assert reply.body["choices"][0]["message"]["content"] == text


@given(st.text(), st.lists(st.sampled_from(["en", "zh", "zh-TW", "de-AT"]), min_size=1, unique=True))
def test_any_header_finds_a_language_that_is_there(header: str, there: list[str]) -> None:
    assert best(languages(header), there) in there


@given(st.permutations(["de", "fr", "zh-TW", "en"]))
def test_weights_decide_and_not_the_order(order: list[str]) -> None:
    weights = {"de": "0.3", "fr": "0.9", "zh-TW": "1.0", "en": "0.5"}
    header = ",".join(f"{language};q={weights[language]}" for language in order)
    assert languages(header) == ["zh-TW", "fr", "en", "de"]


def test_a_relative_is_better_than_nothing() -> None:
    assert best(["de"], ["en", "de-AT"]) == "de-AT"
    assert best(["zh-Hant-HK"], ["en", "zh-Hant", "zh"]) == "zh-Hant"


@pytest.mark.parametrize("options", [
    {"text": None}, {"text": "a", "texts": {"en": "b"}}, {"texts": {"e n": "b"}, "text": None}, {"on": ["engine_eror"]},
    {"model_s": 0},
])  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Fallback.Options.model_validate({"text": "Later.", **options})


async def test_the_example_on_its_page_is_true() -> None:
    options, (request, answer) = example("fallback")
    played = await play(Fallback(Fallback.Options.model_validate(options)), request, NoEngineAvailable("Away."))
    assert played.reply is not None
    varying = {"id": "chatcmpl-req-1", "created": answer["created"]}
    assert {**played.reply.body, **varying, "sluice": played.extra} == answer


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (RESPONSES, {"model": "m", "input": "你好吗？今天天气怎么样？"}),
        (MESSAGES, {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "你好吗？"}]}),
    ],
)
async def test_newer_routes_have_a_fallback_too(route: str, asked: dict[str, Any]) -> None:
    texts = {"en": "Later, please.", "zh": "请稍后再试。"}
    played = await play(
        Fallback(Fallback.Options(texts=texts)), {**asked, "stream": False}, NoEngineAvailable("Away."), route=route
    )
    assert said(played) == "请稍后再试。", "told as a chat's; the gateway tells it in the route's form"
    filtered = await play(
        [fallback(on=["content_filter"], text="Not that."), Blocks(None)], {**asked, "stream": True}, "bad", route=route
    )
    assert said(filtered) == "Not that."


class Blocks(Plugin):
    """Blocks every answer."""

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        return self

    def feed(self, text: str) -> Any:
        raise Blocked("words:1")

    def finish(self) -> tuple[str, tuple[()]]:
        return "", ()
