"""One request, explained from its line of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gateway.why.finding import ms

#: No request takes longer.
MOST_MS = 1e12
#: What each phase is, and what to do where it is the longest.
PHASES: Mapping[str, tuple[str, str]] = {
    "auth": ("checking the key", "more workers"),
    "tokenize": ("counting the prompt's tokens", "shorter prompts, more workers"),
    "queue": ("waiting for a place", "sluice why says for whom; another engine, a limit for the hot key"),
    "chain_request": ("plugins before the engine", "sluice why names the slowest; timeout_s"),
    "connect": ("connecting to the engine, and looking up its name", "sluice why tells name and network apart"),
    "first_token": (
        "the engine's queue and prefill",
        "shorter or like prompts; sluice why tells queue and prefill apart",
    ),
    "decode": ("token after token", "fewer tokens, a faster engine"),
    "chain_answer": ("plugins after the engine", "sluice why names the slowest; timeout_s"),
    "client_write": ("waiting for the caller to take it", "the caller's network or proxy"),
}


def find(lines: Iterable[str], request_id: str) -> dict[str, Any] | None:
    """Return a request's line; None where there is none."""
    for line in lines:
        if request_id in line:
            try:
                record = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.MsgspecError:
                continue
            if record.get("event") == "request" and record.get("request_id") == request_id:
                return record
    return None


def parts(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each phase, the longest first; what a slow caller took is no decoding."""
    told = record.get("phases_ms")
    phases = {str(name): _number(took) / 1e3 for name, took in told.items()} if isinstance(told, dict) else {}
    if "decode" in phases:
        phases["decode"] = max(0.0, phases["decode"] - phases.get("client_write", 0.0))
    phases["elsewhere"] = max(0.0, _number(record.get("total_ms")) / 1e3 - sum(phases.values()))
    return dict(sorted(phases.items(), key=lambda each: -each[1]))


def explained(record: Mapping[str, Any]) -> Iterator[str]:
    """Tell where its time went, in lines."""
    tokens = f"{record.get('prompt_tokens', '?')} tokens in, {record.get('completion_tokens', '?')} out"
    at = f"{record.get('model')} at {record.get('engine')}, key {record.get('key')}"
    ended = f"{record.get('outcome', 'ended')} after {ms(_number(record.get('total_ms')) / 1e3)}"
    yield f"{record['request_id']}: {ended}, {tokens}, {at}"
    if first := _number(record.get("first_text_ms")):
        yield f"  first text after {ms(first / 1e3)}"
    took = parts(record)
    total = sum(took.values()) or 1.0
    for name, seconds in took.items():
        if seconds > 0.001 * total:
            meant = PHASES.get(name, ("the body's way in, and what no phase covers", ""))[0]
            yield f"  {name:<13} {seconds:9.3f} s {seconds / total:5.0%}  {_meant(name, meant, record)}"
    longest = next(iter(took))
    mend = PHASES.get(longest, ("", "sluice profile --gateway PID"))[1]
    yield f"cause: {longest}: {took[longest] / total:.0%} of its time"
    yield f"  next: {mend}"


def _number(told: Any) -> float:
    """Return a number of the line; a line that hands have made may have anything."""
    return float(told) if isinstance(told, int | float) and 0 <= told < MOST_MS else 0.0


def _meant(name: str, meant: str, record: Mapping[str, Any]) -> str:
    if name == "first_token" and not record.get("stream"):
        return "the whole answer: it was not streamed"
    extra = record.get("sampling")
    return f"{meant}, with {extra}: the first such request compiles" if name == "first_token" and extra else meant
