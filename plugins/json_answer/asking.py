"""The request that asks a model again, with what was wrong with its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.json_answer.forms import MESSAGES, RESPONSES, dialogue

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LENGTH = 20_000  # code points of the first answer that are shown to the model again
_AGAIN = (
    "Your answer cannot be used: {fault}. Answer again with the whole corrected JSON, and with nothing else: "
    "no explanation, no code fence."
)
_CALL_AGAIN = "The call was not made, for its arguments cannot be used: {fault}. Make the call again, corrected."
_NOT_MADE = "The call was not made."


def again(
    route: str, request: Mapping[str, Any], choice: Mapping[str, Any], fault: str, tokens: int
) -> dict[str, Any] | None:
    """Return the request for one choice's second try, of at most ``tokens``; None where there is no way to ask."""
    asked = {name: value for name, value in request.items() if name not in {"stream", "stream_options", "best_of"}}
    limits = [name for name in _LIMITS if request.get(name) is not None]
    most = "max_output_tokens" if route == RESPONSES else "max_tokens"
    asked |= {name: min(int(request[name]), tokens) for name in limits} or {most: tokens}
    if route not in {MESSAGES, RESPONSES}:  # which know one answer
        asked["n"] = 1
    field = "input" if route == RESPONSES else "messages"
    before = request.get(field)
    if route == RESPONSES and isinstance(before, str):
        before = [{"role": "user", "content": before}]
    if isinstance(before, list):
        asked[field] = [*before, *dialogue(route, _dialogue(choice.get("message") or {}, fault))]
        return asked
    prompt = request.get("prompt")
    if not isinstance(prompt, str):  # of several prompts nobody knows whose answer it is
        return None
    said = str(choice.get("text") or "")[:_LENGTH]
    asked["prompt"] = f"{prompt}{said}\n\n{_AGAIN.format(fault=fault)}\n\n"
    return asked


def _dialogue(message: Mapping[str, Any], fault: str) -> list[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    content = message.get("content")
    said = content[:_LENGTH] if isinstance(content, str) else content
    if not calls:
        return [{"role": "assistant", "content": said or ""}, {"role": "user", "content": _AGAIN.format(fault=fault)}]
    told = _CALL_AGAIN.format(fault=fault)
    results = [
        {"role": "tool", "tool_call_id": call.get("id"), "content": told if index == 0 else _NOT_MADE}
        for index, call in enumerate(calls)
    ]
    return [{"role": "assistant", "content": said, "tool_calls": calls}, *results]
