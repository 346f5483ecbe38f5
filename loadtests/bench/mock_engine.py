#!/usr/bin/env python3
"""A mock of vLLM 0.32's OpenAI server that costs next to nothing.

It answers what vLLM 0.32 answers, byte for byte in form: the same keys in the same order, one write
for each server-sent event (role chunk, content chunks, a finish chunk that carries the last text, a
usage chunk when asked for, [DONE]), the refusal of .../render that a stock server gives, idle
connections closed after five seconds. The text is `texts.ANSWER`, over and over; `max_tokens` says
how many tokens of it, one token a chunk.

Pace and defaults come from the environment and can be changed while it runs:

    ITL_MS         time between two tokens                              0: as fast as possible
    TTFT_MS        time to the first token (a whole answer takes TTFT_MS + tokens * ITL_MS)      0
    BURST          tokens sent back to back before that pace begins                              1
    ANSWER_TOKENS  length of an answer whose request names none                                 64

    curl -X PUT localhost:8100/mock -d '{"itl_ms": 10}'      # answers all settings and counters

Not modelled: sampling, stop strings, n > 1, tools, logprobs, most errors. Any model name is served.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import httptools
import uvloop
from texts import ANSWER, answer_text

IDLE_S = 5.0  # vLLM's keep-alive
CREATED = int(time.time())
FINGERPRINT = "vllm-0.32.0-00000000"
ID = "0123456789abcdef"  # stands for an answer's id in a template
RENDER_REFUSED = {
    "error": {
        "message": "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
        "type": "PermissionDeniedError",
        "param": None,
        "code": 403,
    }
}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
REASONS = {200: b"OK", 400: b"Bad Request", 403: b"Forbidden", 404: b"Not Found"}


@dataclass
class Engine:
    """Settings, which may change while running, and counters."""

    model: str
    itl_ms: float = 0.0
    ttft_ms: float = 0.0
    burst: int = 1
    answer_tokens: int = 64
    requests: int = 0  # generations asked for
    other_requests: int = 0  # anything else: health checks, metrics, what is not there
    tokens: int = 0  # sent
    aborted: int = 0  # generations whose caller left
    running: int = 0
    ids: Any = field(default_factory=lambda: itertools.count(secrets.randbits(60)), repr=False)

    def new_id(self) -> bytes:
        return b"%016x" % (next(self.ids) & 0xFFFFFFFFFFFFFFFF)

    def state(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "ids"}

    def change(self, settings: dict[str, Any]) -> None:
        for key in ("itl_ms", "ttft_ms"):
            setattr(self, key, float(settings.get(key, getattr(self, key))))
        for key in ("burst", "answer_tokens"):
            setattr(self, key, int(settings.get(key, getattr(self, key))))

    def metrics(self) -> bytes:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        gauges = {
            "num_requests_running": (self.running, "Number of requests in model execution batches."),
            "num_requests_waiting": (0, "Number of requests waiting to be processed."),
            "kv_cache_usage_perc": (min(1.0, self.running / 1000), "KV-cache usage. 1 means 100 percent usage."),
        }
        lines = []
        for name, (value, text) in gauges.items():
            lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} gauge", f"vllm:{name}{labels} {value:.1f}"]
        return ("\n".join(lines) + "\n").encode()


def dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def http_answer(status: int, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-length: %d\r\n" % (status, REASONS[status], len(body))
    return head + (b"content-type: " + kind + b"\r\n\r\n" if body else b"\r\n") + body


class Shape:
    """One endpoint's answers as templates: (bytes before the id, bytes after it), ready to write."""

    def __init__(self, model: str, prefix: str, kind: str) -> None:
        self.chat = kind == "chat.completion"
        self.head = {"id": prefix + ID, "object": kind, "created": CREATED, "model": model}
        self.chunk_head = self.head | ({"object": kind + ".chunk"} if self.chat else {})
        self.role = (
            self._event(
                {"choices": [self._choice({"role": "assistant", "content": ""})]}
                | {"prompt_token_ids": None, "prompt_text": None}
            )
            if self.chat
            else None
        )
        self.token = [self._event({"choices": [self._choice(text)]}) for text in ANSWER]
        self._last: dict[tuple[int, bool], tuple[bytes, bytes]] = {}
        self._whole: dict[int, tuple[bytes, bytes]] = {}

    def _event(self, fields: dict[str, Any]) -> tuple[bytes, bytes]:
        data = b"data: " + dumps(self.chunk_head | fields) + b"\n\n"
        before, after = (b"%x\r\n" % len(data) + data + b"\r\n").split(ID.encode())
        return before, after

    def _choice(self, text: str | dict[str, str], finish: str | None = None) -> dict[str, Any]:
        ends = {"finish_reason": finish, "stop_reason": None}
        if not self.chat:
            return {"index": 0, "text": text, "logprobs": None, **ends, "prompt_token_ids": None, "token_ids": None}
        if isinstance(text, dict):  # the role chunk
            return {"index": 0, "delta": text, "logprobs": None, "finish_reason": None}
        if finish is None:
            del ends["stop_reason"]
        return {"index": 0, "delta": {"content": text}, "logprobs": None, **ends, "token_ids": None}

    def last(self, tokens: int, usage_follows: bool) -> tuple[bytes, bytes]:
        """The finish chunk, which carries the last text."""
        key = ((tokens - 1) % len(ANSWER), usage_follows)
        if key not in self._last:
            fields: dict[str, Any] = {"choices": [self._choice(ANSWER[key[0]], "length")]}
            self._last[key] = self._event(fields | ({} if usage_follows else {"system_fingerprint": FINGERPRINT}))
        return self._last[key]

    def usage(self, prompt: int, tokens: int) -> tuple[bytes, bytes]:
        used = {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}
        return self._event({"choices": [], "usage": used, "system_fingerprint": FINGERPRINT})

    def whole(self, new_id: bytes, prompt: int, tokens: int) -> bytes:
        if tokens not in self._whole:
            finish = {"finish_reason": "length", "stop_reason": None, "token_ids": None}
            choice: dict[str, Any]
            if self.chat:
                rest = dict.fromkeys(["refusal", "annotations", "audio", "function_call", "reasoning"])
                message = {"role": "assistant", "content": answer_text(tokens), **rest}
                choice = {"index": 0, "message": message, "logprobs": None, **finish, "routed_experts": None}
            else:
                choice = {
                    "index": 0,
                    "text": answer_text(tokens),
                    "logprobs": None,
                    **finish,
                    "prompt_logprobs": None,
                    "prompt_token_ids": None,
                    "routed_experts": None,
                }
            body = self.head | {"choices": [choice], "service_tier": None, "system_fingerprint": FINGERPRINT}
            before, after = dumps(body).split(ID.encode())
            self._whole[tokens] = before, after[:-1] + b',"usage":'
        before, after = self._whole[tokens]
        used = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (prompt, prompt + tokens, tokens)
        none = b',"prompt_tokens_details":null,"completion_tokens_details":null}'
        if self.chat:
            none += b',"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null'
        none += b',"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
        return http_answer(200, before + new_id + after + used + none)


class Connection(asyncio.Protocol):
    """One keep-alive connection; one request at a time."""

    open: ClassVar[set[Connection]] = set()

    def __init__(self, engine: Engine, shapes: dict[bytes, Shape]) -> None:
        self.engine, self.shapes = engine, shapes
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None  # set while a generation runs
        self.idle_since = self.loop.time()
        self.url = b""
        self.body: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.engine.running -= 1
            self.engine.aborted += 1

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, piece: bytes) -> None:
        self.body.append(piece)

    def on_message_complete(self) -> None:
        body = b"".join(self.body)
        self.body.clear()
        path = self.url.partition(b"?")[0]
        shape = self.shapes.get(path)
        if shape is not None:
            self._generate(shape, body)
        else:
            self.engine.other_requests += path != b"/mock"
            self.transport.write(self._other(path, body))
        self.idle_since = self.loop.time()

    def _other(self, path: bytes, body: bytes) -> bytes:
        engine = self.engine
        if path == b"/health":
            return http_answer(200, b"")
        if path == b"/metrics":
            return http_answer(200, engine.metrics(), b"text/plain; version=0.0.4; charset=utf-8")
        if path == b"/version":
            return http_answer(200, dumps({"version": "0.32.0"}))
        if path == b"/v1/models":
            card = {
                "id": engine.model,
                "object": "model",
                "created": CREATED,
                "owned_by": "vllm",
                "root": engine.model,
                "parent": None,
                "max_model_len": 32768,
                "permission": [],
            }
            return http_answer(200, dumps({"object": "list", "data": [card]}))
        if path == b"/mock":
            if body:
                engine.change(json.loads(body))
            return http_answer(200, dumps(engine.state()))
        if path.endswith(b"/render"):
            return http_answer(403, dumps(RENDER_REFUSED))
        return http_answer(404, dumps({"detail": "Not Found"}))

    def _generate(self, shape: Shape, body: bytes) -> None:
        try:
            asked = json.loads(body)
        except ValueError as fault:
            error = {"message": str(fault), "type": "Bad Request", "param": None, "code": 400}
            self.transport.write(http_answer(400, dumps({"error": error})))
            return
        engine = self.engine
        engine.requests += 1
        engine.running += 1
        self.shape, self.id, self.sent = shape, engine.new_id(), 0
        self.tokens = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or engine.answer_tokens)
        self.prompt = max(1, len(body) // 4)
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.itl, ttft = engine.itl_ms / 1000, engine.ttft_ms / 1000
        now = self.loop.time()
        if asked.get("stream"):
            self.transport.write(STREAM_HEAD)  # vLLM sends it at once, the first event with the first token
            self.burst = max(1, engine.burst)
            self.first_at = now + ttft
            self.timer = self.loop.call_at(self.first_at, self._role) if ttft else self.loop.call_soon(self._role)
        elif ttft or self.itl:
            self.timer = self.loop.call_at(now + ttft + self.tokens * self.itl, self._whole)
        else:
            self._whole()

    def _whole(self) -> None:
        self.transport.write(self.shape.whole(self.id, self.prompt, self.tokens))
        self.engine.tokens += self.tokens
        self._end()

    # A stream is a chain of callbacks, one event each: uvloop joins what one callback writes, vLLM does not.
    def _role(self) -> None:
        if self.shape.role is None:
            self._token()
            return
        self._write(self.shape.role)
        self.timer = self.loop.call_soon(self._token)

    def _token(self) -> None:
        number = self.sent
        self.sent += 1
        self.engine.tokens += 1
        if self.sent >= self.tokens:
            self._write(self.shape.last(self.tokens, self.usage))
            self.timer = self.loop.call_soon(self._usage if self.usage else self._done)
            return
        self._write(self.shape.token[number % len(ANSWER)])
        if self.itl and self.sent >= self.burst:
            at = self.first_at + (self.sent - self.burst + 1) * self.itl  # no drift
            self.timer = self.loop.call_at(at, self._token)
        else:
            self.timer = self.loop.call_soon(self._token)

    def _usage(self) -> None:
        self._write(self.shape.usage(self.prompt, self.tokens))
        self.timer = self.loop.call_soon(self._done)

    def _done(self) -> None:
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n")
        self.timer = self.loop.call_soon(self._terminate)

    def _terminate(self) -> None:
        self.transport.write(b"0\r\n\r\n")
        self._end()

    def _write(self, template: tuple[bytes, bytes]) -> None:
        self.transport.write(template[0] + self.id + template[1])

    def _end(self) -> None:
        self.timer = None
        self.engine.running -= 1
        self.idle_since = self.loop.time()


async def close_idle() -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0.5)
        limit = loop.time() - IDLE_S
        for connection in [c for c in Connection.open if c.timer is None and c.idle_since < limit]:
            connection.transport.close()


async def serve(host: str, port: int, engine: Engine) -> None:
    shapes = {
        b"/v1/chat/completions": Shape(engine.model, "chatcmpl-", "chat.completion"),
        b"/v1/completions": Shape(engine.model, "cmpl-", "text_completion"),
    }
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine, shapes), host, port, backlog=4096)
    print(f"mock engine on http://{host}:{port}", flush=True)
    await asyncio.gather(server.serve_forever(), close_idle())


def main() -> None:
    parser = argparse.ArgumentParser(description="a mock of vLLM's OpenAI server; see the top of this file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--model", default="m", help="the model's name (default: m)")
    args = parser.parse_args()
    engine = Engine(args.model)
    engine.change(
        {
            key: os.environ[key.upper()]
            for key in ("itl_ms", "ttft_ms", "burst", "answer_tokens")
            if key.upper() in os.environ
        }
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(args.host, args.port, engine))


if __name__ == "__main__":
    main()
