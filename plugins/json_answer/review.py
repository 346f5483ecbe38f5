"""Checks and mends one choice of an answer: its content and the arguments of its tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plugins.json_answer.finding import find
from plugins.json_answer.mending import Broken
from plugins.json_answer.schema import Checker, Plan

_CUT = frozenset({"length", "content_filter"})


@dataclass(slots=True)
class Verdict:
    """What became of one choice. ``fault`` says why it is not valid.

    ``unfit``: place, text and fault of each part that was not the JSON asked for, mended or not.
    """

    fault: str | None = None
    repaired: bool = False
    attempts: int = 1
    unfit: list[tuple[str, str, str]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Return it as the caller sees it."""
        said = {"valid": self.fault is None, "repaired": self.repaired, "attempts": self.attempts}
        return said if self.fault is None else {**said, "error": self.fault}


@dataclass(frozen=True, slots=True)
class _Part:
    """A JSON text in a choice: where it stands, what it is held to, how a fault in it is told."""

    holder: dict[str, Any]
    field: str
    checker: Checker
    place: str = ""

    @property
    def text(self) -> str:
        return str(self.holder.get(self.field) or "")


def is_cut(choice: dict[str, Any]) -> bool:
    """Was the answer ended before the model had done with it? Asked again it would end there again."""
    return choice.get("finish_reason") in _CUT


def concerns(choice: dict[str, Any], plan: Plan) -> bool:
    """Is there anything in this choice that the plan says something of?"""
    return next(_parts(choice, plan), None) is not None


def length(choice: dict[str, Any], plan: Plan) -> int:
    """Return how much there is to look at, in code points."""
    return sum(len(part.text) for part in _parts(choice, plan))


def judge(choice: dict[str, Any], plan: Plan, *, repair: bool) -> Verdict:
    """Check a choice; with ``repair`` mend in place what is broken. What is valid is left as it is, byte for byte."""
    verdict = Verdict()
    mended: list[tuple[_Part, str]] = []
    for part in _parts(choice, plan):
        fault = part.checker.fault(part.text)
        if fault is not None:
            verdict.unfit.append((part.place.removesuffix(": ") or part.field, part.text, fault))
        if fault is not None and repair:
            try:
                mended.append((part, find(part.text, part.checker.fault)))
            except Broken as broken:
                fault = f"{fault}; {broken}" if broken.cut_off else fault
            else:
                fault = None
        if fault is not None:
            verdict.fault = f"{part.place}{fault}"
            return verdict
    for part, text in mended:
        part.holder[part.field] = text
        verdict.repaired = True
    return verdict


def _parts(choice: dict[str, Any], plan: Plan) -> Iterator[_Part]:
    message = choice.get("message")
    if not isinstance(message, dict):
        if plan.content is not None and "text" in choice:
            yield _Part(choice, "text", plan.content)
        return
    calls = message.get("tool_calls")
    if not calls:
        if plan.content is not None and not message.get("refusal"):
            yield _Part(message, "content", plan.content)
        return
    for index, call in enumerate(calls):  # what is said beside calls is for people
        function = call.get("function") if isinstance(call, dict) else None
        checker = plan.tools.get(str(function.get("name"))) if isinstance(function, dict) else None
        if checker is not None and isinstance(function, dict):
            yield _Part(function, "arguments", checker, f"tool_calls[{index}].function.arguments: ")
