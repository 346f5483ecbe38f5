"""One choice is checked in all its parts, and mended in all or in none."""

from __future__ import annotations

from typing import Any

from plugins.json_answer.review import concerns, is_cut, judge
from plugins.json_answer.schema import Checker, Plan

OBJECT = Checker({"type": "object"})
PLAN = Plan(OBJECT, {"f": Checker({"required": ["x"]})})


def said(content: str | None, *arguments: str, **more: Any) -> dict[str, Any]:
    calls = [{"function": {"name": "f", "arguments": each}} for each in arguments]
    return {"message": {"content": content, **({"tool_calls": calls} if calls else {})}, **more}


def test_valid_json_is_never_changed() -> None:
    text = (
        '{"a":"x \\"y\\", z","p":"C:\\\\dir\\\\","n":12345678901234567890,"e":1e10,'
        '"c":"m\\nrollback: (r: R, s: S) => void;","q":"她说“好”，走了"}'
    )
    choice = said(text)
    verdict = judge(choice, PLAN, repair=True)
    assert (verdict.fault, verdict.repaired, choice["message"]["content"]) == (None, False, text)


def test_what_is_cut_off_stays_as_it_is_and_is_said_to_be() -> None:
    choice = said('{"steps":["a","b', finish_reason="length")
    verdict = judge(choice, PLAN, repair=True)
    assert "cut off" in str(verdict.fault)
    assert choice == said('{"steps":["a","b', finish_reason="length")
    assert is_cut(choice)


def test_a_call_that_is_cut_off_is_not_completed() -> None:
    choice = said(None, '{"path":"/tmp/x","body":"rm')
    verdict = judge(choice, PLAN, repair=True)
    assert str(verdict.fault).startswith("tool_calls[0].function.arguments: ")
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"path":"/tmp/x","body":"rm'


def test_arguments_are_held_to_their_tool_s_parameters() -> None:
    assert judge(said(None, '{"x":1}'), PLAN, repair=True).fault is None
    assert '"x" is a required property' in str(judge(said(None, "{}"), PLAN, repair=True).fault)
    choice = said(None, "{'x':1,}")
    assert judge(choice, PLAN, repair=True).repaired
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'


def test_all_parts_are_mended_or_none() -> None:
    choice = said(None, "{'x':1,}", "{}")
    assert judge(choice, PLAN, repair=True).fault is not None
    assert choice == said(None, "{'x':1,}", "{}")


def test_without_repair_nothing_is_mended() -> None:
    choice = said("```json\n{}\n```")
    assert judge(choice, PLAN, repair=False).fault is not None
    assert choice == said("```json\n{}\n```")


def test_what_is_said_beside_a_call_or_in_refusal_is_for_people() -> None:
    assert judge(said("Let me look.", '{"x":1}'), PLAN, repair=True).fault is None
    assert not concerns({"message": {"content": None, "refusal": "No."}}, PLAN)
    assert not concerns({"message": {"content": "x"}}, Plan(None, {}))
    assert concerns({"text": ""}, PLAN)
