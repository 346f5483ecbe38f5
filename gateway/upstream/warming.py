"""The first request of an engine is ours: what compiles or is read at first use is not paid for by a caller."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from gateway.upstream.client import Broken, fetch
from gateway.upstream.engine import Engine

#: vLLM compiles for up to half a minute at the first logprobs, a large model on a slow machine for longer.
WARM_UP_S: Final = 300.0
#: With this begin the ids of such requests.
REQUEST_ID: Final = "sluice-warm-up-"

_SHORT: Final[dict[str, Any]] = {"max_tokens": 1, "temperature": 0, "stream": True}
_CHAT: Final = {"messages": [{"role": "user", "content": "Hello"}], "logprobs": True, "top_logprobs": 1}
_TEXT: Final = {"prompt": "Hello", "logprobs": 1}
_BUSY: Final = (429, 503)


async def warm(engine: Engine, timeout_s: float = WARM_UP_S) -> bool:
    """Ask for a short streamed answer with logprobs; True when the engine has given one, or cannot by its nature.

    A chat is asked first; who refuses it (a model without a template) is asked to go on with a text.
    """
    model = engine.served_model or (engine.cards[0]["id"] if engine.cards else None)
    if model is None:
        return True
    for path, fields in (("/v1/chat/completions", _CHAT), ("/v1/completions", _TEXT)):
        status = await _ask(engine, path, {"model": model, **_SHORT, **fields}, timeout_s)
        if status == 200:
            return True
        if status >= 500 or status in _BUSY or not status:
            return False
    return True  # an embedder, or whatever else answers neither


async def _ask(engine: Engine, path: str, body: dict[str, Any], timeout_s: float) -> int:
    headers = [
        (b"content-type", b"application/json"),
        (b"x-request-id", f"{REQUEST_ID}{secrets.token_hex(4)}".encode()),
        *engine.key_header(),
    ]
    try:
        answer = await fetch(engine.pool, "POST", path, msgspec.json.encode(body), headers, timeout_s=timeout_s)
    except (Broken, TimeoutError):
        return 0
    return 500 if answer.status == 200 and b'"error"' in answer.body[:200] else answer.status
