"""A prompt that is too long is refused, saying by how much, or made to fit; one that fits is not touched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.sdk import Refused
from gateway.testing import COMPLETIONS, Played, play
from plugins.length import Length

LONG = " ".join(f"w{number}" for number in range(1000))
WAYS = ["head", "tail", "semantic"]


def length(**options: Any) -> Length:
    return Length(Length.Options.model_validate(options))


def chat(*contents: str, **fields: Any) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(contents)
    return {
        "model": "m",
        "messages": [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)],
        **fields,
    }


def texts(played: Played) -> list[str]:
    assert played.request is not None, played.failure
    return [message["content"] for message in played.request["messages"]]


def words(played: Played) -> int:
    return sum(len(text.split()) for text in texts(played))


async def test_too_long_is_refused_and_told_by_how_much() -> None:
    played = await play(length(max_prompt_tokens=990), chat(LONG))
    assert isinstance(played.failure, Refused)
    assert (played.failure.status, played.failure.code, played.failure.param) == (400, "invalid_request", "messages")
    assert played.failure.message == "The prompt is too long: 1000 tokens, 10 more than the 990 that it may have."
    assert played.request is None


async def test_the_model_s_window_is_the_default_less_one_token_for_the_answer() -> None:
    assert texts(await play(length(), chat(LONG), window=1001)) == [LONG]
    played = await play(length(), chat(LONG), window=1000)
    assert played.failure is not None
    assert played.failure.message.endswith(
        "1 more than the 999 that it may have. The model's maximum context length is 1000 tokens."
    )
    assert texts(await play(length(), chat(LONG))) == [LONG], "where no engine has told its window, it is the judge"


@pytest.mark.parametrize("strategy", WAYS)
async def test_a_question_of_which_not_one_character_fits_is_refused_and_never_sent_empty(strategy: str) -> None:
    family = "👨\u200d👩\u200d👧\u200d👦"
    refused = await play(length(strategy=strategy, max_characters=5), chat(family * 60))
    assert isinstance(refused.failure, Refused)
    assert refused.failure.message.startswith("The prompt is too long: ")
    assert texts(await play(length(strategy=strategy, max_characters=8), chat(family * 60))) == [family]


async def test_characters_are_counted_over_the_whole_prompt() -> None:
    played = await play(length(max_characters=9), chat("你好世界", "答", "再见再见再"))
    assert played.failure is not None
    assert played.failure.message == "The prompt is too long: 10 characters, 1 more than the 9 that it may have."
    assert texts(await play(length(max_characters=10), chat("你好世界", "答", "再见再见再")))


@pytest.mark.parametrize("strategy", WAYS)
async def test_a_long_question_is_cut_to_what_fits_and_it_is_said(strategy: str) -> None:
    played = await play(length(max_prompt_tokens=100, strategy=strategy), chat(LONG))
    assert 95 <= words(played) <= 100
    assert "[…]" in texts(played)[0]
    assert played.tags == ["prompt_cut"]
    assert [hit.rule for hit in played.hits] == [f"length:{strategy}"]


@pytest.mark.parametrize("strategy", WAYS)
async def test_turns_go_before_any_text_is_cut(strategy: str) -> None:
    turns = [f"turn {number} " + "x " * 8 for number in range(21)]
    played = await play(length(max_prompt_tokens=60, strategy=strategy), chat(*turns))
    kept = [text.replace("[…] ", "") for text in texts(played)]
    assert kept == ([*turns[:4], turns[20]] if strategy == "head" else turns[16:])


@pytest.mark.parametrize("strategy", WAYS)
async def test_a_system_message_that_leaves_no_room_is_refused(strategy: str) -> None:
    messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "Hi there"}]
    played = await play(length(max_prompt_tokens=500, strategy=strategy), {"model": "m", "messages": messages})
    assert played.failure is not None
    assert "1002 tokens, 502 more than the 500" in played.failure.message


@pytest.mark.parametrize("strategy", WAYS)
async def test_both_limits_hold_at_once(strategy: str) -> None:
    played = await play(length(max_prompt_tokens=100, max_characters=200, strategy=strategy), chat(LONG))
    assert 150 < len(texts(played)[0]) <= 200


async def test_a_cut_prompt_leaves_room_for_the_answer() -> None:
    plugin = length(strategy="tail")
    assert words(await play(plugin, chat(LONG), window=900)) <= 900 - 225, "a quarter of a small window"
    assert 600 < words(await play(plugin, chat(LONG, max_tokens=10), window=700)) <= 690


async def test_each_prompt_of_a_completion_is_measured_on_its_own() -> None:
    played = await play(length(max_prompt_tokens=100, strategy="head"), {"prompt": ["short", LONG]}, route=COMPLETIONS)
    assert played.request is not None
    short, cut = played.request["prompt"]
    assert short == "short"
    assert cut.startswith("w0 w1 ")
    assert 95 <= len(cut.split()) <= 100
    refused = await play(length(max_prompt_tokens=100), {"prompt": ["short", LONG]}, route=COMPLETIONS)
    assert refused.failure is not None
    assert refused.failure.param == "prompt[1]"


@pytest.mark.parametrize(("prompt", "param"), [([1] * 11, "prompt"), ([[1], [1] * 11], "prompt[1]")])
@pytest.mark.parametrize("strategy", ["refuse", "semantic"])
async def test_token_ids_are_counted_and_never_cut(prompt: Any, param: str, strategy: str) -> None:
    played = await play(length(max_prompt_tokens=10, strategy=strategy), {"prompt": prompt}, route=COMPLETIONS)
    assert played.failure is not None
    assert (played.failure.param, "11 tokens, 1 more" in played.failure.message) == (param, True)
    assert (await play(length(max_prompt_tokens=11), {"prompt": prompt}, route=COMPLETIONS)).failure is None


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_an_answer_that_the_window_cannot_hold_is_lowered_and_said(field: str) -> None:
    played = await play(length(), chat("one two three", **{field: 65535}), window=2048)
    assert played.request is not None
    assert (played.request[field], played.tags) == (2045, ["max_tokens_clamped"])
    filled = await play(length(), chat("one two three", **{field: 65535}), window=2048, filled=[field])
    assert filled.tags == [], "the caller had not asked for it"
    few = await play(length(), chat("one two three", **{field: 2045}), window=2048)
    assert few.request is not None
    assert (few.request[field], few.tags) == (2045, [])


async def test_what_is_short_at_a_glance_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.testing._Host.count_tokens", None)
    assert (await play(length(), chat("x" * 1000, max_tokens=500), window=2048)).failure is None
    assert (await play(length(), {"prompt": ["x" * 1000, "y"]}, route=COMPLETIONS, window=1100)).failure is None
    with pytest.raises(TypeError):
        await play(length(), chat("hi", tools=[]), window=100_000)


@pytest.mark.parametrize("strategy", WAYS)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_answer_is_left_alone_streamed_and_whole(strategy: str, stream: bool) -> None:
    played = await play(length(max_prompt_tokens=50, strategy=strategy), chat(LONG, stream=stream), ["An ", "answer."])
    assert played.shown == "An answer."


async def test_a_very_long_text_is_cut_in_a_thread_with_the_same_result() -> None:
    text = LONG * 20
    played = await play(length(max_prompt_tokens=100, strategy="tail"), chat(text))
    assert text.endswith(texts(played)[0].removeprefix("[…] "))


@pytest.mark.parametrize("body", [{"messages": "x"}, {"messages": [1]}, {"messages": []}, {}])
async def test_what_is_malformed_is_left_to_the_engine(body: dict[str, Any]) -> None:
    played = await play(length(max_prompt_tokens=1, max_characters=1, strategy="tail"), {"model": "m", **body})
    assert played.request == {"model": "m", **body}
    nothing = await play(length(max_prompt_tokens=1), {"prompt": [None, {}]}, route=COMPLETIONS)
    assert nothing.request == {"prompt": [None, {}]}
    long = {"model": "m", "input": LONG}
    assert (await play(length(max_characters=1), long, {"data": []}, route="/v1/embeddings")).request == long


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["user", "tool", "assistant", "text", "a b c"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "arguments", "id", "tool_call_id", "text"]),
            inner,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id"]), JSON)))
async def test_no_form_of_a_request_breaks_it(anything: Any, messages: list[Any]) -> None:
    for strategy in ("refuse", *WAYS):
        plugin = length(max_characters=4, strategy=strategy)
        for body in ({"messages": messages, "max_tokens": anything}, {"messages": anything}):
            played = await play(plugin, body, window=5)
            assert played.failure is None or played.failure.status == 400
        await play(plugin, {"prompt": anything}, route=COMPLETIONS)


@pytest.mark.parametrize("options", [{"strategy": "middle"}, {"max_characters": 0}, {"max_prompt_tokens": "many"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        length(**options)
