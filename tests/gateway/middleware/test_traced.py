from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.middleware.traced import Traced
from gateway.record import Record


class Noted:
    """Traces that only note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def begin(self, record: Record, headers: dict[bytes, bytes], at_ns: int) -> str:
        self.told.append(("begin", record.route))
        headers[b"traceparent"] = b"ours"
        return "span"

    def end(self, span: str, record: Record, began_ns: int) -> None:
        self.told.append(("end", record.outcome))


async def ask(route: str, *, breaks: bool = False) -> tuple[Noted, dict[bytes, bytes]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if breaks:
            scope["sluice"].outcome = "internal_error"
            raise RuntimeError

    headers: dict[bytes, bytes] = {}
    noted: Any = Noted()
    nothing: Any = None
    scope = {"type": "http", "sluice": Record(route=route), "sluice.headers": headers}
    try:
        await Traced(app, noted)(scope, nothing, nothing)
    except RuntimeError:
        assert breaks
    return noted, headers


async def test_a_request_has_a_span_and_the_engine_is_told_of_it() -> None:
    noted, headers = await ask("/v1/models")
    assert noted.told == [("begin", "/v1/models"), ("end", "ok")]
    assert headers == {b"traceparent": b"ours"}


async def test_a_span_ends_however_its_request_does() -> None:
    noted, _ = await ask("/v1/models", breaks=True)
    assert noted.told[-1] == ("end", "internal_error")


async def test_probes_are_not_traced() -> None:
    noted, headers = await ask("/livez")
    assert (noted.told, headers) == ([], {})
