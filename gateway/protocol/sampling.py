"""What a request asks of an engine's sampling: some of it costs the first time, some of it every token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sampling_of(body: Mapping[str, Any]) -> str:
    """Return ``structured`` (a grammar holds each token), ``logprobs``, or ``plain``; of several the dearest."""
    if "structured_outputs" in body:
        return "structured"
    kind = body.get("response_format")
    if kind is None and "text" in body:  # /v1/responses
        text = body["text"]
        kind = text.get("format") if isinstance(text, Mapping) else None
    if isinstance(kind, Mapping) and kind.get("type", "text") != "text":
        return "structured"
    if body.get("logprobs", False) is not False and body["logprobs"] is not None:
        return "logprobs"
    return "logprobs" if body.get("top_logprobs") or body.get("prompt_logprobs") is not None else "plain"
