"""Scrapes for tests: what a gateway and an engine would have counted."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.why.window import Snapshot, Window

Numbers = Mapping[str, float]


def text(numbers: Numbers) -> str:
    """Write series, ``name{labels}`` to value, as Prometheus's text."""
    return "".join(f"{series} {value}\n" for series, value in numbers.items())


def phases(requests: float, **seconds: float) -> dict[str, float]:
    """Return a gateway's counts after so many requests, with so many seconds of each phase in all."""
    total = sum(seconds.values())
    counted = {f'sluice_phase_seconds_sum{{phase="{name}"}}': took for name, took in seconds.items()}
    return {
        'sluice_requests_total{outcome="ok"}': requests,
        "sluice_request_seconds_sum": total,
        "sluice_request_seconds_count": requests,
        **counted,
    }


def window(after: Numbers, engine: Numbers | None = None, *, seconds: float = 10.0, **more: Numbers) -> Window:
    """Return a window that began with nothing counted; ``engine`` is the only one's, ``before`` what was before."""
    engines: dict[str, str | None] = {} if engine is None else {"m-0": text(engine)}
    begun: dict[str, str | None] = {"m-0": text(more["engine_before"])} if "engine_before" in more else {}
    first = Snapshot(at=0.0, gateway=text(more.get("before", {})), engines=begun)
    return Window(first, Snapshot(at=seconds, gateway=text(after), engines=engines))
