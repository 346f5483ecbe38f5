"""Answers of every route as choices of a chat: for whoever looks at what was said, and not at how it is told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import msgspec

Choice = dict[str, Any]

_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_STOPPED = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


class Choices(Protocol):
    """How the answers of a route are seen as choices."""

    def of(self, body: dict[str, Any]) -> list[Choice]:
        """Return what was answered."""

    def put(self, body: dict[str, Any], choice: Choice) -> None:
        """Write a choice's content, the arguments of its calls and a ``stop`` in its end back into its body."""


class OwnChoices:
    """Answers that are choices."""

    def of(self, body: dict[str, Any]) -> list[Choice]:
        """Return the body's own."""
        found = body.get("choices")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def put(self, body: dict[str, Any], choice: Choice) -> None:
        """Do nothing: the choice is the body's own."""


class _Made(ABC):
    """Answers of which a choice is made."""

    field: str  # what was answered
    call: str  # the type of a call in it

    @abstractmethod
    def _choice(self, body: dict[str, Any]) -> Choice: ...

    @abstractmethod
    def _texts(self, body: dict[str, Any]) -> list[dict[str, Any]]: ...

    @abstractmethod
    def _write(self, call: dict[str, Any], arguments: str) -> None: ...

    @abstractmethod
    def _stop(self, body: dict[str, Any]) -> None: ...

    @abstractmethod
    def _new_text(self, body: dict[str, Any]) -> dict[str, Any]:
        """Add an empty text to an answer that has none, and return it."""

    def of(self, body: dict[str, Any]) -> list[Choice]:
        """Return one that is made of the answer."""
        return [self._choice(body)] if isinstance(body.get(self.field), list) else []

    def put(self, body: dict[str, Any], choice: Choice) -> None:
        """Write a choice's content, the arguments of its calls and a ``stop`` in its end back into its body."""
        message = choice["message"]
        calls = message.get("tool_calls") or []
        told = _typed(body[self.field], self.call)
        if not calls:
            body[self.field] = [each for each in body[self.field] if each not in told]
        for each, call in zip(told, calls, strict=False):
            self._write(each, call["function"]["arguments"])
        if choice["finish_reason"] == "stop":
            self._stop(body)
        texts = self._texts(body)
        if not texts and message.get("content"):
            texts = [self._new_text(body)]
        if texts and "".join(part["text"] for part in texts) != message.get("content"):
            for part in texts:
                part["text"] = ""
            texts[0]["text"] = message.get("content") or ""


class ResponseChoices(_Made):
    """Answers of /v1/responses."""

    field, call = "output", "function_call"

    def _texts(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return [part for item in _items(body, "message") for part in _parts(item, "output_text")]

    def _write(self, call: dict[str, Any], arguments: str) -> None:
        call["arguments"] = arguments

    def _stop(self, body: dict[str, Any]) -> None:
        body |= {"status": "completed", "incomplete_details": None}

    def _new_text(self, body: dict[str, Any]) -> dict[str, Any]:
        part = {"type": "output_text", "text": "", "annotations": []}
        unique = str(body.get("id") or "").rpartition("_")[2]
        item = {"type": "message", "id": f"msg_{unique}", "role": "assistant", "status": "completed", "content": [part]}
        body["output"].append(item)
        return part

    def _choice(self, body: dict[str, Any]) -> Choice:
        parts = [part for item in _items(body, "message") for part in _parts(item, "output_text")]
        refusals = [part for item in _items(body, "message") for part in _parts(item, "refusal")]
        calls = [
            _call(item.get("call_id"), item.get("name"), item.get("arguments"))
            for item in _items(body, "function_call")
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


class MessageChoices(_Made):
    """Answers of /v1/messages."""

    field, call = "content", "tool_use"

    def _texts(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return _parts(body, "text")

    def _write(self, call: dict[str, Any], arguments: str) -> None:
        call["input"] = _decoded(arguments)

    def _stop(self, body: dict[str, Any]) -> None:
        if body.get("stop_reason") not in {"end_turn", "stop_sequence"}:
            body["stop_reason"] = "end_turn"

    def _new_text(self, body: dict[str, Any]) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "text", "text": ""}
        body["content"].append(part)
        return part

    def _choice(self, body: dict[str, Any]) -> Choice:
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


def _typed(found: list[Any], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict) and each.get("type") == kind]


def _items(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return _typed(body["output"], kind)


def _parts(holder: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return _typed(holder.get("content") or [], kind)


def _joined(parts: list[dict[str, Any]], field: str) -> str | None:
    return "".join(str(part.get(field) or "") for part in parts) if parts else None


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _decoded(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}
