"""Texts of an answer of choices that no field of ours names: every string of it that is no label and no bytes.

Engines, their parsers and proxies add fields of their own (``thinking``, ``reasoning_details``, ``audio.transcript``,
``annotations``, custom tools): each is a text, by its path; the pieces that a stream brings of one path are one text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from gateway.protocol import sse
from gateway.protocol.chunks import TEXT_KINDS
from gateway.protocol.numbers import decoded

Path = tuple[str | int, ...]
"""Where a text stands; of a list's object that says its ``index`` that number, else its place in the list."""

#: Of an answer, what names it and what is told to machines (``named`` writes the model's name).
HEAD = frozenset(
    {"id", "object", "created", "model", "system_fingerprint", "service_tier", "prompt_token_ids", "prompt_logprobs"}
    | {"kv_transfer_params", "ec_transfer_params"}
)
#: Of a choice: ends, and what repeats its tokens, which goes the way of the text.
CHOICE = frozenset(
    {"index", "logprobs", "finish_reason", "stop_reason", "matched_stop", "token_ids", "prompt_token_ids"}
    | {"prompt_logprobs", "routed_experts"}
)
#: What a chunk with the end of a text has in common with the one before which it is told.
TAILED = HEAD | {"usage"}
_LABELS = frozenset(
    {"id", "type", "role", "object", "index", "format", "status", "finish_reason", "native_finish_reason"}
    | {"tool_call_id", "call_id"}
)
_LABEL = re.compile(r"[A-Za-z0-9_.:-]{0,128}")
_BYTES = frozenset({"data", "signature", "thought_signature", "encrypted_content"})
_BASE64 = re.compile(r"[A-Za-z0-9+/_=-]*")
_READ = frozenset({"name", "arguments"})  # of the function of a call


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Leaf(NamedTuple):
    """One text: ``holder[key]``."""

    path: Path
    holder: Any
    key: Any

    @property
    def text(self) -> str:
        """What stands there now."""
        return str(self.holder[self.key])

    @property
    def kind(self) -> tuple[str, int]:
        """Of which kind of channel it is, and of which tool call."""
        call = next(iter(self.path[4:]), None) if self.path[3:4] == ("tool_calls",) else None
        return ("arguments", call) if isinstance(call, int) else ("content", 0)

    @property
    def is_name(self) -> bool:
        """Is it the name of a call, by which a caller's program goes?"""
        return self.key == "name" and self.path[3:4] == ("tool_calls",)


class Rest:
    """The texts of one chunk, or of a whole answer, that nobody has read; ``main`` is what is read of its choices."""

    __slots__ = ("body", "choices", "top")

    def __init__(self, body: dict[str, Any], main: str) -> None:
        self.body = body
        told = [(at, each) for at, each in enumerate(body.get("choices") or ()) if isinstance(each, dict)]
        self.choices = {at: list(_of_choice(each, main)) for at, each in told}
        self.top = [leaf for key in body if key not in HEAD and key != "choices" for leaf in under((key,), body, key)]

    @classmethod
    def of(cls, payload: bytes, main: str) -> Rest | None:
        """Return what there is in a payload that is known to be an answer; None where there is nothing."""
        rest = cls(decoded(payload), main)
        return rest if rest.top or any(rest.choices.values()) else None

    def written(self) -> tuple[bytes, bytes]:
        """Return the frame and the payload as they are now."""
        payload = msgspec.json.encode(self.body)
        return sse.encode(payload), payload


def tail_chunk(head: dict[str, Any], like: dict[str, Any], path: Path, tail: str) -> dict[str, Any]:
    """Return a chunk with the end of a text and nothing else, whose choice has the form of another."""
    value: Any = tail
    for part in reversed(path):
        if isinstance(part, str):
            value = {part: value}
        else:
            value = [{"index": part, **value}] if isinstance(value, dict) else [value]
    empty: dict[str, Any] = {"delta": {}} if "delta" in like else {"text": ""}
    for choice in value.get("choices", ()):
        choice |= {**empty, **choice, "logprobs": None, "finish_reason": None}
    return {**head, "choices": [], **value}


def _of_choice(choice: dict[str, Any], main: str) -> Iterator[Leaf]:
    index = choice.get("index")
    at: Path = ("choices", index if isinstance(index, int) else 0)
    main = main if isinstance(choice.get(main), dict) else "text"
    for key in choice:
        if key not in CHOICE:
            yield from (leaf for leaf in under((*at, key), choice, key) if not _is_read(leaf.path[2:], main))


def _is_read(path: Path, main: str) -> bool:
    """Is this what the filters of the choice's own channels see?"""
    match path[1:]:
        case ():
            return path[0] == main
        case (kind,):
            return path[0] == main and kind in TEXT_KINDS
        case ("function_call", field) | ("tool_calls", _, "function", field):
            return path[0] == main and field in _READ
        case _:
            return False


def strangers(raw: bytes | msgspec.Raw, known: Collection[str]) -> dict[str, Any]:
    """Return the members of an object that are not ``known`` and may hold text, from its JSON.

    Raises msgspec.DecodeError and UnicodeDecodeError where it is no object.
    """
    told = _members(raw)
    names = [name for name in told if name not in known] if told.keys() - known else ()
    return {name: decoded(told[name]) for name in names if bytes(told[name])[:1] in {b'"', b"{", b"["}}


def under(path: Path, holder: Any, key: Any) -> Iterator[Leaf]:
    """Every text at a place, at any depth, in order."""
    waiting: list[tuple[Path, Any, Any]] = [(path, holder, key)]
    while waiting:
        path, holder, key = waiting.pop()
        value = holder[key]
        if isinstance(value, str):
            if value and not _is_label(key, value):
                yield Leaf(path, holder, key)
        elif isinstance(value, dict):
            waiting += reversed([((*path, name), value, name) for name in value])
        elif isinstance(value, list):
            waiting += reversed([((*path, _number(each, at)), value, at) for at, each in enumerate(value)])


def _number(each: Any, at: int) -> int:
    index = each.get("index") if isinstance(each, dict) else None
    return index if isinstance(index, int) else at


def _is_label(key: Any, value: str) -> bool:
    if key in _LABELS:
        return _LABEL.fullmatch(value) is not None
    return key in _BYTES and _BASE64.fullmatch(value) is not None
