"""What an engine tells of itself under /metrics, in Prometheus's text."""

from __future__ import annotations

import re
from typing import NamedTuple

#: vLLM's names first; SGLang's and llama.cpp's mean the same.
_RUNNING = (b"vllm:num_requests_running", b"sglang:num_running_reqs", b"llamacpp:requests_processing")
_WAITING = (b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred")
_KV_USED = (
    b"vllm:kv_cache_usage_perc",
    b"vllm:gpu_cache_usage_perc",
    b"sglang:token_usage",
    b"llamacpp:kv_cache_usage_ratio",
)
#: Whatever moves while the engine works: tokens out, tokens in, steps.
_PROGRESS = (
    *(b"vllm:generation_tokens_total", b"vllm:prompt_tokens_total", b"vllm:iteration_tokens_total_count"),
    *(b"sglang:generation_tokens_total", b"sglang:prompt_tokens_total"),
    *(b"llamacpp:tokens_predicted_total", b"llamacpp:prompt_tokens_total"),
)
_KV_TOKENS = re.compile(rb'^vllm:cache_config_info\{[^\n]*?kv_cache_size_tokens="(\d+)"', re.MULTILINE)
_CACHED = (b"vllm:prefix_cache_hits_total",)
_ASKED = (b"vllm:prefix_cache_queries_total",)


class Figures(NamedTuple):
    """``kv_used``: from 0 to 1, the fullest of several ranks. ``kv_tokens``: the cache's size; None: not told.

    ``progress`` is only good for comparison: it has changed when the engine has done anything.
    """

    running: float = 0.0
    waiting: float = 0.0
    kv_used: float = 0.0
    progress: float = 0.0
    kv_tokens: int | None = None


def read(text: bytes) -> Figures | None:
    """Read the figures, of several ranks the sum; None where there are none that we know."""
    running = _values(text, _RUNNING)
    if not running:
        return None
    sizes = _KV_TOKENS.findall(text)
    return Figures(
        running=sum(running),
        waiting=sum(_values(text, _WAITING)),
        kv_used=min(1.0, max(_values(text, _KV_USED), default=0.0)),
        progress=sum(sum(_values(text, (name,))) for name in _PROGRESS),
        kv_tokens=sum(map(int, sizes)) or None,
    )


def prefix_hits(text: bytes) -> tuple[float, float]:
    """Return how many prompt tokens the engine found in its prefix cache, and how many it looked for."""
    return sum(_values(text, _CACHED)), sum(_values(text, _ASKED))


def _values(text: bytes, names: tuple[bytes, ...]) -> list[float]:
    """Return the values of the first of the names that occurs; what is no number counts as none."""
    for name in names:
        found = re.findall(rb"^" + re.escape(name) + rb"(?:\{[^\n]*\})? ([0-9.eE+-]+)\s*$", text, re.MULTILINE)
        if found:
            return [value for value in map(_number, found) if value is not None]
    return []


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
