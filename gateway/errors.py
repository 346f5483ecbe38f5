"""The tree of failures: status, code and the OpenAI body of each.

    Failure
    ├── InvalidRequest        400 invalid_request
    │   └── ContentFiltered   400 content_filter
    ├── InvalidKey            401 invalid_api_key
    ├── ModelNotAllowed       403 model_not_allowed
    ├── ModelNotFound         404 model_not_found
    ├── NotFound              404 not_found
    ├── RequestTimeout        408 request_timeout
    ├── RequestTooLarge       413 request_too_large
    ├── UnsupportedEncoding   415 unsupported_encoding
    ├── RateLimited           429 rate_limit_exceeded
    ├── QueueFull             429 queue_full
    ├── InternalError         500 internal_error (a bug of ours, nothing else)
    ├── EngineError           502 engine_error
    ├── NoEngineAvailable     503 no_engine_available
    ├── FilterUnavailable     503 filter_unavailable
    ├── EngineTimeout         504 engine_timeout
    └── Refused               whatever a plugin or the engine itself decided

A message is written for the caller: it never holds a word of a list, a key, an engine's address or a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: OpenAI's class of error for each status; the SDK goes by the status, people by this.
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}


def error_body(message: str, error_type: str, param: str | None, code: str | int | None) -> dict[str, Any]:
    """Build the one shape in which every error of every route is told."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


class Failure(Exception):
    """Why an exchange has no (further) answer.

    ``retry_after`` is a positive number of whole seconds; 429 and 503 always carry one.
    """

    status = 500
    code: str | int | None = "internal_error"
    error_type: str | None = None

    def __init__(self, message: str, *, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Return the error as an OpenAI client expects it."""
        return error_body(
            self.message, self.error_type or TYPES.get(self.status, "server_error"), self.param, self.code
        )

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell an SDK whether and when to try again."""
        if self.status in {429, 503}:
            return [(b"retry-after", b"%d" % max(1, self.retry_after or 1))]
        if self.status == 504:  # the engine may still be at work on it: a second copy would make it worse
            return [(b"x-should-retry", b"false")]
        return []


class InvalidRequest(Failure):
    """The request cannot be understood or is not allowed in this form."""

    status = 400
    code = "invalid_request"


class ContentFiltered(InvalidRequest):
    """A blocking filter hit in the request. The message is generic and names at most the place."""

    code = "content_filter"


class InvalidKey(Failure):
    """No key, or one that is not ours."""

    status = 401
    code = "invalid_api_key"


class ModelNotAllowed(Failure):
    """The key is good but not for this model or this operation."""

    status = 403
    code = "model_not_allowed"


class ModelNotFound(Failure):
    """No model of this name is configured."""

    status = 404
    code = "model_not_found"


class NotFound(Failure):
    """No such route."""

    status = 404
    code = "not_found"


class RequestTimeout(Failure):
    """The caller did not bring the request to its end in time."""

    status = 408
    code = "request_timeout"


class RequestTooLarge(Failure):
    """The body is longer than the limit, counted unpacked."""

    status = 413
    code = "request_too_large"


class UnsupportedEncoding(Failure):
    """The body came in a content encoding that is neither identity nor gzip."""

    status = 415
    code = "unsupported_encoding"


class RateLimited(Failure):
    """A limit of the key is used up. ``standing``: the headers that say how it stands."""

    status = 429
    code = "rate_limit_exceeded"
    standing: Sequence[tuple[bytes, bytes]] = ()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell when to try again, and why."""
        return [*super().headers(), *self.standing]


class QueueFull(Failure):
    """The model has all the requests it can hold."""

    status = 429
    code = "queue_full"


class InternalError(Failure):
    """A bug of ours."""


class EngineError(Failure):
    """The engine broke off, spoke nonsense, or failed by itself."""

    status = 502
    code = "engine_error"


class NoEngineAvailable(Failure):
    """None is healthy, or none accepts."""

    status = 503
    code = "no_engine_available"


class FilterUnavailable(Failure):
    """A plugin that fails closed has failed or ran out of time."""

    status = 503
    code = "filter_unavailable"


class EngineTimeout(Failure):
    """The engine did not answer in time."""

    status = 504
    code = "engine_timeout"


class Refused(Failure):
    """A refusal with a status of its own: by a plugin, or the engine's own 400, 413, 422 or 429.

    ``rule`` and ``tag`` are for the operator's log and metrics; they never reach the caller.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | int | None = "invalid_request",
        error_type: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        rule: str | None = None,
        tag: str | None = None,
    ) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        self.status = status
        self.code = code
        self.error_type = error_type
        self.rule = rule
        self.tag = tag
