"""What changes in a chunk, and how it is written into it: all else in the chunk stays."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocol import sse
from gateway.protocol.chunks import NULL
from gateway.protocol.logprobs import all_masked
from gateway.protocol.merging import frames_of
from gateway.protocol.numbers import decoded
from gateway.protocol.rest import TAILED, Path, tail_chunk


class Patch:
    """What has to change in one choice of one chunk."""

    __slots__ = ("cut", "drop", "finish_reason", "hidden", "logprobs", "rest", "tails", "tells", "texts", "tools")

    def __init__(self, content: str | None = None, *, drop: bool = False) -> None:
        self.texts: dict[str, str] = {} if content is None else {"content": content}
        self.tools: dict[int, str] = {}  # position in the chunk's tool_calls -> arguments
        self.tails: list[tuple[str, int, str]] = []  # kind, tool, held text that found no place in this chunk
        self.rest: list[tuple[Path, str]] = []  # such held text of fields that have no kind
        self.tells = False  # there is such a text in the chunk
        self.logprobs: tuple[Any, Any] | None = None  # logprobs and token_ids to show
        self.hidden = False  # nobody can tell which of the tokens are whose
        self.finish_reason: str | None = None
        self.cut: int | None = None  # of the chunk's tool calls only so many are shown
        self.drop = drop

    def hide(self, logprobs: bytes | msgspec.Raw) -> None:
        """Show nothing of a chunk's tokens but their number; not even that where the choice ends in it."""
        self.hidden = True
        if logprobs != NULL or self.logprobs is not None:
            self.logprobs = (all_masked(msgspec.json.decode(logprobs)), None)


def patched(payload: bytes, patches: dict[int, Patch], model: str) -> bytes:
    """Write the chunk anew with its patches; held text without a place of its own gets a frame before it."""
    body = decoded(payload)
    if "model" in body:
        body["model"] = model
    frames: list[bytes] = []
    kept = []
    for position, choice in enumerate(body["choices"]):
        patch = patches.get(position)
        if patch is None:
            kept.append(choice)
            continue
        head = {key: value for key, value in body.items() if key in TAILED}
        tails = [{**head, "choices": [_tail_choice(choice, *tail)]} for tail in patch.tails]
        tails += [tail_chunk(head, choice, *tail) for tail in patch.rest]
        frames += [sse.encode(msgspec.json.encode(tail)) for tail in tails]
        if not patch.drop and _apply(choice, patch):
            kept.append(choice)
    if kept or not body["choices"]:
        frames.append(sse.encode(msgspec.json.encode({**body, "choices": kept})))
    return b"".join(frames)


def named(frame: bytes, model: str | None, name: str) -> bytes:
    """Give a frame the name of its model that the caller used."""
    if model == name or model is None:
        return frame
    mine = msgspec.json.encode(model)
    for colon in (b'"model":', b'"model": '):
        if colon + mine in frame:  # unescaped quotes: never inside a text
            return frame.replace(colon + mine, colon + msgspec.json.encode(name), 1)
    body = decoded(sse.payload(frame) or b"{}")
    return sse.encode(msgspec.json.encode({**body, "model": name}))


def without_usage(shown: bytes) -> bytes:
    """Take out of chunks with choices the usage that some engines put there, and that nobody asked for."""
    frames = [decoded(sse.payload(frame) or b"{}") for frame in frames_of(shown)]
    told = ({key: value for key, value in body.items() if key != "usage"} for body in frames)
    return b"".join(sse.encode(msgspec.json.encode(body)) for body in told)


def _tail_choice(choice: dict[str, Any], kind: str, tool: int, tail: str) -> dict[str, Any]:
    head = {"index": choice.get("index", 0)}
    if "delta" not in choice:
        return {**head, "text": tail, "logprobs": None, "finish_reason": None}
    delta: dict[str, Any] = {kind: tail}
    if kind == "arguments":
        call = {"function": {"arguments": tail}}
        delta = {"function_call": call["function"]} if tool < 0 else {"tool_calls": [{"index": tool, **call}]}
    return {**head, "delta": delta, "logprobs": None, "finish_reason": None}


def _apply(choice: dict[str, Any], patch: Patch) -> bool:
    """Write a patch into a choice; False if nothing is left to tell."""
    delta = choice.get("delta")
    for kind, text in patch.texts.items():
        if delta is None:
            choice["text"] = text
        else:
            delta[kind] = text
    if delta is not None:
        for position, text in patch.tools.items():
            call = delta["function_call"] if position < 0 else delta["tool_calls"][position]["function"]
            call["arguments"] = text
        if patch.cut is not None:
            delta.pop("function_call", None)
            if delta.get("tool_calls"):
                delta["tool_calls"] = delta["tool_calls"][: patch.cut]
    if patch.logprobs is not None:
        choice["logprobs"], ids = patch.logprobs
        if patch.hidden and patch.finish_reason is not None:
            choice["logprobs"] = None
        if "token_ids" in choice:
            choice["token_ids"] = ids
    if patch.finish_reason is not None:
        choice["finish_reason"] = patch.finish_reason
        if "stop_reason" in choice:
            choice["stop_reason"] = None
    return _tells(choice, patch)


def _tells(choice: dict[str, Any], patch: Patch) -> bool:
    if patch.tells or choice.get("finish_reason") is not None or choice.get("logprobs"):
        return True
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text"))
    calls = delta.get("tool_calls") or []
    if any(call.get("id") or (call.get("function") or {}).get("name") for call in calls):
        return True
    if any((call.get("function") or {}).get("arguments") for call in calls):
        return True
    rest = {key: value for key, value in delta.items() if key not in {*patch.texts, "tool_calls"}}
    return any(rest.values()) or any(delta.get(kind) for kind in patch.texts)


def with_extra(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return what stands under "sluice" with ``extra`` added; an engine may have put anything there."""
    said = body.get("sluice")
    return {**said, **extra} if isinstance(said, dict) else extra
