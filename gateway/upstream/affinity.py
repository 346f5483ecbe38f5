"""Requests that belong together go to the same engine, whose prefix cache knows them: digests, and who is their home.

Rendezvous hashing (Thaler and Ravishankar, 1998; weighted: Schindelhauer and Schomaker, 2005): when an engine comes or
goes, only its own share moves. With bounded load (Mirrokni, Thorup and Zadimoghaddam, 2018): a home that has more
than its part of the work sends on to the next in the digest's own order, so that a prompt that everybody shares fills
several engines instead of breaking one.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from gateway.upstream.engine import Engine

#: A home may have this much more than the mean work, and where there is hardly any, so many requests like the next.
BOUND: Final = 1.25
SPARE: Final = 3
#: Shorter beginnings are not worth keeping together: vLLM caches in blocks of 16 to 128 tokens.
SHORTEST: Final = 256
#: What is looked at; two prompts that are alike for so long share a thousand tokens.
LONGEST: Final = 4096

_MASK: Final = 2**64 - 1
_LEADING: Final = ("system", "developer")


def digest(text: bytes) -> int:
    """Return a number that is the same in every process and never 0."""
    return zlib.crc32(text) + 1


def prefix_of(body: Mapping[str, Any]) -> int:
    """Digest what a request's prompt begins with: its system prompt, and its first message where that says too little.

    0 where there is nothing worth keeping together: one short message.
    """
    text, turns = _opening(body)
    if len(text) < SHORTEST and turns < 3:
        return 0
    return digest(text[:LONGEST].encode("utf-8", "surrogatepass"))


def _opening(body: Mapping[str, Any]) -> tuple[str, int]:
    lead = _text(body.get("system") or body.get("instructions"))
    messages = body.get("messages") or body.get("input") or body.get("prompt")
    if not isinstance(messages, list):
        return lead if len(lead) >= SHORTEST else lead + _text(messages), 1
    for message in messages:
        if not isinstance(message, Mapping):
            return lead + _text(message), 1
        if message.get("role") not in _LEADING and len(lead) >= SHORTEST:
            break
        lead += _text(message.get("content"))
        if message.get("role") not in _LEADING:
            break
    return lead, len(messages)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content[:LONGEST]
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text[:LONGEST] for text in texts if isinstance(text, str))


def home(engines: Collection[Engine], digest: int, work: int) -> Engine | None:
    """Return the first in the digest's order of these engines that has room; None where none has."""
    total = sum(engine.weight or 1.0 for engine in engines)
    bound, spare = BOUND * (sum(engine.work for engine in engines) + work) / total, SPARE * work
    able = [engine for engine in engines if engine.work <= bound * (engine.weight or 1.0) + spare]
    salt = digest * 0xD1342543DE82EF95
    if len({engine.weight for engine in able}) == 1:  # of equals the order of the numbers is the order of the ranks
        return max(able, key=lambda engine: _mixed(engine.seed ^ salt))
    return max(able, key=lambda engine: _rank(_mixed(engine.seed ^ salt), engine.weight or 1.0), default=None)


def _rank(number: int, weight: float) -> float:
    return -weight / math.log((number + 1) / (_MASK + 2))


def _mixed(number: int) -> int:
    """Spread a number over 64 bits (the finaliser of splitmix64)."""
    number &= _MASK
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)
