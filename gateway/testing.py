"""The kit with which a plugin's author tests it: play() sends one request and one answer through it, without a socket.

played = await play(MyPlugin(MyPlugin.Options()), "Hello", ["The ans", "wer."])
assert played.shown == "The answer."
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.errors import Failure, FilterUnavailable
from gateway.pipeline import Chain, Link
from gateway.protocol import sse
from gateway.protocol.stream import Filter
from gateway.protocol.surface import SURFACES, answer_texts
from gateway.record import Hit, Record
from gateway.sdk import Answer, Channel, Exchange, Plugin, Reply

__all__ = ["Played", "play"]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
#: What of a request is the text that a caller asks, where it is no conversation.
_ASKED = {COMPLETIONS: "prompt", RESPONSES: "input"}


@dataclass(slots=True)
class Played:
    """What came of it. ``request`` is what an engine would have got, or None where none would have been asked.

    ``shown`` is the text of choice 0 that the caller saw, ``pieces`` what each piece of the answer let through and, at
    last, what had been held back; ``body`` is the answer as a whole. ``failure`` is what the caller got instead of an
    answer, or at the end of one that had begun; ``reply`` is what a plugin answered itself.
    """

    request: dict[str, Any] | None = None
    shown: str = ""
    pieces: list[str] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    reply: Reply | None = None
    record: Record = field(default_factory=Record)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def blocked(self) -> bool:
        """Whether a filter has ended the answer."""
        return "content_filter" in self.record.finish_reasons

    @property
    def tags(self) -> list[str]:
        """The soft tags, in order."""
        return self.record.tags

    @property
    def hits(self) -> list[Hit]:
        """The rules that fired."""
        return self.record.hits


async def play(
    plugin: Plugin | Sequence[Plugin],
    request: str | Mapping[str, Any] = "Hello.",
    answer: str | Sequence[str] | Mapping[str, Any] | Failure = "Hi.",
    *,
    route: str = CHAT,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    again: Sequence[str | Failure] = (),
    window: int | None = None,
    filled: Sequence[str] = (),
) -> Played:
    """Send ``request`` (a body, or what the user says) and ``answer`` through a plugin, or a chain of them.

    ``answer`` is a text in one piece or several, a whole body, or the failure in its place. It is streamed unless the
    request says ``"stream": False``, a plugin needs the whole answer, or it is a body. ``again`` is what
    ``exchange.ask`` returns, call by call; ``exchange.count_tokens`` counts words, ``exchange.embed`` letters;
    ``window`` is the model's, ``filled`` the fields of the request that the gateway set, not the caller. An exception
    that is no Failure is a bug of the plugin and comes out as it is.
    """
    plugins = [plugin] if isinstance(plugin, Plugin) else list(plugin)
    for each in plugins:
        each.name = each.name or type(each).__name__
    chain = Chain([Link(each.name, each) for each in plugins])
    body = _request(request, route)
    record = Record(request_id="played", method="POST", route=route, key=key, model=str(body.get("model", "")))
    exchange = Exchange(record, body, headers or {}, _Host(again, window))
    exchange.filled = tuple(filled)
    played = Played(record=record, extra=exchange.extra)
    await chain.start()
    try:
        await _exchange(chain, exchange, answer, played)
        record.status = 200
    except FilterUnavailable as failure:
        raise failure.__cause__ or failure from None
    except Failure as failure:
        record.outcome, played.failure = str(failure.code), failure
        played.reply = await chain.on_failure(exchange, failure)
    finally:
        await _done(chain.on_complete(exchange))
        await chain.stop()
    return played


async def _exchange(chain: Chain, exchange: Exchange, answer: Any, played: Played) -> None:
    await _done(chain.on_request(exchange))
    played.reply = exchange.reply
    if exchange.reply is not None:
        return
    played.request = copy.deepcopy(exchange.request)
    if isinstance(answer, Failure):
        raise answer
    whole = chain.needs_whole_answer(exchange) or exchange.request.get("stream") is False
    if isinstance(answer, Mapping):
        await _whole(chain, exchange, dict(answer), played)
    elif whole:
        await _whole(chain, exchange, _body(exchange.route, "".join(answer)), played)
    else:
        await _streamed(chain, exchange, [answer] if isinstance(answer, str) else answer, played)


async def _streamed(chain: Chain, exchange: Exchange, pieces: Sequence[str], played: Played) -> None:
    surface = SURFACES[exchange.route]
    editor = surface.editor(_filters(chain, exchange), model="played", choices=1, want_usage=False, merge=True,
                            show_logprobs=exchange.show_logprobs)  # fmt: skip
    chunks = [_chunk(exchange.route, piece) for piece in (*pieces, None)]
    if exchange.route not in (CHAT, COMPLETIONS):  # these tell a text in events of several kinds
        chunks = [surface.as_stream(_body(exchange.route, "".join(pieces)), want_usage=True), b""]
    for chunk in chunks[:-1]:
        played.pieces.append(_texts(editor.feed(chunk)))
    end = editor.feed(chunks[-1])
    editor.end()
    played.pieces.append(_texts(end + editor.close(None)))
    played.shown = "".join(played.pieces)
    played.record.finish_reasons = editor.finish_reasons
    if editor.failure is not None:
        raise editor.failure
    played.body = editor.merged()
    await _done(chain.on_answer(exchange, Answer(exchange.route, played.body, shown=True)))


async def _whole(chain: Chain, exchange: Exchange, body: dict[str, Any], played: Played) -> None:
    answer = SURFACES[exchange.route].whole(msgspec.json.encode(body))
    answer.filter(_filters(chain, exchange))
    seen, played.record.finish_reasons = Answer(exchange.route, answer.body), answer.finish_reasons
    await _done(chain.on_answer(exchange, seen))
    played.body = answer.body = seen.body
    answer.close(str(played.body.get("model")), None, exchange.show_logprobs)
    played.shown = next((text.text for text in answer_texts(exchange.route, played.body)), "")
    played.pieces = [played.shown]


def _filters(chain: Chain, exchange: Exchange) -> Any:
    def make(choice: int, kind: str, tool: int) -> Filter | None:
        return chain.filter_for(exchange, Channel(choice, kind, tool))

    return make


def _request(request: str | Mapping[str, Any], route: str) -> dict[str, Any]:
    if not isinstance(request, str):
        return copy.deepcopy(dict(request))
    field = _ASKED.get(route, "messages")
    said = [{"role": "user", "content": request}] if field == "messages" else request
    return {"model": "played", field: said}


def _body(route: str, text: str) -> dict[str, Any]:
    if route == COMPLETIONS:
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        return {"object": "text_completion", "model": "played", "choices": [choice]}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return SURFACES[route].own(200, {"object": "chat.completion", "model": "played", "choices": [choice]})


def _chunk(route: str, text: str | None) -> bytes:
    """Return an event with a piece of text, or the one that ends the choice."""
    said: dict[str, Any] = (
        {"text": text or ""} if route == COMPLETIONS else {"delta": {"content": text} if text else {}}
    )
    choice = {"index": 0, **said, "finish_reason": None if text is not None else "stop"}
    return sse.encode(msgspec.json.encode({"model": "played", "choices": [choice]}))


def _texts(shown: bytes) -> str:
    frames = [sse.payload(frame) for frame in sse.Splitter().feed(shown)]
    chunks = [msgspec.json.decode(frame) for frame in frames if frame and frame != b"[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices") or (chunk,)]
    return "".join(map(_text, choices))


def _text(choice: dict[str, Any]) -> str:
    """Return the text in a choice of a chunk, or in an event of the newer routes."""
    delta = choice.get("delta")
    if isinstance(delta, str):
        return delta if choice["type"] == "response.output_text.delta" else ""
    told = "" if "type" in choice else choice.get("text")  # an event that ends a text tells it again
    return (delta or {}).get("content") or (delta or {}).get("text") or told or ""


async def _done(waiting: Awaitable[None] | None) -> None:
    if waiting is not None:
        await waiting


class _Host:
    """What a played exchange can ask of the gateway."""

    def __init__(self, answers: Sequence[str | Failure], window: int | None) -> None:
        self._answers, self._window = list(answers), window

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        if not self._answers:
            raise AssertionError(f"asked again with {request!r}, but play() was given no further answer: again=[…]")
        answer = self._answers.pop(0)
        if isinstance(answer, Failure):
            raise answer
        return _body(exchange.route, answer)

    async def embed(self, exchange: Exchange, model: str, texts: Sequence[str]) -> list[list[float]]:
        del exchange, model
        return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    async def count_tokens(
        self, exchange: Exchange, text: str | Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> int:
        del exchange, tools
        return (
            len(text.split()) if isinstance(text, str) else sum(len(str(each.get("content")).split()) for each in text)
        )

    def window(self, exchange: Exchange) -> int | None:
        del exchange
        return self._window
