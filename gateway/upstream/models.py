"""What an engine says it serves."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.upstream.client import Broken, fetch
from gateway.upstream.engine import Engine

MODELS = "/v1/models"
_CARDS = 10_000


async def read_models(engine: Engine, timeout_s: float) -> None:
    """Read the engine's list of models into ``cards`` and ``max_model_len``; what cannot be read leaves them alone."""
    try:
        answer = await fetch(engine.pool, "GET", MODELS, headers=engine.key_header(), timeout_s=timeout_s)
    except (Broken, TimeoutError):
        return
    cards = _cards(answer.body) if answer.status == 200 else ()
    if cards:
        engine.cards = cards
        engine.max_model_len = _max_model_len(cards, engine.served_model)


def _cards(body: bytes) -> tuple[dict[str, Any], ...]:
    try:
        told = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ()
    data = told.get("data") if isinstance(told, dict) else None
    cards = data[:_CARDS] if isinstance(data, list) else []
    return tuple(card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str))


def _max_model_len(cards: tuple[dict[str, Any], ...], served: str | None) -> int | None:
    """Find the window of the model we ask this engine for; an engine with one model means that one."""
    found = [card for card in cards if card["id"] == served] or (cards if len(cards) == 1 else [])
    length = found[0].get("max_model_len") if found else None
    return length if type(length) is int and length > 0 else None
