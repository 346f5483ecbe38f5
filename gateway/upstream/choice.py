"""Which engine gets the next request."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.upstream.engine import Engine


def choose(engines: Sequence[Engine], excluded: Collection[Engine], now: float) -> Engine | None:
    """Return the engine with the fewest requests in flight for its weight; among equals the one whose turn it is.

    Those that failed lately or are busy are passed over while there are others. If there are none they are asked all
    the same: an engine that does answer its probes may answer this request too, and one request that crashes every
    engine it meets must not shut the others out. ``excluded``, those known to be down and those of weight 0 never.
    ``now`` is ``loop.time()``.
    """
    if len(engines) == 1:
        (engine,) = engines
        return engine if engine.up is not False and engine.weight > 0 and engine not in excluded else None
    able = [engine for engine in engines if engine.up is not False and engine.weight > 0 and engine not in excluded]
    if len(able) > 1:
        able = [engine for engine in able if engine.fit(now)] or able
    return min(able, key=_load, default=None)


def _load(engine: Engine) -> tuple[float, int]:
    return (engine.in_flight + 1) / engine.weight, engine.turn
