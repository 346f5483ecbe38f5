"""How the fake engine answers /v1/responses and /v1/messages: vLLM's events, with a script's pauses between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.fakes.forms import Delta, dumps
from tests.fakes.responses import USAGE, Engine, frame

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
_ENDS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _kind(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return what kind of text a delta is, and the text."""
    if fields.get("reasoning"):
        return "reasoning", str(fields["reasoning"])
    if fields.get("tool_calls"):
        return "call", str(fields["tool_calls"][0].get("function", {}).get("arguments") or "")
    return "content", str(fields.get("content") or "")


def _runs(parts: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Gather the pieces by kind; what is no text (a pause, a gate, a signal) stays where it is."""
    runs: list[tuple[str, list[Any]]] = []
    for part in parts:
        if isinstance(part, Delta):
            kind, text = _kind(part.fields)
            if not runs or runs[-1][0] not in {kind, ""}:
                runs.append((kind, []))
            elif not runs[-1][0]:
                runs[-1] = (kind, runs[-1][1])
            runs[-1][1].append(text)
        else:
            if not runs:
                runs.append(("", []))
            runs[-1][1].append(part)
    return runs


class Responses:
    """Answers as /v1/responses does."""

    def __init__(self, body: Mapping[str, Any], number: int) -> None:
        known = {
            name: body[name] for name in ("model", "instructions", "previous_response_id", "background") if name in body
        }
        self.engine = Engine(**known, id=body.get("request_id") or f"resp_{number:016x}")

    def _tell(self, parts: list[Any], finish: str | None) -> None:
        for kind, pieces in _runs(parts):
            texts = [piece for piece in pieces if isinstance(piece, str)]
            if kind == "call":
                self.engine.call(*texts)
            elif kind:
                self.engine.text(*texts, kind="message" if kind == "content" else kind)
        self.engine.end("incomplete" if finish == "length" else "completed")

    def stream(self, parts: list[Any], finish: str | None) -> list[Any]:
        """Return the frames of a stream, with what is no text between them."""
        self._tell(parts, finish)
        waits: list[list[Any]] = [[]]
        for part in parts:
            if isinstance(part, Delta):
                waits.append([])
            else:
                waits[-1].append(part)
        actions, seen = list[Any](), 0
        opening = [frame(event) for event in self.engine.events[:2]]
        actions += [*opening, *waits[0]]
        for event in self.engine.events[2:]:
            actions.append(frame(event))
            if event["type"].endswith(".delta"):
                seen += 1
                actions += waits[seen]
        return actions

    def whole(self, parts: list[Any], finish: str | None) -> bytes:
        """Return the whole answer."""
        self._tell(parts, finish)
        return dumps(self.engine.events[-1]["response"])


class Messages:
    """Answers as /v1/messages does."""

    def __init__(self, body: Mapping[str, Any], number: int) -> None:
        self.message: dict[str, Any] = {
            "id": f"chatcmpl-{number:016x}", "type": "message", "role": "assistant", "content": [],
            "model": body.get("model"), "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": USAGE["input_tokens"], "output_tokens": 0},
        }  # fmt: skip

    def stream(self, parts: list[Any], finish: str | None) -> list[Any]:
        """Return the frames of a stream, with what is no text between them."""
        forms: dict[str, tuple[dict[str, Any], str, str]] = {
            "content": ({"type": "text", "text": ""}, "text_delta", "text"),
            "reasoning": ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
            "call": (
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
                "input_json_delta",
                "partial_json",
            ),
        }
        actions: list[Any] = [frame({"type": "message_start", "message": self.message})]
        tokens = 0
        for index, (kind, pieces) in enumerate(_runs(parts)):
            if not kind:
                actions += pieces
                continue
            form, delta, field = forms[kind]
            actions.append(frame({"type": "content_block_start", "content_block": form, "index": index}))
            for piece in pieces:
                if not isinstance(piece, str):
                    actions.append(piece)
                    continue
                tokens += 1
                told = {"type": delta, field: piece}
                actions.append(frame({"type": "content_block_delta", "delta": told, "index": index}))
            actions.append(frame({"type": "content_block_stop", "index": index}))
        usage = {"input_tokens": USAGE["input_tokens"], "output_tokens": tokens}
        ended = {"stop_reason": _ENDS.get(finish or "", finish), "stop_sequence": None}
        actions.append(frame({"type": "message_delta", "delta": ended, "usage": usage}))
        return [*actions, frame({"type": "message_stop"})]

    def whole(self, parts: list[Any], finish: str | None) -> bytes:
        """Return the whole answer."""
        content: list[dict[str, Any]] = []
        tokens = 0
        for kind, pieces in _runs(parts):
            texts = [piece for piece in pieces if isinstance(piece, str)]
            tokens += len(texts)
            text = "".join(texts)
            if kind == "call":
                content.append({"type": "tool_use", "id": "call_1", "name": "f", "input": json.loads(text)})
            elif kind == "reasoning":
                content.append({"type": "thinking", "thinking": text, "signature": "5f1a"})
            elif kind:
                content.append({"type": "text", "text": text})
        usage = {"input_tokens": USAGE["input_tokens"], "output_tokens": tokens}
        return dumps(
            {**self.message, "content": content, "stop_reason": _ENDS.get(finish or "", finish), "usage": usage}
        )


#: By route.
TELLERS: dict[str, type[Responses | Messages]] = {RESPONSES: Responses, MESSAGES: Messages}
