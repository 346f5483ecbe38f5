"""Answers of /v1/responses as vLLM tells them, and a filter for them, for tests without sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


class Word:
    """Masks "papaya", blocks "zebra"; holds back while either may come."""

    def __init__(self) -> None:
        self.pending, self.fed, self.told = "", 0, 0
        self.blocked: Any = None

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        self.fed += len(text)
        self.pending += text
        return self._take(end=False)

    def finish(self) -> tuple[str, Sequence[tuple[int, int, str]]]:
        return self._take(end=True)

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown, edits = self.feed(text)
        tail, more = self.finish()
        return shown + tail, [*edits, *more]

    def _take(self, *, end: bool) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown, edits = "", []
        while self.pending and self.blocked is None:
            if self.pending.startswith("papaya"):
                edits.append((self.told, self.told + 6, "******"))
                shown, self.pending, self.told = shown + "******", self.pending[6:], self.told + 6
            elif self.pending.startswith("zebra"):
                self.blocked = "zebra"
            elif not end and any(word.startswith(self.pending) for word in ("papaya", "zebra")):
                break
            else:
                shown, self.pending, self.told = shown + self.pending[0], self.pending[1:], self.told + 1
        return shown, edits


RESPONSE = {
    "id": "resp_a410b9ce7d29beb1", "created_at": 1795975643, "incomplete_details": None, "instructions": None,
    "metadata": None, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True, "temperature": 0.0,
    "tool_choice": "none", "tools": [], "top_p": 1.0, "background": False, "max_output_tokens": 8,
    "previous_response_id": None, "service_tier": "auto", "status": "in_progress", "top_logprobs": None,
    "truncation": "disabled", "usage": None, "user": None, "input_messages": None, "output_messages": None,
}  # fmt: skip
USAGE = {"input_tokens": 37, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 8,
         "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 45}  # fmt: skip


def frame(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


class Engine:
    """Tells answers as vLLM does (SimpleStreamingEventProcessor)."""

    def __init__(self, **response: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.response = {**RESPONSE, **response}
        self.items: list[dict[str, Any]] = []
        for name in ("created", "in_progress"):
            self.tell(f"response.{name}", response=dict(self.response))

    def tell(self, kind: str, **members: Any) -> None:
        self.events.append({**members, "sequence_number": len(self.events), "type": kind})

    def text(self, *pieces: str, kind: str = "message", logprobs: bool = False) -> Engine:
        index, item_id = len(self.items), f"{kind[:3]}_{len(self.items)}"
        here = {"content_index": 0, "item_id": item_id, "output_index": index}
        reasoning = kind == "reasoning"
        name, text = ("reasoning_text", "reasoning_text") if reasoning else ("output_text", "output_text")
        item: dict[str, Any] = {
            "id": item_id,
            "content": [],
            "role": "assistant",
            "status": "in_progress",
            "type": kind,
        }
        if reasoning:
            item = {"id": item_id, "summary": [], "type": kind, "content": None, "status": "in_progress"}
        self.tell("response.output_item.added", item=item, output_index=index)
        form: dict[str, Any] = {"text": "", "type": text}
        if not reasoning:
            form |= {"annotations": [], "logprobs": []}
        self.tell("response.content_part.added", **here, part=form)
        entries = []
        for piece in pieces:
            told = [{"token": piece, "logprob": -1.5, "top_logprobs": [{"token": piece, "logprob": -1.5}]}]
            raw = {"bytes": list(piece.encode())}
            entries += [{**entry, **raw, "top_logprobs": [{"token": piece, "logprob": -1.5, **raw}]} for entry in told]
            more = {} if reasoning else {"logprobs": told if logprobs else []}
            self.tell(f"response.{name}.delta", **here, delta=piece, **more)
        whole = "".join(pieces)
        part = {**form, "text": whole}
        if not reasoning:
            part["logprobs"] = entries if logprobs else None
        self.tell(f"response.{name}.done", **here, text=whole, **({} if reasoning else {"logprobs": []}))
        self.tell("response.content_part.done", **here, part=part)
        return self.item_done({**item, "content": [part] if whole else [], "status": "completed"})

    def call(self, *pieces: str, kind: str = "function_call", name: str = "mail") -> Engine:
        index, item_id = len(self.items), f"fc_{len(self.items)}"
        fields = {"function_call": ("arguments", "function_call_arguments"),
                  "mcp_call": ("arguments", "mcp_call_arguments"),
                  "custom_tool_call": ("input", "custom_tool_call_input"),
                  "code_interpreter_call": ("code", "code_interpreter_call_code")}  # fmt: skip
        field, event = fields[kind]
        item = {
            field: "",
            "call_id": f"call_{index}",
            "name": name,
            "type": kind,
            "id": item_id,
            "status": "in_progress",
        }
        self.tell("response.output_item.added", item=item, output_index=index)
        here = {"item_id": item_id, "output_index": index}
        for piece in pieces:
            self.tell(f"response.{event}.delta", **here, delta=piece)
        self.tell(f"response.{event}.done", **here, **{field: "".join(pieces)})
        return self.item_done({**item, field: "".join(pieces), "status": "completed"})

    def item_done(self, item: dict[str, Any]) -> Engine:
        self.tell("response.output_item.done", item=item, output_index=len(self.items))
        self.items.append(item)
        return self

    def end(self, status: str = "completed", **more: Any) -> bytes:
        ended = {**self.response, "output": self.items, "status": status, "usage": USAGE, **more}
        if status == "incomplete":
            ended.setdefault("incomplete_details", {})
            ended["incomplete_details"] = ended["incomplete_details"] or {"reason": "max_output_tokens"}
        self.tell("response.completed", response=ended)
        return self.bytes()

    def bytes(self) -> bytes:
        return b"".join(map(frame, self.events))
