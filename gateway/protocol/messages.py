"""The fields of ``/v1/messages`` that the gateway relies on, and the errors in Anthropic's shape."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.errors import Failure, InvalidRequest
from gateway.protocol import failures, openai
from gateway.protocol.named import event
from gateway.protocol.openai import Asked, Ceilings

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"

#: Anthropic's class of error for each status; all other 4xx are invalid requests, all other 5xx errors of the API.
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_THINKING_FLOOR = 1024  # Anthropic's and vLLM's least budget
_HIDDEN_STATUS = re.compile(r"'code': (4\d\d)\}")


def ask(body: dict[str, Any], media_hosts: frozenset[str], *, streams: bool = True) -> Asked:
    """Check the fields that the gateway relies on, and refuse what no engine is to be asked.

    Raises InvalidRequest naming the field.
    """
    model, stream = body.get("model"), body.get("stream")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must be a string: the name of a model (GET /v1/models lists them).", param="model")
    if not isinstance(stream, bool | None):
        raise InvalidRequest("stream must be true or false.", param="stream")
    openai.check(body, media_hosts)
    return Asked(model, bool(stream) and streams, want_usage=True)


def clamp(body: dict[str, Any], asked: Asked, ceilings: Ceilings) -> None:
    """Hold a request to its model's ceiling of tokens, in place; a budget for thinking stays below it.

    ``max_tokens`` is required by this API: where it is missing the engine says so. Raises InvalidRequest.
    """
    value, ceiling = openai.tokens(body, "max_tokens"), ceilings.max_output_tokens
    if value is None:
        return
    if ceiling is not None and value > ceiling:
        asked.clamped = True
        body["max_tokens"] = value = ceiling
        thinking = body.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        if isinstance(budget, int) and budget >= ceiling > _THINKING_FLOOR:
            body["thinking"] = {**body["thinking"], "budget_tokens": ceiling - 1}
    asked.output_tokens = int(value)


def unclamped(body: dict[str, Any], asked: Asked, ceilings: Ceilings) -> None:
    """Hold a request to nothing: what is only counted costs no tokens."""
    del body, asked, ceilings


def for_engine(body: dict[str, Any], *, model: str | None, stream: bool, cache_salt: str | None) -> dict[str, Any]:
    """Return the body that the engine gets."""
    sent = {**body, "model": model} if model is not None else dict(body)
    sent.pop("sluice", None)  # ours
    if body.get("stream") and not stream:
        sent["stream"] = False
    if cache_salt is not None:
        sent["cache_salt"] = cache_salt
    return sent


def error_body(failure: Failure) -> dict[str, Any]:
    """Tell a failure as an Anthropic client expects it."""
    return {"type": "error", "error": {"type": error_type(failure.status), "message": failure.message}}


def error_type(status: int) -> str:
    """Return Anthropic's class of error for a status."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def failure_event(failure: Failure) -> bytes:
    """Write the event that ends a stream which has begun."""
    return event(error_body(failure))


def error_event(payload: bytes) -> Failure | None:
    """Turn an error event into a failure; None where it is none.

    vLLM 0.32 reads its own error event as a chunk of an answer, fails, and tells that: the status is in its words.
    """
    failure = failures.from_event(payload)
    if failure is not None and failure.status >= 500:
        try:
            message = msgspec.json.decode(payload)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            return failure
        if isinstance(message, str) and (hidden := _HIDDEN_STATUS.search(message)) is not None:
            return failures.from_event({"error": {"code": int(hidden[1])}})
    return failure
