"""What the fake engine answers when nothing was scripted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.fakes.forms import CHAT, COMPLETIONS, CREATED
from tests.fakes.script import Script, answers, says
from tests.fakes.surfaces import MESSAGES, RESPONSES

if TYPE_CHECKING:
    from tests.fakes.connection import Received
    from tests.fakes.vllm import FakeVLLM

WORDS = ("Hello", " from", " a", " fake", " engine", ".")
GENERATION = {CHAT, COMPLETIONS, "/v1/embeddings", RESPONSES, MESSAGES, "/v1/rerank", "/v1/score"}


def default_for(fake: FakeVLLM, received: Received) -> Script:
    """Answer as an engine with nothing on its mind."""
    body = received.body if isinstance(received.body, dict) else {}
    routes: dict[tuple[str, str], Callable[[], Script]] = {
        ("POST", CHAT): lambda: _generation(body),
        ("POST", COMPLETIONS): lambda: _generation(body),
        ("POST", RESPONSES): lambda: _generation(body),
        ("POST", MESSAGES): lambda: _generation(body),
        ("POST", f"{MESSAGES}/count_tokens"): lambda: answers({"input_tokens": 37}),
        ("POST", "/v1/rerank"): lambda: answers(_reranked(body)),
        ("POST", "/v1/score"): lambda: answers(_scored(body)),
        ("POST", "/v1/embeddings"): lambda: answers(_embeddings(body)),
        ("POST", "/tokenize"): lambda: answers(_tokens(body)),
        ("POST", "/detokenize"): lambda: answers({"prompt": "".join(map(chr, body.get("tokens") or []))}),
        ("GET", "/v1/models"): lambda: answers({"object": "list", "data": [_card(name) for name in fake.models]}),
        ("GET", "/health"): lambda: answers(b"", 200 if fake.healthy else 503),
        ("GET", "/version"): lambda: answers({"version": "0.32.0"}),
        ("GET", "/metrics"): lambda: answers(_metrics(fake), headers={"content-type": "text/plain; version=0.0.4"}),
    }
    return routes.get((received.method, received.route), lambda: answers({"detail": "Not Found"}, 404))()


def _generation(body: dict[str, Any]) -> Script:
    limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or len(WORDS))
    return says(*WORDS[:limit], finish="length" if limit < len(WORDS) else "stop")


def _tokens(body: dict[str, Any]) -> dict[str, Any]:
    text = str(body.get("prompt") or "".join(str(message.get("content")) for message in body.get("messages") or []))
    return {"count": len(text), "max_model_len": 2048, "tokens": [ord(letter) for letter in text], "token_strs": None}


def _reranked(body: dict[str, Any]) -> dict[str, Any]:
    documents = body.get("documents") or []
    results = [
        {"index": at, "document": {"text": text, "multi_modal": None}, "relevance_score": 1 / (at + 1)}
        for at, text in enumerate(documents)
    ]
    used = {"prompt_tokens": len(documents), "total_tokens": len(documents)}
    return {"id": "rerank-1", "model": body.get("model"), "usage": used, "results": results}


def _scored(body: dict[str, Any]) -> dict[str, Any]:
    data = [{"index": at, "object": "score", "score": 0.5} for at, _ in enumerate(body.get("documents") or [""])]
    used = {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None}
    head = {"id": "score-1", "object": "list", "created": CREATED, "model": body.get("model")}
    return head | {"data": data, "usage": used}


def _metrics(fake: FakeVLLM) -> bytes:
    return f'vllm:num_requests_running{{engine="0",model_name="{fake.models[0]}"}} {fake.running:.1f}\n'.encode()


def _card(name: str) -> dict[str, Any]:
    head = {"id": name, "object": "model", "created": CREATED, "owned_by": "vllm", "root": name, "parent": None}
    return head | {"max_model_len": 2048, "permission": []}


def _embeddings(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("input")
    texts = given if isinstance(given, list) else [given]
    data = [
        {"index": at, "object": "embedding", "embedding": [len(str(text)), at, 0.5]} for at, text in enumerate(texts)
    ]
    usage = {
        "prompt_tokens": len(texts),
        "total_tokens": len(texts),
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }
    return {
        "id": "embd-1",
        "object": "list",
        "created": CREATED,
        "model": body.get("model"),
        "data": data,
        "usage": usage,
    }
