"""The log: one JSON line a request, one for each event of the gateway; never a prompt, an answer, a key or a URL."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable, MutableMapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, TextIO

import msgspec
import structlog

from gateway.record import Hit, Record
from gateway.telemetry.output import Output

_FRAMES = 8
_SHADOWED = 10  # the audit log has them all
_LONGEST = 200  # characters of a name that a caller may have made up


class AccessLine(msgspec.Struct, omit_defaults=True):
    """The line of one request. Times are milliseconds; a field with a default is left out where it says nothing."""

    time: datetime
    event: str
    request_id: str
    client: str
    key: str | None
    model: str | None
    engine: str | None
    route: str
    method: str
    status: int
    outcome: str
    stream: bool
    total_ms: float
    phases_ms: dict[str, float]
    prompt_tokens: int
    completion_tokens: int
    config_version: int
    first_text_ms: float | None = None
    sampling: str = "plain"
    finish_reasons: list[str] = []
    tags: list[str] = []
    plugin: str | None = None
    rule: str | None = None
    shadow: list[str] = []


_encode = msgspec.json.Encoder().encode
_now = partial(datetime.now, UTC)


def access_line(record: Record) -> bytes:
    """Write a request's line when it has ended. Whole microseconds: ``round`` alone would cost as much as the rest."""
    model = record.model
    return (
        _encode(
            AccessLine(
                time=_now(),
                event="request",
                request_id=record.request_id,
                client=record.client,
                key=record.key,
                model=model if model is None or len(model) <= _LONGEST else model[:_LONGEST],
                engine=record.engine,
                route=record.route,
                method=record.method,
                status=record.status,
                outcome=record.outcome,
                stream=record.stream,
                total_ms=int(record.total_s * 1e6) / 1e3,
                phases_ms={phase: int(seconds * 1e6) / 1e3 for phase, seconds in record.phases.items()},
                prompt_tokens=record.prompt_tokens,
                completion_tokens=record.completion_tokens,
                config_version=record.config_version,
                first_text_ms=None if record.first_text_s is None else int(record.first_text_s * 1e6) / 1e3,
                sampling=record.sampling,
                finish_reasons=record.finish_reasons,
                tags=record.tags,
                plugin=record.plugin,
                rule=record.rule,
                shadow=_shadowed(record.hits) if record.hits else [],
            )
        )
        + b"\n"
    )


def _shadowed(hits: Sequence[Hit]) -> list[str]:
    """Say what plugins in shadow mode would have done, and by which rules: a few of them."""
    would = dict.fromkeys(f"{hit.plugin}: {hit.action} {hit.rule}" for hit in hits if hit.shadow)
    return list(would)[:_SHADOWED]


def configure(output: Output, *, level: int = logging.INFO) -> None:
    """Send everything that is ever logged here as JSON lines to ``output``: our events, libraries', Python's warnings.

    To be called once, before the server is made.
    """
    structlog.configure(
        processors=[structlog.processors.add_log_level, _without_the_message, _line],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(output),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Others()]
    root.setLevel(logging.WARNING)
    server = logging.getLogger("uvicorn.error")
    server.setLevel(logging.ERROR)  # below that it tells of callers' mistakes, with what they sent
    server.filters = [_known_already]
    warnings.showwarning = _warning


class _Lines:
    """What structlog takes for a logger: each method writes a finished line."""

    def __init__(self, output: Output) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = output.write


def _without_the_message(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Tell of an exception its kind and where it came from: its message may quote a prompt."""
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    fault = info[1] if isinstance(info, tuple) else info
    if isinstance(fault, BaseException):
        event["fault"] = type(fault).__name__
        event["at"] = places(fault.__traceback__)
    return event


def places(trace: TracebackType | None) -> list[str]:
    """Name the innermost frames of a traceback, outermost first, without any value."""
    frames = traceback.StackSummary.extract(traceback.walk_tb(trace), limit=-_FRAMES, lookup_lines=False)
    return [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]


def _short(file: str) -> str:
    return "/".join(file.rsplit("/", 2)[-2:])


def _line(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    first = {"time": _now(), "level": event.pop("level", "info"), "event": event.pop("event", "")}
    return msgspec.json.encode({**first, **event}, enc_hook=_kind) + b"\n"


def _kind(value: object) -> str:
    return type(value).__name__  # of what is no JSON the kind is said, not the content


class _Others(logging.Handler):
    """Takes what libraries log. Their words may hold anything, so only the constant part of a message goes on."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        write: Callable[..., Any] = log.error if record.levelno >= logging.ERROR else log.warning
        event = "internal_error" if record.exc_info and record.exc_info[1] else "library"
        facts: dict[str, Any] = {"logger": record.name, "at": [f"{_short(record.pathname)}:{record.lineno}"]}
        if record.args and isinstance(record.msg, str):
            facts["message"] = record.msg
        write(event, exc_info=record.exc_info or None, **facts)


def _known_already(record: logging.LogRecord) -> bool:
    """Drop what the access log tells better: an answer that broke off, an application that raised."""
    return not str(record.msg).startswith(("ASGI callable", "Exception in ASGI"))


def _warning(
    message: Warning | str,  # noqa: ARG001 - Python's signature; the words stay out
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    structlog.get_logger().warning("python_warning", kind=category.__name__, at=[f"{_short(filename)}:{lineno}"])
