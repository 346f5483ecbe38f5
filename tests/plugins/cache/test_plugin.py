"""An answer is given again to whom it belongs, and only if it was one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import encode

from gateway.errors import NoEngineAvailable
from gateway.registry import catalogue, plugin_class
from gateway.sdk import Answer, Exchange, Plugin, Refused
from gateway.testing import COMPLETIONS, MESSAGES, RESPONSES, Played, play
from plugins.cache import Cache
from plugins.envelope import Envelope
from tests.plugins.pages import example


def cache(**options: Any) -> Cache:
    return Kept(Cache.Options.model_validate(options))


class Kept(Cache):
    """The kit starts and stops its plugins for each exchange; this one goes on."""

    name = "cache"

    def stop(self) -> None:
        pass


def request(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def said(played: Played) -> Any:
    return played.reply and played.reply.body["choices"][0]["message"]["content"]


async def test_a_streamed_answer_is_given_again_whole_and_the_other_way_round() -> None:
    for first, then in ((True, False), (False, True)):
        plugin = cache()
        played = await play(plugin, request(stream=first), ["The ans", "wer."])
        assert played.reply is None
        again = await play(plugin, request(stream=then, user="u"), "Another.")
        assert said(again) == "The answer."
        assert again.request is None, "no engine was asked"
        assert again.reply is not None
        assert again.reply.headers == (("age", "0"),)
        assert [hit.rule for hit in again.hits] == ["cache:hit"]


async def test_age_is_in_whole_seconds_and_ends_at_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("plugins.cache.plugin.monotonic", lambda: now)
    plugin = cache(ttl_s=60)
    await play(plugin, request(), "a")
    now = 159.9
    again = await play(plugin, request(), "b")
    assert again.reply is not None
    assert again.reply.headers == (("age", "59"),)
    now = 160.0
    assert (await play(plugin, request(), "b")).reply is None


async def test_keys_do_not_see_each_others_answers_unless_shared() -> None:
    for shared in (False, True):
        plugin = cache(shared=shared)
        await play(plugin, request(), "mine", key="a")
        assert (said(await play(plugin, request(), "yours", key="b")) == "mine") is shared
        assert said(await play(plugin, request(), "new", key="a")) == "mine"


async def test_the_model_is_called_what_the_caller_called_it() -> None:
    plugin = cache()
    first = request() | {"model": "alias"}
    await play(plugin, first, "a")
    again = await play(plugin, first, "b")
    assert again.reply is not None
    assert again.reply.body["model"] == "alias"


async def test_completions_are_kept_too() -> None:
    plugin = cache()
    body = {"model": "m", "prompt": "p", "seed": 1}
    await play(plugin, body, "a", route=COMPLETIONS)
    again = await play(plugin, body, "b", route=COMPLETIONS)
    assert again.reply is not None
    assert again.reply.body["choices"][0]["text"] == "a"


class Curious(Plugin):
    """Asks for logprobs on its own account."""

    def on_request(self, exchange: Exchange) -> None:
        exchange.request["logprobs"] = True
        exchange.show_logprobs = self.options


async def test_logprobs_that_the_caller_is_not_to_see_are_not_kept() -> None:
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop", "logprobs": {"content": []}}
    for shown, kept in ((-1, True), (0, False)):
        plugin = cache()
        await play([plugin, Curious(shown)], request(), {"object": "chat.completion", "choices": [choice]})
        again = await play(plugin, request(), "b")
        assert (again.reply is not None) is kept
        assert again.reply is None or again.reply.body["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("finish", ["content_filter", "repetition", None])
async def test_an_answer_that_did_not_end_by_itself_is_not_kept(finish: str | None) -> None:
    plugin = cache()
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": finish}
    await play(plugin, request(), {"object": "chat.completion", "choices": [choice]})
    assert (await play(plugin, request(), "b")).reply is None


async def test_an_answer_at_its_limit_is_kept_for_the_limit_is_part_of_the_request() -> None:
    plugin = cache()
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}
    await play(plugin, request(max_tokens=1), {"object": "chat.completion", "choices": [choice]})
    assert said(await play(plugin, request(max_tokens=1), "b")) == "a"
    assert (await play(plugin, request(max_tokens=2), "b")).reply is None


class Says(Plugin):
    """Says something about every answer."""

    def on_request(self, exchange: Exchange) -> None:
        exchange.extra |= self.options
        exchange.tag("soft")


@pytest.mark.parametrize(
    "extra", [{"fallback": {"reason": "engine_error"}}, {"json": {"valid": False}}, {"json": [{"valid": False}]}]
)
async def test_substitutes_and_broken_answers_are_not_kept(extra: dict[str, Any]) -> None:
    plugin = cache()
    await play([plugin, Says(extra)], request(), "a")
    assert (await play(plugin, request(), "b")).reply is None


async def test_what_was_said_about_an_answer_is_said_again() -> None:
    plugin = cache()
    await play([plugin, Says({"confidence": 0.5})], request(), "a")
    again = await play(plugin, request(), "b")
    assert (again.tags, again.extra) == (["soft"], {"confidence": 0.5})


async def test_failures_are_not_kept() -> None:
    plugin = cache()
    await play(plugin, request(), NoEngineAvailable("Away."))
    assert (await play(plugin, request(), "b")).reply is None


async def test_what_is_not_deterministic_is_neither_kept_nor_answered() -> None:
    plugin = cache()
    for _ in range(2):
        assert (await play(plugin, request() | {"temperature": 0.7}, "a")).reply is None


async def test_tokens_of_a_stream_are_summed_up() -> None:
    plugin = cache()
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}
    used = {"prompt_tokens": 3, "completion_tokens": 2}
    await play(plugin, request(), {"object": "chat.completion", "choices": [choice], "usage": used})
    again = await play(plugin, request(), "b")
    assert again.reply is not None
    assert again.reply.body["usage"] == {**used, "total_tokens": 5}


async def test_a_stopped_cache_has_forgotten_everything() -> None:
    plugin = Cache(Cache.Options())
    await play(plugin, request(), "a")
    assert (await play(plugin, request(), "b")).reply is None


@pytest.mark.parametrize("options", [{"store": "disk"}, {"max_mb": 0}, {"ttl_s": -1}, {"ttl": 1}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Cache.Options.model_validate(options)


async def test_the_example_on_its_page_is_true() -> None:
    options, (asked, answer) = example("cache")
    plugin = cache(**options)
    await play(plugin, asked, answer)
    again = await play(plugin, asked, "Three.")
    assert again.reply is not None
    assert again.reply.body == answer


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (RESPONSES, {"input": "q", "store": False}),
        (MESSAGES, {"max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}),
    ],
)
async def test_newer_routes_are_answered_again_in_their_form(route: str, asked: dict[str, Any], stream: bool) -> None:
    plugin, body = cache(), {"model": "m", "temperature": 0, **asked}
    first = await play(plugin, {**body, "stream": stream}, "The answer.", route=route)
    again = await play(plugin, {**body, "stream": not stream}, "Another.", route=route)
    assert again.reply is not None
    same = {"usage": None, "model": "m"}
    assert {**again.reply.body, **same} == {**first.body, **same}
    assert "The answer." in str(again.reply.body)


async def test_what_an_engine_is_to_keep_is_not_answered_again() -> None:
    plugin, body = cache(), {"model": "m", "temperature": 0, "input": "q", "stream": False}
    await play(plugin, body, "The answer.", route=RESPONSES)
    assert (await play(plugin, body, "Another.", route=RESPONSES)).reply is None


class Meddler(Plugin):
    """Does to an answer all that a stranger's plugin may: one that was shown it only reads."""

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        exchange.tag("meddled")
        exchange.extra["meddled"] = True
        if not answer.shown:
            said = {"role": "assistant", "content": "Meddled."}
            choices = [{**choice, "message": said} for choice in answer.choices()]
            answer.body = {**answer.body, "choices": choices}
        if self.options == "refuse":
            raise Refused("No.", status=502, code="no", error_type="server_error")


def probable(text: str, logprob: float) -> dict[str, Any]:
    told = {"token": text, "logprob": logprob, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [{**choice, "logprobs": {"content": [told]}}]}


class Shaped(Plugin):
    """Has the answer told in a form of its own, as the gateway does before the chain."""

    def on_request(self, exchange: Exchange) -> None:
        exchange.shape = Envelope(Envelope.Options()).shape


class Leaves(Plugin):
    """The caller leaves while the answer is looked at."""

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        del answer
        exchange.record.outcome = "client_left"


JSON = {"response_format": {"type": "json_object"}}
ANSWERS: list[Any] = ["Paris", "", '```json\n{"a": 1,}\n```', '{"a": 1}', probable("Paris", -3.0), probable("{}", 0.0)]
#: Options with which every plugin that sees whole answers is tried: to change one, to say something, to refuse.
SEES_ANSWERS: dict[str, list[dict[str, Any]]] = {
    "answer_sanity": [{}],
    "confidence": [
        {"metric": "mean_probability", "threshold": 0.9, "below": below, "detail": True}
        for below in ("tag", "fallback")
    ],
    "fallback": [{"on": ["invalid_json", "low_confidence", "content_filter"], "text": "{}"}],
    "json_answer": [{"retries": 0}, {"retries": 0, "invalid": "error"}, {"retries": 0, "fallback": {}}],
}


def made(name: str, options: dict[str, Any]) -> Plugin:
    kind = plugin_class(name)
    plugin = kind(kind.Options.model_validate(options))
    plugin.name = name
    return plugin


def chains() -> list[list[Plugin]]:
    ours = {name: [made(name, options) for options in each] for name, each in SEES_ANSWERS.items()}
    alone = [[plugin] for each in ours.values() for plugin in each]
    pairs = [[fallback, one] for fallback in ours["fallback"] for one in (*ours["json_answer"], *ours["confidence"])]
    return [*alone, *pairs, [Meddler(None)], [Meddler("refuse")]]


def test_every_plugin_that_sees_answers_is_tried_beside_the_cache() -> None:
    seen = {
        each.name for each in catalogue() if "on_answer" in each.hooks and each.package.startswith("sluice-gateway")
    }
    assert seen - {"cache"} == SEES_ANSWERS.keys(), "say in SEES_ANSWERS how the new one is tried"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("chain", chains(), ids=lambda chain: "+".join(each.name or "meddler" for each in chain))
async def test_a_hit_is_what_the_caller_was_shown_wherever_the_cache_stands(
    chain: list[Plugin], above: bool, stream: bool
) -> None:
    for answer in ANSWERS:
        kept = cache()
        whole = [kept, *chain] if above else [*chain, kept]
        first = await play(whole, request(stream=stream) | JSON, answer)
        again = await play(whole, request(stream=stream) | JSON, answer)
        assert again.tags == first.tags
        assert encode(again.extra) == encode(first.extra)
        if again.request is not None:  # the engine was asked again
            assert (again.failure is None) is (first.failure is None)
            assert (again.reply is None) is (first.reply is None)
            continue
        assert first.failure is None
        assert first.reply is None, "what was refused, or somebody's substitute, is not given again"
        assert again.reply is not None
        assert (said(again) or "") == first.shown
        if not stream:
            shown = [{"logprobs": None, **choice} for choice in first.body["choices"]]
            assert [{"logprobs": None, **choice} for choice in again.reply.body["choices"]] == shown


async def test_an_answer_that_nobody_minds_is_a_hit_beside_every_plugin() -> None:
    for chain in chains()[:-1]:
        for order in ([cache(), *chain], [*chain, cache()]):
            for _ in range(2):
                played = await play(order, request(stream=False) | JSON, probable('{"a": 1}', 0.0))
            assert played.reply is not None, [each.name for each in order]
            assert played.request is None


async def test_a_shape_of_its_own_has_answers_of_its_own() -> None:
    plugin, shaped = cache(), Shaped(None)
    await play([shaped, plugin], request(), "a")
    assert (await play(plugin, request(), "b")).reply is None
    assert said(await play([shaped, plugin], request(), "b")) == "a"


async def test_an_answer_that_never_came_out_is_not_kept() -> None:
    plugin = cache()
    await play([plugin, Leaves(None)], request(), "a")
    assert (await play(plugin, request(), "b")).reply is None
