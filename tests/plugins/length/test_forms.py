"""Conversations of the Responses and the Messages API are counted and cut as chats are, and come back in their form."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import NoEngineAvailable
from gateway.testing import Played, play
from plugins.length import Length
from plugins.length.forms import MESSAGES, RESPONSES, conversed, plain

LONG = " ".join(f"w{number}" for number in range(200))
TOOL = {"name": "find", "description": "Find.", "parameters": {"type": "object"}}

RESPONSE: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "old question " * 20},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "old answer " * 20}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Find foxes."}]},
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "find", "arguments": '{"q": "fox"}'},
        {"type": "function_call", "call_id": "b", "name": "find", "arguments": '{"q": "vixen"}'},
        {"type": "function_call_output", "call_id": "a", "output": "result " * 30},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "none"}]},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": LONG},
    ],
}
MESSAGE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "old question " * 20},
        {"role": "assistant", "content": [{"type": "text", "text": "old answer " * 20}]},
        {"role": "user", "content": [{"type": "text", "text": "Find foxes."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "find", "input": {"q": "fox"}},
                {"type": "tool_use", "id": "b", "name": "find", "input": {"q": "vixen"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "result " * 30},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "none"}]},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "find", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": LONG}]},
    ],
}
BOTH = [(RESPONSES, RESPONSE, "input"), (MESSAGES, MESSAGE, "messages")]


async def cut(route: str, body: dict[str, Any], words: int, **options: Any) -> Played:
    plugin = Length(Length.Options.model_validate({"max_prompt_tokens": words, "strategy": "tail", **options}))
    return await asked(plugin, body, route)


async def asked(plugin: Length, body: dict[str, Any], route: str, **more: Any) -> Played:
    """Play a request as far as the engine."""
    away = NoEngineAvailable("No further.")
    played = await play(plugin, body, away, route=route, **more)
    played.failure = None if played.failure is away else played.failure
    return played


@pytest.mark.parametrize(("route", "body", "field"), BOTH)
def test_what_is_not_cut_goes_back_as_it_was(route: str, body: dict[str, Any], field: str) -> None:
    request = copy.deepcopy(body)
    found = conversed(route, request)
    assert found is not None
    found.put(found.messages)
    assert request == body
    assert all("_at" not in repr(each) for each in plain(found.messages))


@pytest.mark.parametrize(("route", "body", "field"), BOTH)
async def test_a_prompt_that_fits_is_not_touched(route: str, body: dict[str, Any], field: str) -> None:
    played = await cut(route, body, 1000)
    assert (played.request or {})[field] == body[field]
    assert played.tags == []


@pytest.mark.parametrize(("route", "body", "field"), BOTH)
async def test_the_oldest_turn_goes_whole_before_anything_is_cut(route: str, body: dict[str, Any], field: str) -> None:
    played = await cut(route, body, 280)
    kept = (played.request or {})[field]
    assert kept[0]["role"] == "user"
    assert "Find foxes." in repr(kept[0])
    assert kept[1:] == body[field][3:]
    assert played.tags == ["prompt_cut"]


@pytest.mark.parametrize(("route", "body", "field"), BOTH)
async def test_a_step_goes_with_its_results_and_the_last_result_is_cut_last(
    route: str, body: dict[str, Any], field: str
) -> None:
    kept = ((await cut(route, body, 100)).request or {})[field]
    said = repr(kept)
    assert "'a'" not in said
    assert "'b'" not in said
    assert "reasoning" not in said
    assert "thinking" not in said, "what was thought before a call goes with it"
    assert said.count("'c'") == 2, "the last call and its result"
    assert "w199" in said
    assert "w10 " not in said
    result = kept[-1]["output"] if route == RESPONSES else kept[-1]["content"][0]["content"]
    assert result.startswith("[…] ")


@pytest.mark.parametrize(("route", "body", "field"), BOTH)
async def test_too_long_is_refused_by_how_much(route: str, body: dict[str, Any], field: str) -> None:
    refused = (await cut(route, body, 100, strategy="refuse")).failure
    assert refused is not None
    assert refused.param == field
    assert " more than the 100 that it may have." in str(refused)


async def test_an_input_that_is_a_text_is_cut_as_a_question() -> None:
    played = await cut(RESPONSES, {"model": "m", "instructions": "Be brief.", "input": LONG}, 50)
    assert played.request is not None
    assert played.request["input"].endswith(" w199")
    assert 40 < len(played.request["input"].split()) <= 48


async def test_tools_are_counted_in_the_form_of_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def count(self: Any, exchange: Any, text: Any, tools: Any = None) -> int:
        seen.append(tools)
        return 1

    monkeypatch.setattr("gateway.testing._Host.count_tokens", count)
    await cut(RESPONSES, {"model": "m", "input": "hi", "tools": [{"type": "function", **TOOL}, {"type": "web"}]}, 9)
    anthropic = {"name": "find", "description": "Find.", "input_schema": {"type": "object"}}
    await cut(MESSAGES, {**MESSAGE, "tools": [anthropic]}, 9999)
    assert seen == [[{"type": "function", "function": TOOL}]] * 2


async def test_an_answer_beyond_the_window_is_lowered_in_the_route_s_own_field() -> None:
    body = {"model": "m", "input": "one two", "max_output_tokens": 5000}
    played = await asked(Length(Length.Options()), body, RESPONSES, window=100)
    assert played.request is not None
    assert played.request["max_output_tokens"] == 98
    assert played.tags == ["max_tokens_clamped"]


VALUES: Any = st.recursive(
    st.none() | st.integers() | st.sampled_from(["user", "tool_use", "tool_result", "text", "reasoning", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "id", "tool_use_id", "call_id", "output", "input"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(VALUES, st.sampled_from(BOTH))
async def test_no_form_of_a_request_breaks_it(value: Any, of: tuple[str, dict[str, Any], str]) -> None:
    route, _, field = of
    for strategy in ("refuse", "tail", "semantic"):
        played = await cut(route, {"model": "m", field: value, "system": value, "tools": value}, 3, strategy=strategy)
        assert played.failure is None or played.failure.status == 400


# ---- embeddings ----

SAID = "Acba abc bca. Cab bac. Zzz zyz! Abc cab. Bca abc."


async def test_embeddings_say_which_sentences_are_alike() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    plugin = Length(Length.Options(max_characters=44, strategy="semantic", embeddings="e5", outliers=1))
    played = await play(plugin, body)
    assert played.request is not None
    kept = played.request["messages"][0]["content"]
    assert "Zzz zyz!" in kept
    assert "Cab bac." not in kept


async def test_words_have_to_do_where_embeddings_fail_and_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def embed(*_: Any) -> list[list[float]]:
        raise NoEngineAvailable("None.")

    monkeypatch.setattr("gateway.testing._Host.embed", embed)
    body = {"model": "m", "messages": [{"role": "user", "content": SAID}]}
    plugin = Length(Length.Options(max_characters=44, strategy="semantic", embeddings="e5"))
    played = await play(plugin, body)
    assert [hit.rule for hit in played.hits] == ["length:no_embeddings", "length:semantic"]
    assert played.request is not None
    assert len(played.request["messages"][0]["content"]) <= 44
