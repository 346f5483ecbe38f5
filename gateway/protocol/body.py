"""Request bodies: strict JSON in, the object that was checked out.

Stricter than the engines where their parsers disagree: no NaN or Infinity, no number beyond a double, no lone
surrogate, no nesting that could exhaust a stack. Integers stay exact. Of a duplicate key the last one counts, and
because the body is always written anew from the object, no engine can see another.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Levels of arrays and objects, the outermost counted.
MAX_DEPTH = 200
#: Arrays and objects in one body: each takes two bytes of a request and sixty of our memory.
MAX_CONTAINERS = 250_000

_PATH_LENGTH = 200  # of a path told to the caller; its keys are the caller's own
_DIAGNOSED = 1024 * 1024  # bytes: a longer body is refused without a search for the field
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # an unended one too: never a second scan of the same bytes
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1, as signed bytes
_NOT_BRACKETS = bytes(range(256)).translate(None, b"[]{}")

_decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode
"""Write an object as JSON, compact, characters unescaped, integers exact."""


def decode(raw: bytes) -> dict[str, Any]:
    """Read a request body; raises InvalidRequest, with the field's path as ``param`` where one is at fault."""
    if not raw.strip():
        raise InvalidRequest("The request has no body; a JSON object is expected.")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check_nesting(raw)
    try:
        body = _decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise _diagnosis(raw, str(error)) from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"The request body must be a JSON object, not {_kind(body)}.")
    return body


def _check_nesting(raw: bytes) -> None:
    """Refuse what would exhaust stack or memory before it is parsed: count the brackets outside strings."""
    steps = _STRING.sub(b"", raw).translate(_STEPS, _NOT_BRACKETS)
    if steps.count(b"\x01") > MAX_CONTAINERS:
        raise InvalidRequest(f"The request body holds more than {MAX_CONTAINERS} arrays and objects.")
    if max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The request body is nested deeper than {MAX_DEPTH} levels.")


def _kind(value: object) -> str:
    """Name a JSON value's type with its article, as a caller knows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "an array"


class _Fault:
    """Stands in the place of a number that JSON does not have."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


def _number(text: str) -> float | _Fault:
    return _Fault("is too large a number") if abs(float(text)) == float("inf") else 0.0


def _diagnosis(raw: bytes, reason: str) -> InvalidRequest:
    """Say what is wrong with a body that was refused; a tolerant parser finds the field."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return InvalidRequest(f"The request body is not UTF-8 (byte {error.start}).")
    if len(raw) <= _DIAGNOSED:
        try:
            body = json.loads(text, parse_constant=lambda name: _Fault(f"is {name}, not a number"), parse_float=_number)
        except (ValueError, RecursionError):
            body = None
        for path, why in _faults(body):
            return InvalidRequest(f"{path or 'The request body'} {why}.", param=path or None)
    reason = reason.removeprefix("JSON is malformed: ").partition(" - at ")[0]
    return InvalidRequest(f"The request body is not valid JSON: {reason}.")


def _faults(body: object) -> Iterator[tuple[str, str]]:
    """Yield where a value cannot be sent on, and why, from the front."""
    waiting: list[tuple[str, object]] = [("", body)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Fault):
            yield _tellable(path), value.why
        elif isinstance(value, str) and not _is_text(value):
            yield _tellable(path), "holds a lone surrogate, which is no character"
        elif isinstance(value, dict):
            if not all(map(_is_text, value)):
                yield _tellable(path), "has a key with a lone surrogate, which is no character"
            waiting += [(f"{path}.{key}" if path else key, child) for key, child in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", child) for index, child in reversed(list(enumerate(value)))]


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tellable(path: str) -> str:
    """Make a path of the caller's own keys fit for an answer."""
    return path[:_PATH_LENGTH].encode(errors="replace").decode()
