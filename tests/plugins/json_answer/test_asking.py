"""The second try says what was wrong, asks for one choice, and keeps within the budget."""

from __future__ import annotations

from plugins.json_answer.asking import again

ROUTE = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "q"}], "n": 3, "stream": True, "stream_options": {}, "seed": 1}


def test_a_chat_goes_on_with_what_was_wrong() -> None:
    asked = again(ROUTE, CHAT, {"message": {"content": "{oops"}}, "it is cut off", 100)
    assert asked is not None
    assert asked["messages"][:2] == [*CHAT["messages"], {"role": "assistant", "content": "{oops"}]  # type: ignore[misc] # a list
    assert "it is cut off" in asked["messages"][2]["content"]
    assert (asked["n"], asked["max_tokens"], asked["seed"]) == (1, 100, 1)
    assert not asked.keys() & {"stream", "stream_options"}


def test_the_budget_never_raises_what_the_caller_asked_for() -> None:
    asked = again(ROUTE, {**CHAT, "max_completion_tokens": 7}, {"message": {}}, "x", 100)
    assert asked is not None
    assert (asked["max_completion_tokens"], asked.get("max_tokens")) == (7, None)


def test_every_call_of_a_tool_gets_its_result() -> None:
    calls = [{"id": "1", "function": {}}, {"id": "2", "function": {}}]
    asked = again(ROUTE, CHAT, {"message": {"content": None, "tool_calls": calls}}, "x is missing", 100)
    assert asked is not None
    assistant, first, second = asked["messages"][1:]
    assert assistant["tool_calls"] == calls
    assert ("x is missing" in first["content"], first["tool_call_id"]) == (True, "1")
    assert second["tool_call_id"] == "2"


def test_one_prompt_goes_on_and_several_cannot() -> None:
    asked = again(ROUTE, {"prompt": "Q: "}, {"text": "{oops"}, "bad", 9)
    assert asked is not None
    assert asked["prompt"].startswith("Q: {oops\n\n")
    assert again(ROUTE, {"prompt": ["a", "b"]}, {"text": ""}, "bad", 9) is None
