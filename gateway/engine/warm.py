"""What we ask the engine ourselves: whether it is up, and some first requests so that no caller pays for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.engine.progress import Progress
from gateway.upstream.client import Broken, Pool, fetch

#: One short answer, one streamed, one with logprobs: each has code of its own that runs (or compiles) at first use.
REQUESTS: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("a short answer", "/v1/completions", {"prompt": "Hello", "max_tokens": 2}),
    ("a stream", "/v1/chat/completions", {"stream": True}),
    ("logprobs", "/v1/chat/completions", {"stream": True, "logprobs": True, "top_logprobs": 2}),
)
_CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
#: A large model on a slow machine; the caller of a cold engine would wait as long.
_TIMEOUT_S = 300.0


async def alive(pool: Pool) -> bool:
    """Tell whether the engine answers its health check."""
    try:
        answer = await fetch(pool, "GET", "/health", timeout_s=5)
    except (Broken, OSError):
        return False
    return answer.status == 200


async def warm(pool: Pool, model: str, key: str | None, progress: Progress) -> None:
    """Ask once for everything usual. What the model cannot do (a base model chat, an embedder text) is not asked twice;
    an engine that fails here will be noticed by its health check, so no failure is ours to raise.
    """
    headers = [(b"content-type", b"application/json")]
    if key:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    for what, path, fields in REQUESTS:
        progress.phase("warming up", what)
        body = {"model": model, **(_CHAT if path.endswith("chat/completions") else {}), **fields}
        try:
            await fetch(pool, "POST", path, msgspec.json.encode(body), headers, timeout_s=_TIMEOUT_S)
        except (Broken, OSError) as failure:
            progress.say(f"could not warm up {what}: {str(failure) or type(failure).__name__}")
