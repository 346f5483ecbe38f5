"""An engine's own errors, in whatever shape it tells them, as failures of ours.

What is the caller's to mend (400, 413, 422) keeps the engine's message, type, param and code. Everything else is the
engine's fault or our configuration: of that the caller learns no more than that it happened.
"""

from __future__ import annotations

import re
from math import ceil, isfinite
from typing import Any, NamedTuple

import msgspec

from gateway.errors import EngineError, Failure, Refused

_CALLERS = frozenset({400, 413, 422})
_BUSY = frozenset({429, 503, 529})
_MESSAGE_LENGTH = 2000

#: How engines name an error that comes without a usable number (in streams: SGLang, TGI, Anthropic's form).
_BY_TYPE = {
    "badrequest": 400,
    "badrequesterror": 400,
    "invalidrequesterror": 400,
    "validation": 422,
    "toomanyrequests": 429,
    "ratelimiterror": 429,
    "overloaded": 429,
    "overloadederror": 503,
    "serviceunavailable": 503,
    "serviceunavailableerror": 503,
    "unavailableerror": 503,
}


class Busy(Refused):
    """The engine has no room: another may have. Told to the caller (429, or 503) where none has."""


class _Told(NamedTuple):
    """What an engine says of its error; what it does not say is None."""

    message: str | None = None
    error_type: str | None = None
    param: str | None = None
    code: str | int | None = None


def from_engine(status: int, body: bytes, retry_after: str | None) -> Failure:
    """Turn an engine's answer that is none into a failure; ``retry_after`` is its header's value."""
    return _failure(status, _read(_parsed(body)) or _Told(), _seconds(retry_after))


def from_event(payload: bytes | dict[str, Any]) -> Failure | None:
    """Turn an error event of a stream (or a 200 that holds an error) into a failure; None where it is no error."""
    told = _read(_parsed(payload) if isinstance(payload, bytes) else payload)
    return None if told is None else _failure(_status(told), told, None)


def _failure(status: int, told: _Told, retry_after: int | None) -> Failure:
    if status in _CALLERS:
        message = told.message or "The model's server refused the request."
        code = "invalid_request" if told.code is None else told.code
        return Refused(message, status=status, code=code, error_type=told.error_type, param=told.param)
    if status == 429:
        message = told.message or "The model's server has too many requests; try again later."
        return Busy(message, status=429, code="rate_limit_exceeded", retry_after=retry_after)
    if status in _BUSY:
        message = "The model's server accepts no requests at the moment; try again later."
        return Busy(message, status=503, code="no_engine_available", retry_after=retry_after)
    if status in {401, 403, 404, 405}:
        return EngineError(
            f"The model's server did not accept the gateway's request ({status}): a wrong configuration."
        )
    return EngineError(f"The model's server failed ({status}).")


def _parsed(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _read(told: Any) -> _Told | None:
    """Read an error in any of the engines' shapes; None where it is none."""
    if not isinstance(told, dict):
        return None
    error = told.get("error")
    if isinstance(error, dict):
        return _Told(_message(error.get("message")), _type(error.get("type")), _param(error), _code(error.get("code")))
    if isinstance(error, str):  # vLLM's middleware, transformers, TGI
        return _Told(_message(error), _type(told.get("error_type")))
    if told.get("object") == "error":  # vLLM before 0.10.1, SGLang
        return _Told(_message(told.get("message")), _type(told.get("type")), _param(told), _code(told.get("code")))
    if "detail" in told:  # FastAPI
        return _detail(told["detail"])
    return None if error is None else _Told()


def _detail(detail: Any) -> _Told:
    if isinstance(detail, str):
        return _Told(_message(detail))
    faults = [fault for fault in detail if isinstance(fault, dict)] if isinstance(detail, list) else []
    places = [_place(".".join(map(str, loc)) if isinstance(loc := fault.get("loc"), list) else "") for fault in faults]
    lines = [f"{place or 'body'}: {fault.get('msg')}" for place, fault in zip(places, faults, strict=True)]
    return _Told(_message("; ".join(lines)), param=places[0] if places else None)


def _type(value: Any) -> str | None:
    return value[:100] if isinstance(value, str) and value else None


def _code(value: Any) -> str | int | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return value[:100] if isinstance(value, str) else value


def _param(error: dict[str, Any]) -> str | None:
    param = error.get("param")
    return param[:200] if isinstance(param, str) and param else None


def _place(path: str) -> str | None:
    """Write pydantic's "body.messages.0.content" as "messages[0].content"."""
    path = path.removeprefix("body").lstrip(".")
    return re.sub(r"\.?\b([0-9]+)(?=\.|$)", r"[\1]", path) or None


def _status(told: _Told) -> int:
    """Find the status an error event would have had."""
    code = told.code
    if isinstance(code, str):
        code = int(code) if re.fullmatch("[1-9][0-9]{2}", code) else None
    if code is not None and 400 <= code < 600:
        return code
    return _BY_TYPE.get(re.sub(r"[^a-z]", "", (told.error_type or "").lower()), 500)


def _seconds(retry_after: str | None) -> int | None:
    """Read Retry-After; a date (no engine sends one) says nothing here, for there is no clock."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return min(max(1, ceil(seconds)), 86_400) if isfinite(seconds) else None


# What must not be told: where an engine runs and how it is made. Each with what is told instead.
_SCRUBS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"(?s)Traceback \(most recent call last\).*", ""),
        (r"(?m)^[ \t]*For further information visit .*\n?", ""),
        (r"^\d+ validation errors?(?: for \w+)?:?\s*", ""),
        (r" ?\[type=\w+, input_value=[^\n]*\]", ""),
        (r"<[\w.]+ object at 0x[0-9a-fA-F]+>", "<object>"),
        (r"<class '([\w.]+)'>", r"\1"),
        (r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s'\"<>`)\]}]+", "<url>"),
        (r"(?<![\w./-])[\w./-]{1,200}\.(?:py|so|safetensors|gguf)\b(?::\d+)?", "<path>"),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.])", "<address>"),
        (r"\[(?=[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:)[0-9a-fA-F:.]{2,45}\](?::\d{1,5})?", "<address>"),
        (r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}:?[0-9a-fA-F]{1,4}(?![\w:])|(?<![\w:])::1(?![\w:])", "<address>"),
        (r"\blocalhost(?::\d{1,5})?\b", "<address>"),
        (r"\b[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,9}:\d{2,5}\b", "<address>"),
        (r"\b(?:[A-Za-z0-9-]{1,63}\.){1,9}(?:local|internal|svc|lan|corp|intra)\b", "<address>"),
        (r"(?<=host )[A-Za-z0-9-]+:\d{2,5}\b", "<address>"),
        (r"(?i)\b[A-Z]:\\[^\s'\"`]+", "<path>"),
        (r"(?<![\w/.<])~?/(?!v\d/)(?:[\w.@+-]+/)+[\w.@+-]*", "<path>"),
        (r"(?<![\w/.<])/(?:root|home|usr|opt|tmp|var|etc|mnt|data|models|srv|app|proc|dev|run)\b", "<path>"),
    )
)
_FAULT = re.compile(r"'loc': (\S{1,300}?), 'msg': (?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")")


def _message(said: Any) -> str | None:
    """Make an engine's message fit for the caller; None where nothing is left of it."""
    if not isinstance(said, str) or said.lstrip()[:1] == "<":  # a proxy's page
        return None
    said = said[:_MESSAGE_LENGTH]
    faults = _FAULT.findall(said)
    if faults:  # pydantic's own words: {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', ...}
        said = "; ".join(f"{_place(loc.strip(chr(39))) or 'body'}: {first or second}" for loc, first, second in faults)
    for pattern, instead in _SCRUBS:
        said = pattern.sub(instead, said)
    return said.strip() or None
