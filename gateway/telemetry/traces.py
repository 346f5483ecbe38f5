"""Spans of requests, by OpenTelemetry: one for the exchange, one for each of its phases. Needs the extra ``otel``.

The engine is handed the exchange's own trace context, so vLLM's spans (``--otlp-traces-endpoint``) are its children.
No text, no key and no address is in a span.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.record import Record

#: Phases that follow one another, as they do in an exchange. What is measured is how long each took, so each is drawn
#: where the one before it ends.
_IN_ORDER = ("auth", "tokenize", "chain_request", "queue", "connect", "first_token", "decode")
#: Sums of many short pieces between the first text and the end: drawn from the first text on.
_WITHIN_DECODE = ("chain_answer", "client_write")
#: For one batch, further tries included: a collector that is away must not hold up the end of the process.
_PATIENCE_S = 3
_NS = 1_000_000_000
_W3C = TraceContextTextMapPropagator()
_FIELDS = (b"traceparent", b"tracestate")


class Traces:
    """Makes the spans and hands them, from a thread of its own, to a collector.

    What is left when the process ends is handed over then. ``endpoint`` is the collector's, for OTLP over HTTP
    (``http://collector:4318``). How many exchanges are traced, batch sizes and headers are OpenTelemetry's own
    variables, ``OTEL_TRACES_SAMPLER`` and the like.
    """

    def __init__(self, endpoint: str, version: str) -> None:
        self._provider = TracerProvider(resource=Resource({"service.name": "sluice", "service.version": version}))
        collector = endpoint.rstrip("/").removesuffix("/v1/traces") + "/v1/traces"
        exporter = OTLPSpanExporter(collector, timeout=_PATIENCE_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("sluice", version)

    def begin(self, record: Record, headers: MutableMapping[bytes, bytes], at_ns: int) -> Span:
        """Begin an exchange's span, below the caller's if ``headers`` name one; from here on they name ours."""
        given = {name.decode(): headers[name].decode("latin-1") for name in _FIELDS if name in headers}
        span = self._tracer.start_span(
            f"{record.method} {record.route}", _W3C.extract(given), SpanKind.SERVER, start_time=at_ns
        )
        ours: dict[str, str] = {}
        _W3C.inject(ours, set_span_in_context(span))
        for name in _FIELDS:
            headers.pop(name, None)
        headers.update({name.encode(): value.encode("latin-1") for name, value in ours.items()})
        return span

    def end(self, span: Span, record: Record, began_ns: int) -> None:
        """End it, with what has become of the exchange, and put its phases below it."""
        if span.is_recording():
            for name, value in _attributes(record).items():
                span.set_attribute(name, value)
            if record.status >= 500 or record.status == 0:
                span.set_status(Status(StatusCode.ERROR, record.outcome))
            self._phases(set_span_in_context(span), record.phases, began_ns)
        span.end()

    def _phases(self, parent: Context, phases: Mapping[str, float], at_ns: int) -> None:
        for name in _IN_ORDER:
            if (seconds := phases.get(name)) is not None:
                decode_ns = at_ns
                at_ns += self._phase(parent, name, at_ns, seconds)
                if name == "decode":
                    for within in _WITHIN_DECODE:
                        self._phase(parent, within, decode_ns, phases.get(within, 0.0))

    def _phase(self, parent: Context, name: str, at_ns: int, seconds: float) -> int:
        took = int(seconds * _NS)
        self._tracer.start_span(name, parent, SpanKind.INTERNAL, start_time=at_ns).end(at_ns + took)
        return took


def _attributes(record: Record) -> dict[str, str | int]:
    """What OpenTelemetry calls these things, where it has a name; ours begin with ``sluice``."""
    told: dict[str, str | int | None] = {
        "http.request.method": record.method,
        "http.route": record.route,
        "http.response.status_code": record.status,
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens or None,
        "gen_ai.usage.output_tokens": record.completion_tokens or None,
        "sluice.request_id": record.request_id,
        "sluice.outcome": record.outcome,
        "sluice.engine": record.engine,
        "sluice.key": record.key,
        "sluice.stream": record.stream,
        "sluice.plugin": record.plugin,
        "sluice.rule": record.rule,
    }
    return {name: value for name, value in told.items() if value is not None}
