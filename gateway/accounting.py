"""What is noted of an exchange while it runs: phases, gaps, and what went wrong."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import structlog

from gateway.errors import Failure, InternalError
from gateway.record import Record

log = structlog.get_logger()

BUG = "Something went wrong in the gateway; the operator's log has the request id."


class Meters(Protocol):
    """What is counted while an exchange runs; all else is in the record when it is over."""

    def in_flight(self, model: str, change: int) -> None:
        """One more, or one less."""

    def chunk_gap(self, seconds: float) -> None:
        """The time between two pieces of a stream."""


def ended(record: Record, phase: str, began: float) -> float:
    """Note that a phase has ended (of several of one name the sum), and return when."""
    now = perf_counter()
    phases = record.phases
    phases[phase] = now - began + phases[phase] if phase in phases else now - began
    return now


def named(fault: Exception, record: Record) -> Failure:
    """Turn whatever was raised into one of our failures; a bug is logged by its type and place, never its text."""
    if isinstance(fault, Failure):
        return fault
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else ""
    log.error("internal_error", request_id=record.request_id, fault=type(fault).__name__, at=at)
    return InternalError(BUG)
