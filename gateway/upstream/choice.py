"""Which engine gets the next request: pure functions over what is known of the engines.

Weights are shares of the work, also where nothing is queued: engines of one weight are a group, the groups take turns
by start-time fair queueing (Goyal, Vin and Cheng, 1996), and inside a group the least loaded is chosen, of many the
better of two drawn at random (power of two choices: else every gateway would run to the same one).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Final

from gateway.upstream.affinity import home
from gateway.upstream.engine import Engine
from gateway.upstream.want import Want

#: Of more engines than this two are drawn and compared; so few are all looked at.
LOOK_AT_ALL: Final = 8


class Shares:
    """What each group has had so far: the moments, in work over weight, when its last request is through."""

    __slots__ = ("_ends", "_now")

    def __init__(self) -> None:
        self._ends: dict[float, float] = {}
        self._now = 0.0

    def next(self, groups: dict[float, list[Engine]], work: int, now: float) -> list[Engine]:
        """Return the group whose turn it is, and count the work to it. One that was away has nothing to make up for."""
        starts = {weight: max(self._now, self._ends.get(weight, 0.0)) for weight in groups}
        weight = min(starts, key=lambda each: (starts[each], -each))
        group = groups[weight]
        self._now = starts[weight]
        self._ends = {each: end for each, end in self._ends.items() if end > self._now}  # groups come and go
        self._ends[weight] = self._now + work / (weight * sum(engine.share(now) for engine in group))
        return group


def choose(
    engines: Sequence[Engine], want: Want, excluded: Collection[Engine], now: float, shares: Shares
) -> Engine | None:
    """Return the engine for a request, or None. ``now`` is ``loop.time()``.

    Those that failed lately, are busy, cold or stuck are passed over while there are others. If there are none they are
    asked all the same: an engine that does answer its probes may answer this request too, and one request that crashes
    every engine it meets must not shut the others out. ``excluded``, those known to be down, those being drained and
    those of weight 0 never; but weight 0 takes whom it is preferred for, and only it can answer what only it knows.
    """
    if want.only is None and len(engines) == 1:
        (engine,) = engines
        return engine if _may(engine, want) and engine not in excluded else None
    if want.only is not None:
        able = [engine for engine in engines if engine.name == want.only and engine.up is not False]
        return able[0] if able and able[0] not in excluded else None
    able = [engine for engine in engines if engine not in excluded and _may(engine, want)]
    if len(able) > 1:
        able = _preferred(able, want, now)
    if len(able) < 2:
        return able[0] if able else None
    digest = want.session or want.prefix
    if digest and (at_home := home(able, digest, want.work)) is not None:
        return at_home
    return _least(_group(able, want, shares, now), want, now)


def _may(engine: Engine, want: Want) -> bool:
    if engine.up is False or engine.draining or engine.mirror:
        return False
    return engine.weight > 0 or (engine.preference is not None and engine.preference.meets(want))


def _preferred(able: list[Engine], want: Want, now: float) -> list[Engine]:
    """Narrow to the fit ones that the request prefers, else to the fit, else to the preferred."""
    fit = [engine for engine in able if engine.fit(now)]
    ours = [engine for engine in able if engine.preference is not None and engine.preference.meets(want)]
    both = [engine for engine in ours if engine in fit]
    return both or fit or ours or able


def _group(able: list[Engine], want: Want, shares: Shares, now: float) -> list[Engine]:
    groups: dict[float, list[Engine]] = {}
    for engine in able:
        groups.setdefault(engine.weight or 1.0, []).append(engine)
    return able if len(groups) == 1 else shares.next(groups, want.work, now)


def _least(group: list[Engine], want: Want, now: float) -> Engine:
    if len(group) > LOOK_AT_ALL:
        group = random.sample(group, 2)
    return min(group, key=lambda engine: (engine.load(want, now), engine.turn))
