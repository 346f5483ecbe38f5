"""Numbers that JSON has and no reader can hold: an engine that writes one must not take a whole answer down."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec


def decoded(payload: bytes | msgspec.Raw) -> Any:
    """Read an engine's JSON; a number such as 1e400, or of thousands of digits, becomes null.

    Raises ValueError where it is no JSON.
    """
    try:
        return msgspec.json.decode(payload)
    except msgspec.ValidationError:
        return json.loads(bytes(payload), parse_float=_held(float), parse_int=_held(int))


def _held(read: Callable[[str], float]) -> Callable[[str], float | None]:
    def number(text: str) -> float | None:
        try:
            found = read(text)
        except ValueError:
            return None
        return found if isinstance(found, int) or isfinite(found) else None

    return number
