"""The engines' stages: are they there, who waits in them, what prefill, sampling and decode take. vLLM's own metrics.

Without an engine's scrape the gateway's view stands in: what it waited for the first token, and for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.why.finding import Finding, ms
from gateway.why.window import Window

#: The KV cache counts as full from here on.
FULL = 0.9
#: More prompt tokens computed for each one generated than this: the engine reads more than it writes.
FLOOD = 8.0
#: A gap between two pieces that is a stall, where half of them come within a tenth of it.
STALL_S = 1.0
#: Up to so many sequences a step, reading the weights outweighs computing with them (on any card, roughly).
FEW = 16

KV_MEND = "a shorter context or max_tokens, --kv-cache-dtype fp8, more cache (sluice plan), another engine"
_TIMED_OUT = "no answer in time"


def phase(window: Window, name: str) -> float:
    """Return what a phase took of a request that ended, on average over all that ended; seconds."""
    ended = window.gateway.grew("sluice_requests_total")
    return window.gateway.grew("sluice_phase_seconds_sum", phase=name) / ended if ended else 0.0


def _sum(window: Window, name: str, **labels: str) -> float:
    return sum(each.grew(name, **labels) for each in window.engines.values())


def _mean(window: Window, name: str) -> float:
    count = _sum(window, f"{name}_count")
    return _sum(window, f"{name}_sum") / count if count else 0.0


def _known(window: Window, name: str) -> bool:
    return any(each.has(name) for each in window.engines.values())


def liveness(window: Window) -> Finding:
    """Engines that are gone, and those that have work and get nowhere."""
    hung = [name for name, trouble in window.troubles.items() if trouble == _TIMED_OUT]
    gone = [name for name in window.troubles if name not in hung]
    stalled = [name for name, each in window.engines.items() if each and _stands_still(window, name)]
    ill = [name for name in window.gateway.zeros("sluice_engine_up", "engine") if name not in {*stalled, *hung, *gone}]
    failed = {
        outcome: count
        for outcome in ("no_engine_available", "engine_error", "engine_timeout")
        if (count := window.gateway.grew("sluice_requests_total", outcome=outcome))
    }
    became = "".join(f", {count:g} requests ended with {outcome}" for outcome, count in failed.items())
    if gone or (ill and not stalled and not hung):
        evidence = f"{_names([*gone, *ill])}: no answer{became}"
        mend = (
            "its log: sluice up names why an engine died; sluice engines list shows what the gateway holds against it"
        )
        return Finding("engines", "dead engine", 0.0, evidence, mend, blocking=True)
    if stalled or hung or _silence(window):
        running = window.gateway.now("sluice_in_flight")
        who = _names([*stalled, *hung]) or "the engines"
        evidence = f"{running:g} in flight, and {who} got nowhere for {window.seconds:.3g} s{became}"
        mend = "its log and its card (nvidia-smi); restart it: stalled_after_s passes it over meanwhile"
        return Finding("engines", "engine stall", window.seconds, evidence, mend, blocking=True)
    return Finding("engines", "pace", 0.0, f"{len(window.engines) or 'all'} answer{became}", "")


def _stands_still(window: Window, name: str) -> bool:
    each = window.engines[name]
    moved = each.grew("vllm:generation_tokens_total") + each.grew("vllm:prompt_tokens_total")
    known = each.has("vllm:generation_tokens_total")
    return known and not moved and each.always("vllm:num_requests_running")


def _silence(window: Window) -> bool:
    """Whether requests were in flight all the time and nothing at all came of it, by the gateway's own count."""
    gateway = window.gateway
    if any(each.has("vllm:generation_tokens_total") for each in window.engines.values()):
        return False  # they say it themselves
    came = gateway.grew("sluice_chunk_gap_seconds_count") + gateway.grew("sluice_requests_total", outcome="ok")
    return gateway.always("sluice_in_flight") and not came


def engine_queue(window: Window) -> Finding:
    """Who waits inside the engines: for KV blocks, behind prompts, or for a place."""
    ended = max(1.0, window.gateway.grew("sluice_requests_total"))
    waiting = sum(each.between("vllm:num_requests_waiting") for each in window.engines.values())
    waited = max(_mean(window, "vllm:request_queue_time_seconds"), waiting * window.seconds / ended)
    preempted = _sum(window, "vllm:num_preemptions_total")
    used = max((each.top("vllm:kv_cache_usage_perc") for each in window.engines.values()), default=0.0)
    evidence = (
        f"{waiting:g} wait in the engines, {ms(waited)} each; KV cache {used:.0%} full, {preempted:g} preemptions"
    )
    if preempted or (used > FULL and waiting):
        # What is preempted begins anew: half of its work is lost on average.
        lost = min(1.0, preempted / ended) * (_engine_s(window) or window.seconds) / 2
        return Finding("engine queue", "KV pressure", waited + lost, evidence, KV_MEND)
    if _floods(window):
        return Finding("engine queue", "prefill flood", waited, f"{evidence}; {_prompts(window)}", _FLOOD_MEND)
    mend = "another engine, or a larger --max-num-seqs where the KV cache has room"
    return Finding("engine queue", "engine queue", waited, evidence, mend)


_FLOOD_MEND = (
    "keep prompts' beginnings alike (prefix cache), a smaller --max-num-batched-tokens, an engine of their own"
)


def _engine_s(window: Window) -> float:
    return phase(window, "first_token") + phase(window, "decode")


def _tokens(window: Window) -> tuple[float, float]:
    """Return how many prompt tokens were computed and how many generated."""
    if _known(window, "vllm:generation_tokens_total"):
        computed = _sum(window, "vllm:prompt_tokens_by_source_total", source="local_compute")
        computed = computed or _sum(window, "vllm:prompt_tokens_total") - _sum(window, "vllm:prefix_cache_hits_total")
        return computed, _sum(window, "vllm:generation_tokens_total")
    kinds = window.gateway.by("sluice_tokens_total", "kind")
    return kinds.get("prompt", 0.0), kinds.get("completion", 0.0)


def _floods(window: Window) -> bool:
    computed, generated = _tokens(window)
    return computed > FLOOD * max(1.0, generated)


def _prompts(window: Window) -> str:
    computed, generated = _tokens(window)
    return f"{computed / window.seconds:.0f} prompt tokens/s computed, {generated / window.seconds:.0f} generated"


def prefill(window: Window) -> Finding:
    """Reading the prompts, until the first token."""
    took = _mean(window, "vllm:request_prefill_time_seconds")
    if not _known(window, "vllm:request_prefill_time_seconds_count"):
        took = window.gateway.mean("sluice_engine_first_seconds", stream="yes") or phase(window, "first_token")
    took = max(0.0, took - sampling(window).seconds)
    asked = _sum(window, "vllm:prefix_cache_queries_total")
    hits = f", {_sum(window, 'vllm:prefix_cache_hits_total') / asked:.0%} from the prefix cache" if asked else ""
    cause = "prefill flood" if _floods(window) else "pace"
    return Finding("prefill", cause, took, f"{ms(took)} to the first token; {_prompts(window)}{hits}", _FLOOD_MEND)


def sampling(window: Window) -> Finding:
    """What logprobs and grammars take before the first token, beyond what plain requests of the same window took."""
    gateway, ended = window.gateway, max(1.0, window.gateway.grew("sluice_requests_total"))
    name = "sluice_engine_first_seconds"
    worst = Finding("sampling", "pace", 0.0, "logprobs and structured output take no longer than plain answers", "")
    for kind, cause in (("logprobs", "logprobs"), ("structured", "structured output")):
        for stream in ("yes", "no"):
            count = gateway.grew(f"{name}_count", sampling=kind, stream=stream)
            plain = gateway.mean(name, sampling="plain", stream=stream)
            mean = gateway.mean(name, sampling=kind, stream=stream)
            excess = (mean - plain) * count / ended
            if plain and excess > worst.seconds:
                evidence = f"{count:g} with {cause} began after {ms(mean)}, plain ones after {ms(plain)}"
                mend = (
                    "vLLM compiles at the first: warm_up sends one like it; TORCHDYNAMO_DISABLE=1 on a CPU; then fewer"
                )
                worst = Finding("sampling", cause, excess, evidence, mend)
    return worst


def decode(window: Window) -> Finding:
    """Token after token: what a step is bound by."""
    gateway = window.gateway
    took = _mean(window, "vllm:request_decode_time_seconds")
    if not _known(window, "vllm:request_decode_time_seconds_count"):
        took = max(0.0, phase(window, "decode") - phase(window, "client_write"))
    gap = _mean(window, "vllm:inter_token_latency_seconds") or gateway.mean("sluice_chunk_gap_seconds")
    late, usual = (gateway.quantile("sluice_chunk_gap_seconds", share) for share in (0.99, 0.5))
    if late > STALL_S and usual < late / 10 and phase(window, "client_write") < STALL_S / 10:
        evidence = f"most pieces come within {ms(usual)}, the slowest hundredth after up to {ms(late)}"
        return Finding("decode", "engine stall", took, evidence, "long prompts beside (prefill), or the engine's log")
    running = sum(each.between("vllm:num_requests_running") for each in window.engines.values())
    step = _mean(window, "vllm:iteration_tokens_total")
    bound = "compute" if max(running, step) > FEW else "memory bandwidth"
    evidence = f"{ms(gap)} a token, {running:g} at once, {step:.3g} tokens a step: bound by {bound}"
    mend = {
        "compute": "fewer at once (--max-num-seqs), another engine",
        "memory bandwidth": "quantised weights (docs: quantization), more cards (-tp), a smaller model",
    }[bound]
    return Finding("decode", "pace", took, evidence, mend)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))
