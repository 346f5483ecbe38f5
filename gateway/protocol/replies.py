"""What a plugin answers itself, told in its route's own form: plugins speak that of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocol.messages import error_type

_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_DETAILS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def as_it_is(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply."""
    del status
    return body


def as_response(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Tell a chat's answer as a response; what is none stays as it is."""
    said = _said(body)
    if status != 200 or said is None:
        return body
    finish, message = said
    unique = str(body.get("id") or "").rpartition("-")[2]
    output: list[dict[str, Any]] = []
    if thought := message.get("reasoning") or message.get("reasoning_content"):
        part = {"type": "reasoning_text", "text": thought}
        output.append({"type": "reasoning", "id": f"rs_{unique}", "summary": [], "content": [part], "status": None})
    if message.get("content") or message.get("refusal") or not message.get("tool_calls"):
        parts: list[dict[str, Any]] = []
        if message.get("content") is not None or not message.get("refusal"):
            parts.append({"type": "output_text", "text": message.get("content") or "", "annotations": []})
        if message.get("refusal"):
            parts.append({"type": "refusal", "refusal": message["refusal"]})
        ended = "incomplete" if finish in _DETAILS else "completed"
        item = {"type": "message", "id": f"msg_{unique}", "role": "assistant", "status": ended}
        output.append({**item, "content": parts})
    for at, call in enumerate(message.get("tool_calls") or ()):
        head = {"type": "function_call", "id": f"fc_{unique}{at}", "call_id": call.get("id"), "status": "completed"}
        output.append({**head, **call["function"]})
    told = {
        "id": f"resp_{unique}", "object": "response", "created_at": body.get("created", 0), "model": body.get("model"),
        "status": "incomplete" if finish in _DETAILS else "completed", "error": None, "output": output,
        "incomplete_details": {"reason": _DETAILS[finish]} if finish in _DETAILS else None, "instructions": None,
        "metadata": None, "parallel_tool_calls": True, "temperature": None, "tool_choice": "auto", "tools": [],
        "top_p": None, "usage": None,
    }  # fmt: skip
    if (used := body.get("usage")) is not None:
        prompt, completion = used.get("prompt_tokens", 0), used.get("completion_tokens", 0)
        told["usage"] = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        }
    return {**told, "sluice": body["sluice"]} if "sluice" in body else told


def as_message(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Tell a chat's answer as a message, and an error in Anthropic's shape; what is neither stays as it is."""
    error = body.get("error")
    if status != 200 and isinstance(error, dict):
        return {"type": "error", "error": {"type": error_type(status), "message": error.get("message") or ""}}
    said = _said(body)
    if status != 200 or said is None:
        return body
    finish, message = said
    content: list[dict[str, Any]] = []
    if thought := message.get("reasoning") or message.get("reasoning_content"):
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    text = message.get("content") or message.get("refusal") or ""
    if text or not message.get("tool_calls"):
        content.append({"type": "text", "text": text})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        given = _object(function.get("arguments"))
        content.append({"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given})
    used = body.get("usage") or {}
    told = {
        "id": f"msg_{str(body.get('id') or '').rpartition('-')[2]}", "type": "message", "role": "assistant",
        "content": content, "model": body.get("model"), "stop_reason": _STOPS.get(finish, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": used.get("prompt_tokens", 0), "output_tokens": used.get("completion_tokens", 0)},
    }  # fmt: skip
    return {**told, "sluice": body["sluice"]} if "sluice" in body else told


def _said(body: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return how the first choice ends, and its message; None where there is none."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    message = choice.get("message")
    return str(choice.get("finish_reason")), message if isinstance(message, dict) else {"content": choice.get("text")}


def _object(arguments: Any) -> Any:
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.MsgspecError, TypeError):
        return {}
