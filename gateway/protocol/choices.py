"""Answers of every route as choices of a chat: for whoever looks at what was said, and not at how it is told."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocol.messages import MESSAGES
from gateway.protocol.responses import RESPONSES

Choice = dict[str, Any]

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_STOPPED = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def choices(route: str, body: dict[str, Any]) -> list[Choice]:
    """Return what was answered: the body's own choices, or one made of a response or a message."""
    if route == RESPONSES:
        return [_of_response(body)] if isinstance(body.get("output"), list) else []
    if route == MESSAGES:
        return [_of_message(body)] if isinstance(body.get("content"), list) else []
    found = body.get("choices")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def put(route: str, body: dict[str, Any], choice: Choice) -> None:
    """Write a choice's content, the arguments of its calls and a ``stop`` in its end back into the body it is of."""
    if route not in {RESPONSES, MESSAGES}:
        return  # it is the body's own
    message = choice["message"]
    calls = message.get("tool_calls") or []
    if not calls:
        _drop_calls(route, body)
    if route == RESPONSES:
        texts = [part for item in _items(body, "message") for part in _parts(item, "output_text")]
        for item, call in zip(_items(body, "function_call"), calls, strict=False):
            item["arguments"] = call["function"]["arguments"]
        if choice["finish_reason"] == "stop":
            body |= {"status": "completed", "incomplete_details": None}
    else:
        texts = _parts(body, "text")
        for block, call in zip(_parts(body, "tool_use"), calls, strict=False):
            block["input"] = _decoded(call["function"]["arguments"])
        if choice["finish_reason"] == "stop" and body.get("stop_reason") not in {"end_turn", "stop_sequence"}:
            body["stop_reason"] = "end_turn"
    if not texts and message.get("content"):
        texts = [_new_text(route, body)]
    if texts and "".join(part["text"] for part in texts) != message.get("content"):
        for part in texts:
            part["text"] = ""
        texts[0]["text"] = message.get("content") or ""


def _drop_calls(route: str, body: dict[str, Any]) -> None:
    field, kind = ("output", "function_call") if route == RESPONSES else ("content", "tool_use")
    body[field] = [each for each in body[field] if not (isinstance(each, dict) and each.get("type") == kind)]


def _new_text(route: str, body: dict[str, Any]) -> dict[str, Any]:
    """Add an empty text to an answer that has none, and return it."""
    if route == MESSAGES:
        part: dict[str, Any] = {"type": "text", "text": ""}
        body["content"].append(part)
        return part
    part = {"type": "output_text", "text": "", "annotations": []}
    unique = str(body.get("id") or "").rpartition("_")[2]
    item = {"type": "message", "id": f"msg_{unique}", "role": "assistant", "status": "completed", "content": [part]}
    body["output"].append(item)
    return part


def _of_response(body: dict[str, Any]) -> Choice:
    parts = [part for item in _items(body, "message") for part in _parts(item, "output_text")]
    refusals = [part for item in _items(body, "message") for part in _parts(item, "refusal")]
    calls = [
        _call(item.get("call_id"), item.get("name"), item.get("arguments")) for item in _items(body, "function_call")
    ]
    reason = (body.get("incomplete_details") or {}).get("reason")
    ended = "tool_calls" if calls else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": _joined(parts, "text"), "tool_calls": calls or None}
    if refusals:
        message["refusal"] = _joined(refusals, "refusal")
    logprobs = [each for part in parts for each in part.get("logprobs") or ()]
    return {
        "index": 0,
        "message": message,
        "finish_reason": _INCOMPLETE.get(str(reason), ended) if body.get("status") == "incomplete" else ended,
        "logprobs": {"content": logprobs} if logprobs else None,
    }


def _of_message(body: dict[str, Any]) -> Choice:
    calls = [
        _call(block.get("id"), block.get("name"), msgspec.json.encode(block.get("input")).decode())
        for block in _parts(body, "tool_use")
    ]
    text = _joined(_parts(body, "text"), "text")
    return {
        "index": 0,
        "message": {"role": "assistant", "content": text, "tool_calls": calls or None},
        "finish_reason": _STOPPED.get(str(body.get("stop_reason")), "stop"),
        "logprobs": None,
    }


def _items(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item for item in body["output"] if isinstance(item, dict) and item.get("type") == kind]


def _parts(holder: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = holder.get("content")
    return [part for part in content or () if isinstance(part, dict) and part.get("type") == kind]


def _joined(parts: list[dict[str, Any]], field: str) -> str | None:
    return "".join(str(part.get(field) or "") for part in parts) if parts else None


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _decoded(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}
