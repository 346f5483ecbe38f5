"""The stages of a request, each with what its numbers say: how long, why, and what to do next."""

from __future__ import annotations

from collections.abc import Callable

from gateway.why.engines import KV_MEND, decode, engine_queue, liveness, phase, prefill, sampling
from gateway.why.finding import Finding, ms
from gateway.why.window import Window

__all__ = ["STAGES", "Finding"]

#: One key that has this part of the tokens, where there are others, is what the others wait for.
HOT = 0.6
#: Late wake-ups of the event loop, mean: every stream stutters by as much.
LAG_S = 0.01


def entry(window: Window) -> Finding:
    """The way in: key, body, tokens, the event loop itself."""
    gateway = window.gateway
    auth, tokenize = phase(window, "auth"), phase(window, "tokenize")
    lag = gateway.mean("sluice_event_loop_lag_seconds")
    evidence = f"auth {ms(auth)}, tokenize {ms(tokenize)}, event loop late by {ms(lag)}"
    if lag > LAG_S:
        mend = "sluice profile --gateway PID shows what holds it up; more workers (server.workers) if it is just load"
        return Finding("entry", "event loop", auth + tokenize + lag, evidence, mend)
    cause = "tokenize" if tokenize > auth else "auth"
    return Finding("entry", cause, auth + tokenize, evidence, "more workers (server.workers), or shorter prompts")


def chain(window: Window) -> Finding:
    """What plugins take, before the engine and after it."""
    gateway = window.gateway
    ended = gateway.grew("sluice_requests_total")
    spent = gateway.by("sluice_plugin_seconds_sum", "plugin")
    total = sum(spent.values()) / ended if ended else 0.0
    total = max(total, phase(window, "chain_request") + phase(window, "chain_answer"))
    if not spent or not ended:
        return Finding("chain", "slow plugin", total, "no plugin has run", "")
    slowest = max(spent, key=lambda name: spent[name])
    failed = gateway.grew("sluice_plugin_runs_total", plugin=slowest, outcome="timed_out")
    late = f", {failed:g} timed out" if failed else ""
    evidence = f"{slowest} takes {ms(spent[slowest] / ended)} of a request{late}; all plugins {ms(total)}"
    mend = f"give {slowest} a timeout_s, run it for fewer (models, keys), or sluice profile --gateway PID"
    return Finding("chain", "slow plugin", total, evidence, mend)


def queue(window: Window) -> Finding:
    """Our own queue: who waits, and whether one key is why."""
    gateway = window.gateway
    ended = gateway.grew("sluice_requests_total")
    depth = gateway.between("sluice_queue_depth")
    waited = max(phase(window, "queue"), depth * window.seconds / max(1.0, ended))
    room = gateway.now("sluice_capacity_tokens")
    full = f", {gateway.now('sluice_reserved_tokens') / room:.0%} of the KV tokens reserved" if room else ""
    refused = sum(gateway.grew("sluice_requests_total", outcome=each) for each in ("queue_full", "rate_limit_exceeded"))
    turned = f", {refused:g} refused" if refused else ""
    evidence = f"{depth:g} wait, {ms(waited)} each, {gateway.now('sluice_in_flight'):g} in flight{full}{turned}"
    spent = {key: tokens for key, tokens in gateway.by("sluice_key_tokens_total", "key").items() if tokens}
    hottest = max(spent, key=lambda key: spent[key], default="")
    if len(spent) > 1 and spent[hottest] >= HOT * sum(spent.values()):
        share = spent[hottest] / sum(spent.values())
        mend = f"give {hottest} a limit (tpm, max_in_flight), a smaller share or a later priority"
        return Finding("queue", "hot key", waited, f"{hottest} has {share:.0%} of the tokens; {evidence}", mend)
    if room and _does_not_fit(window, room):
        return Finding("queue", "KV pressure", waited, evidence, KV_MEND)
    mend = "another engine, a shorter max_tokens, or refuse sooner (models[].queue)"
    return Finding("queue", "long queue", waited, evidence, mend)


def _does_not_fit(window: Window, room: float) -> bool:
    """Whether another request like those at the engines would have found no room in the KV cache, at either end."""
    held = max(window.gateway.now("sluice_reserved_tokens"), window.gateway.between("sluice_reserved_tokens"))
    there = max(1.0, window.gateway.between("sluice_in_flight"))
    return held + held / there > room


def connect(window: Window) -> Finding:
    """The way to the engine: its name, and the connection."""
    took = phase(window, "connect")
    slow = [(look.name_s, name) for name, look in window.lookups.items() if look.name_s is not None]
    name_s, engine = max(slow, default=(0.0, ""))
    dialled = max((look.connect_s or 0.0 for look in window.lookups.values()), default=0.0)
    seen = f"; from here {engine}'s name takes {ms(name_s)}, connecting {ms(dialled)}" if slow else ""
    evidence = f"connecting takes {ms(took)} of a request{seen}"
    if name_s > max(dialled, took / 4):
        mend = "mend the resolver (search domains, ndots, a cache beside the gateway), or name engines by address"
        return Finding("connect", "DNS", took, evidence, mend)
    return Finding("connect", "connect", took, evidence, "look at the network between gateway and engine, and at TLS")


def client_write(window: Window) -> Finding:
    """Callers that do not take what there is."""
    took = phase(window, "client_write")
    count = window.gateway.grew("sluice_phase_seconds_count", phase="client_write")
    ended = window.gateway.grew("sluice_requests_total")
    evidence = f"{count:g} of {ended:g} callers made us wait, {ms(took)} of a request"
    mend = "their network, or a proxy that reads slowly; sluice why --request ID tells whose (client, key in the log)"
    return Finding("client write", "slow client", took, evidence, mend)


#: From the door inwards and out again.
STAGES: tuple[Callable[[Window], Finding], ...] = (
    *(liveness, entry, chain, queue, connect),
    *(engine_queue, prefill, sampling, decode, client_write),
)
