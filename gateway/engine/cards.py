"""The usual cards: the memory a driver tells of, and whether their arithmetic has FP8. From NVIDIA's data sheets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.engine.machine import GIB

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Card:
    """Memory in bytes as drivers tell it, bandwidth in GB/s; ``fp8``: from capability 8.9 on, ``bf16``: from 8.0."""

    name: str
    memory: int
    bandwidth: int
    fp8: bool
    bf16: bool = True


def _card(name: str, mib: int, bandwidth: int, *, fp8: bool, bf16: bool = True) -> tuple[str, Card]:
    return name.lower(), Card(name, mib * MIB, bandwidth, fp8, bf16)


CARDS: Mapping[str, Card] = dict(
    [
        _card("T4", 15360, 320, fp8=False, bf16=False),
        _card("V100-16GB", 16384, 900, fp8=False, bf16=False),
        _card("V100-32GB", 32768, 900, fp8=False, bf16=False),
        _card("A10", 23028, 600, fp8=False),
        _card("A10G", 23028, 600, fp8=False),
        _card("RTX3090", 24576, 936, fp8=False),
        _card("A40", 46068, 696, fp8=False),
        _card("A6000", 49140, 768, fp8=False),
        _card("A100-40GB", 40960, 1555, fp8=False),
        _card("A100-80GB", 81920, 2039, fp8=False),
        _card("A800-80GB", 81920, 2039, fp8=False),
        _card("L4", 23034, 300, fp8=True),
        _card("L20", 46068, 864, fp8=True),
        _card("L40S", 46068, 864, fp8=True),
        _card("RTX4090", 24564, 1008, fp8=True),
        _card("RTX5090", 32607, 1792, fp8=True),
        _card("H20", 97871, 4000, fp8=True),
        _card("H100-80GB", 81559, 3350, fp8=True),
        _card("H800-80GB", 81559, 3350, fp8=True),
        _card("H200", 143771, 4800, fp8=True),
        _card("B200", 183359, 8000, fp8=True),
    ]
)


def named(name: str) -> Card:
    """Return a card of the table, or one of so much memory (``96GB``). Raises ValueError naming the table."""
    wanted = name.lower().replace(" ", "").replace("nvidia", "").strip("-")
    if card := CARDS.get(wanted):
        return card
    found = [card for key, card in CARDS.items() if key.split("-")[0] == wanted]
    if found:
        return max(found, key=lambda card: card.memory)
    for unit in ("gib", "gb"):
        number = wanted.removesuffix(unit)
        if number != wanted and re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,9})?", number) and float(number):
            return Card(name, int(float(number) * GIB), 0, fp8=False)
    raise ValueError(f"no card {name!r}: one of {', '.join(card.name for card in CARDS.values())}, or its memory: 96GB")
