"""The chunks of a stream, put together again as one whole answer."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocol import sse
from gateway.protocol.chunks import Usage

#: Of a delta, what is told anew and not gone on with.
LABELS = frozenset({"role", "id", "type", "name"})


def merge_chunk(whole: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Add one chunk to the answer that is being put together."""
    for key, value in chunk.items():
        if key not in {"choices", "usage", "object"}:
            whole.setdefault(key, value)
    parts = whole.setdefault("choices", {})
    for choice in chunk.get("choices") or ():
        mine = parts.setdefault(choice.get("index", 0), {"index": choice.get("index", 0), "finish_reason": None})
        if choice.get("finish_reason") is not None:
            mine["finish_reason"] = choice["finish_reason"]
        logprobs = choice.get("logprobs")
        if logprobs:
            into = mine.setdefault("logprobs", {})
            for key, value in logprobs.items():
                if isinstance(value, list):
                    into.setdefault(key, []).extend(value)
        if "text" in choice:
            mine["text"] = mine.get("text", "") + (choice["text"] or "")
        elif isinstance(choice.get("delta"), dict):
            _merge_delta(mine.setdefault("message", {"role": "assistant", "content": None}), choice["delta"])


def merge_text(whole: dict[str, Any], index: int, text: str) -> None:
    """Add a text to a choice of which chunks with a text have been added before."""
    mine = whole["choices"][index]
    if "message" in mine:
        mine["message"]["content"] = (mine["message"]["content"] or "") + text
    else:
        mine["text"] += text


def frames_of(shown: bytes) -> list[bytes]:
    """Part what is shown into its events."""
    if b"\r" in shown:
        return sse.Splitter().feed(shown)
    return [part + b"\n\n" for part in shown.split(b"\n\n")[:-1]]


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for call in value or ():
                mine = calls.setdefault(
                    call.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}}
                )
                for part in ("name", "arguments"):
                    mine["function"][part] += (call.get("function") or {}).get(part) or ""
                mine.update({part: call[part] for part in ("id", "type") if call.get(part)})
        elif isinstance(value, str) and key not in LABELS:
            message[key] = (message.get(key) or "") + value
        elif value is not None:
            message[key] = value


def finish_merge(whole: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """Turn what ``merge_chunk`` gathered into the form of a whole answer."""
    choices = [choice for _, choice in sorted(whole.get("choices", {}).items())]
    for choice in choices:
        calls = choice.get("message", {}).get("tool_calls")
        if calls is not None:
            choice["message"]["tool_calls"] = [call for _, call in sorted(calls.items())]
    counted = {"usage": msgspec.to_builtins(Usage(usage.prompt_tokens, usage.completion_tokens))} if usage else {}
    kind = "chat.completion" if any("message" in choice for choice in choices) else "text_completion"
    return {**whole, "object": kind, "choices": choices, **counted}
