"""Whole turns go before parts of turns; calls and results stay together; what must stay stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.length.conversation import Conversation, characters
from plugins.length.cutting import Way

MARK = " […] "


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str = "result") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def shortened(messages: list[dict[str, Any]], steps: int, length: int | None = None, way: Way = "tail") -> list[Any]:
    return Conversation(messages, way, MARK, 3).without(steps, length)


TOOLS = [system("s"), user("first"), call("a", "b"), result("a"), result("b"), user("last")]


def test_a_call_goes_with_its_results() -> None:
    assert Conversation(TOOLS, "tail", MARK, 3).steps == 1
    assert shortened(TOOLS, 0) == TOOLS
    assert shortened(TOOLS, 1) == [system("s"), user("[…] last")]


def test_tail_leaves_out_the_oldest_turns_and_head_the_newest() -> None:
    messages = [user("1"), said("one"), user("2"), said("two"), user("3")]
    assert shortened(messages, 1) == [user("[…] 2"), said("two"), user("3")]
    assert shortened(messages, 1, way="semantic") == shortened(messages, 1)
    assert shortened(messages, 1, way="head") == [user("1"), said("one"), user("[…] 3")]
    assert shortened(messages, 2) == shortened(messages, 2, way="head") == [user("[…] 3")]


def test_of_the_last_turn_the_question_and_the_last_step_stay() -> None:
    messages = [user("old"), user("q"), call("a"), result("a"), call("b"), result("b"), call("c"), result("c")]
    assert Conversation(messages, "tail", MARK, 3).steps == 3
    assert shortened(messages, 2) == [user("[…] q […]"), call("b"), result("b"), call("c"), result("c")]
    assert shortened(messages, 3) == [user("[…] q […]"), call("c"), result("c")]


def test_long_texts_of_what_stays_are_cut_and_short_ones_are_not() -> None:
    messages = [system("s" * 99), user("q" * 99), call("a"), result("a", "r" * 99), said("so" * 50)]
    assert shortened(messages[:4], 0, 30) == [
        system("s" * 99),
        user("[…] " + "q" * 26),
        call("a"),
        result("a", "[…] " + "r" * 26),
    ]
    assert shortened([user("q" * 99), result("a")], 0, 50)[1] == result("a")
    assert shortened(messages, 1)[-1] == said("so" * 50), "the beginning of an answer is no one's to cut"


def test_of_parts_only_the_texts_are_cut() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    parts = [{"type": "text", "text": "q" * 99, "x": 1}, image, "p" * 99]
    assert shortened([user("old"), user(parts)], 1, 20) == [
        user(
            [
                {"type": "text", "text": "[…] "},
                {"type": "text", "text": "[…] " + "q" * 16, "x": 1},
                image,
                "[…] " + "p" * 16,
            ]
        ),
    ]


def test_without_a_mark_no_part_is_added() -> None:
    messages = [user("old"), user([{"type": "text", "text": "q"}])]
    assert Conversation(messages, "tail", "", 3).without(1) == messages[1:]


def test_a_conversation_without_a_user_keeps_its_last_step() -> None:
    messages = [system("s"), call("a"), result("a"), call("b"), result("b")]
    assert shortened(messages, 1) == [system("s"), call("b"), result("b")]


def test_a_result_after_the_next_question_keeps_its_call() -> None:
    messages = [user("1"), call("a"), user("2"), result("a"), user("3")]
    assert shortened(messages, 1) == [user("[…] 3")]
    assert Conversation([user("1"), call("a"), user("2"), result("a")], "tail", MARK, 3).steps == 0


def test_characters_are_those_of_texts_and_arguments() -> None:
    assert (
        characters([*TOOLS, user([{"type": "text", "text": "four"}, {"type": "image_url"}])]) == 1 + 5 + 14 + 12 + 4 + 4
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "system", "said", "call", "late"]))
        ids = [f"{number}-{at}" for at in range(draw(st.integers(1, 3)))]
        messages += {
            "user": [user(f"question {number}")],
            "system": [system(f"rule {number}")],
            "said": [said(f"answer {number}")],
            "call": [call(*ids), *map(result, ids)],
            "late": [call(*ids), user(f"and {number}"), *map(result, ids)],
        }[kind]
    return messages


@given(conversations(), st.sampled_from(["head", "tail", "semantic"]), st.data())
def test_however_much_is_left_out_the_laws_hold(messages: list[dict[str, Any]], way: Way, data: st.DataObject) -> None:
    conversation = Conversation(messages, way, MARK, 3)
    kept = conversation.without(data.draw(st.integers(0, conversation.steps)))
    bare = [
        {**each, "content": (each["content"] or "").replace("[…] ", "").replace(" […]", "") or each["content"]}
        for each in kept
    ]
    left = iter(messages)
    assert all(message in left for message in bare), "in order, nothing new"
    assert [each for each in bare if each["role"] == "system"] == [
        each for each in messages if each["role"] == "system"
    ]
    assert [each for each in bare if each["role"] == "user"][-1:] == [
        each for each in messages if each["role"] == "user"
    ][-1:]
    called = {each["id"] for message in bare for each in message.get("tool_calls", ())}
    assert called == {message["tool_call_id"] for message in bare if message["role"] == "tool"}


@pytest.mark.parametrize("messages", [[], [system("s")], [{"role": "user"}], [{"content": 3}, {"role": ["x"]}]])
def test_what_is_malformed_or_small_is_taken_as_it_is(messages: list[dict[str, Any]]) -> None:
    conversation = Conversation(messages, "tail", MARK, 3)
    assert conversation.without(0) == messages
