"""What vLLM 0.32 answers, byte for byte in form: the same keys in the same order, without I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

CREATED = 1795962862
FINGERPRINT = "vllm-0.32.0-e5daedad"
DONE = b"data: [DONE]\n\n"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Delta(NamedTuple):
    """A piece of one choice: ``fields`` is the chat delta, with content, reasoning or tool_calls."""

    choice: int
    fields: Mapping[str, Any]


def dumps(value: Any) -> bytes:
    """Encode as pydantic does: no spaces, UTF-8 as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def event(value: Any) -> bytes:
    """Frame one server-sent event."""
    return b"data: " + dumps(value) + b"\n\n"


def error(
    status: int, message: str = "it failed", kind: str = "BadRequestError", param: str | None = None
) -> dict[str, Any]:
    """Build vLLM's nested error object, whose ``code`` is a number."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def chunk(content: str | None = None, index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Build a plain chat chunk for scripts that write their own events."""
    delta = {} if content is None else {"content": content}
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "smollm2"}
    return head | {"choices": [choice]} | more


def error_event(status: int, message: str = "it failed", kind: str = "InternalServerError") -> bytes:
    """Frame an error inside a stream: the one event that vLLM writes with spaces."""
    return b"data: " + json.dumps(error(status, message, kind)).encode() + b"\n\n"


def tool_call(
    index: int, call_id: str | None = None, name: str | None = None, arguments: str | None = None
) -> dict[str, Any]:
    """Build a chat delta with one piece of a tool call."""
    head = {"id": call_id, "type": "function"} if call_id is not None else {}
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [head | {"index": index, "function": function}]}


def _token_logprobs(text: str) -> dict[str, Any]:
    token = {"token": text, "logprob": -0.125, "bytes": list(text.encode("utf-8", "surrogatepass"))}
    return {"content": [token | {"top_logprobs": [token]}]}


def _text_logprobs(text: str, offset: int) -> dict[str, Any]:
    return {"text_offset": [offset], "token_logprobs": [-0.125], "tokens": [text], "top_logprobs": [{text: -0.125}]}


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer to one request looks: taken from the request, as the engine does."""

    chat: bool
    id: str
    model: str
    choices: int
    logprobs: bool
    usage: bool
    continuous: bool

    @classmethod
    def of(cls, route: str, body: Mapping[str, Any], number: int) -> Form:
        """Read the form from a request."""
        prompt = body.get("prompt")
        prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
        options = body.get("stream_options") or {}
        chat = route == CHAT
        logprobs = bool(body.get("logprobs")) if chat else body.get("logprobs") is not None
        return cls(
            chat,
            f"{'chatcmpl' if chat else 'cmpl'}-{number:016x}",
            str(body.get("model") or "smollm2"),
            int(body.get("n") or 1) * prompts,
            logprobs,
            bool(options.get("include_usage")),
            bool(options.get("continuous_usage_stats")),
        )

    def _used(self, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": 12, "total_tokens": 12 + tokens, "completion_tokens": tokens}

    def _chunk(self, choices: list[dict[str, Any]], tokens: int, **more: Any) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": CREATED, "model": self.model, "choices": choices}
        return event(head | ({"usage": self._used(tokens)} if self.continuous and choices else {}) | more)

    def roles(self) -> list[bytes]:
        """Return the role chunks, one for each choice; completions have none."""
        if not self.chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [
            self._chunk(
                [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}], 0,
                prompt_token_ids=None, prompt_text=None,
            )
            for index in range(self.choices)
        ]  # fmt: skip

    def piece(self, delta: Delta, finish: str | None, tokens: int, offset: int = 0) -> bytes:
        """Return one ordinary chunk, or the finish chunk, which carries the last text."""
        ends: dict[str, Any] = {"finish_reason": finish}
        text = delta.fields.get("content")
        if self.chat:
            logprobs = _token_logprobs(text) if self.logprobs and text else None
            ends |= {"stop_reason": None} if finish else {}
            choice = {
                "index": delta.choice,
                "delta": dict(delta.fields),
                "logprobs": logprobs,
                **ends,
                "token_ids": None,
            }
        else:
            logprobs = _text_logprobs(text or "", offset) if self.logprobs else None
            ends |= {"stop_reason": None, "prompt_token_ids": None, "token_ids": None}
            choice = {"index": delta.choice, "text": text or "", "logprobs": logprobs, **ends}
        last = {"system_fingerprint": FINGERPRINT} if finish and not self.usage else {}
        return self._chunk([choice], tokens, **last)

    def ending(self, tokens: int) -> list[bytes]:
        """Return the usage chunk, if asked for."""
        if not self.usage:
            return []
        return [self._chunk([], tokens, usage=self._used(tokens), system_fingerprint=FINGERPRINT)]

    def whole(self, deltas: Iterable[Delta], finish: str | None) -> bytes:
        """Return the whole answer as one JSON body."""
        pieces = list(deltas)
        numbers = range(max([self.choices, *(delta.choice + 1 for delta in pieces)]))
        of_choice = [[delta.fields for delta in pieces if delta.choice == index] for index in numbers]
        make = self._whole_chat if self.chat else self._whole_text
        body = {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": CREATED,
            "model": self.model,
            "choices": [make(index, fields, finish) for index, fields in enumerate(of_choice)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._used(len(pieces)) | dict.fromkeys(["prompt_tokens_details", "completion_tokens_details"]),
        }
        nothing = ["kv_transfer_params", "ec_transfer_params", "metrics"]
        return dumps(
            body | dict.fromkeys([*(["prompt_logprobs", "prompt_token_ids", "prompt_text"] * self.chat), *nothing])
        )

    def _whole_chat(self, index: int, pieces: list[Mapping[str, Any]], finish: str | None) -> dict[str, Any]:
        contents = [piece["content"] for piece in pieces if piece.get("content")]
        reasoning = "".join(piece.get("reasoning") or "" for piece in pieces)
        calls = list(_calls(pieces))
        message = {
            "role": "assistant",
            "content": "".join(contents) if contents or not calls else None,
            **dict.fromkeys(["refusal", "annotations", "audio", "function_call"]),
            **({"tool_calls": calls} if calls else {}),
            "reasoning": reasoning or None,
        }
        logprobs = {"content": [entry for text in contents for entry in _token_logprobs(text)["content"]]}
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs if self.logprobs else None,
            "finish_reason": finish,
            **dict.fromkeys(["stop_reason", "token_ids", "routed_experts"]),
        }

    def _whole_text(self, index: int, pieces: list[Mapping[str, Any]], finish: str | None) -> dict[str, Any]:
        texts = [str(piece.get("content", "")) for piece in pieces]
        logprobs: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        offset = 0
        for text in texts:
            for key, value in _text_logprobs(text, offset).items():
                logprobs[key] += value
            offset += len(text)
        rest = ["stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts"]
        head = {"index": index, "text": "".join(texts), "logprobs": logprobs if self.logprobs else None}
        return head | {"finish_reason": finish} | dict.fromkeys(rest)


def _calls(pieces: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    calls: dict[int, dict[str, Any]] = {}
    for part in (part for piece in pieces for part in piece.get("tool_calls") or []):
        call = calls.setdefault(
            part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = part.get("id") or call["id"]
        for key, value in part.get("function", {}).items():
            call["function"][key] += value
    yield from (calls[index] for index in sorted(calls))
