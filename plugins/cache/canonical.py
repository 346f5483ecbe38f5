"""When two requests are the same: the same name for both, and a different one for any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

#: What changes how an answer is told or accounted for, and not what it says.
_BESIDE = frozenset(
    {"model", "metadata", "priority", "request_id", "service_tier", "store", "stream", "stream_options", "user"}
)

_encode = msgspec.json.Encoder(order="deterministic").encode


def is_deterministic(request: Mapping[str, Any]) -> bool:
    """Say whether the request asks for an answer that would be the same again: temperature 0, or a seed."""
    temperature, seed = request.get("temperature"), request.get("seed")
    greedy = isinstance(temperature, int | float) and temperature == 0
    return greedy or (isinstance(seed, int) and not isinstance(seed, bool))


def name(route: str, model: str, owner: str | None, request: Mapping[str, Any], more: Sequence[str] = ()) -> bytes:
    """Return the name of a request of an owner (None: of anyone): 32 bytes. ``more`` is what else makes a difference.

    Neither the order of fields makes a difference nor how a number is written (0, 0.0), nor a field that is null.
    """
    said = {key: _plain(value) for key, value in request.items() if key not in _BESIDE and value is not None}
    return hashlib.sha256(_encode([route, model, owner, said, more])).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
