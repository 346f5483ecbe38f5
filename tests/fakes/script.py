"""The words of a script: what the fake engine says, when, and how it fails at it."""

from __future__ import annotations

import enum
import gzip
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tests.fakes.forms import DONE, Delta, Form, dumps, event
from tests.fakes.surfaces import TELLERS, Messages, Responses

if TYPE_CHECKING:
    from tests.fakes.connection import Received

SSE = (("content-type", "text/event-stream; charset=utf-8"),)
JSON = (("content-type", "application/json"),)


class Signal(enum.Enum):
    """What a script can do to its connection."""

    RESET = enum.auto()  # RST: the caller's next read fails
    CLOSE = enum.auto()  # FIN: the answer ends here, however it was framed
    SILENCE = enum.auto()  # nothing more until the caller leaves


RESET, CLOSE, SILENCE = Signal.RESET, Signal.CLOSE, Signal.SILENCE


class Gate(threading.Event):
    """The script waits here until the test calls ``set()``."""


#: Bytes to write, seconds to pause, a gate to wait at, or a signal.
Action = bytes | float | Gate | Signal


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as it goes over the wire. ``raw`` framing writes no head, ``write_size`` cuts each write."""

    actions: tuple[Action, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = JSON
    framing: Literal["counted", "chunked", "raw"] = "counted"
    before_head_s: float = 0.0
    write_size: int | None = None


Script = Callable[["Received"], Reply]
Piece = str | Mapping[str, Any] | Delta | Action


@dataclass(slots=True)
class _Streamed:
    """Turns the pieces of an answer into the events of its stream."""

    form: Form
    finish: str | None
    last: dict[int, int] = field(default_factory=dict)
    tokens: int = 0
    lengths: dict[int, int] = field(default_factory=dict)

    def actions(self, pieces: list[Delta | Action]) -> list[Action]:
        self.last = {piece.choice: at for at, piece in enumerate(pieces) if isinstance(piece, Delta)}
        written: list[Action] = []
        begun = False
        for at, piece in enumerate(pieces):
            if isinstance(piece, Delta):
                written += [] if begun else self.form.roles()
                begun = True
                written.append(self._event(at, piece))
            else:
                written.append(piece)
        return written

    def _event(self, at: int, delta: Delta) -> bytes:
        self.tokens += 1
        offset = self.lengths.get(delta.choice, 0)
        self.lengths[delta.choice] = offset + len(delta.fields.get("content") or "")
        return self.form.piece(delta, self.finish if self.last[delta.choice] == at else None, self.tokens, offset)


def _deltas(pieces: tuple[Piece, ...], choices: int) -> list[Delta | Action]:
    """Spread texts and bare deltas over all choices; a Delta names its own."""
    spread: list[Delta | Action] = []
    for piece in pieces:
        if isinstance(piece, Delta | bytes | float | int | Gate | Signal):
            spread.append(piece)
        else:
            fields = {"content": piece} if isinstance(piece, str) else piece
            spread += [Delta(index, fields) for index in range(choices)]
    return spread


def says(*pieces: Piece, finish: str | None = "stop", done: bool = True) -> Script:
    """Answer with these pieces, streamed or whole as the request asks, in the form of its route.

    A str goes to every choice, a Delta to its own; the last piece of a choice carries ``finish``. In a whole answer
    pauses, gates and signals all come before the head, which is when vLLM is at work.
    """

    def script(received: Received) -> Reply:
        body = received.body if isinstance(received.body, dict) else {}
        if received.route in TELLERS:
            return _told(
                TELLERS[received.route](body, received.number), pieces, finish, stream=body.get("stream") is True
            )
        form = Form.of(received.route, body, received.number)
        parts = _deltas(pieces, form.choices)
        if body.get("stream") is True:
            streamed = _Streamed(form, finish)
            actions = streamed.actions(parts)
            stopped = any(isinstance(action, Signal) for action in actions)
            ending = [] if stopped else [*form.ending(streamed.tokens), *([DONE] if done else [])]
            return Reply((*actions, *ending), headers=SSE, framing="chunked")
        waits = [part for part in parts if not isinstance(part, Delta | bytes)]
        whole = form.whole((part for part in parts if isinstance(part, Delta)), finish)
        return Reply((*waits, whole))

    return script


def _told(teller: Responses | Messages, pieces: tuple[Piece, ...], finish: str | None, *, stream: bool) -> Reply:
    parts = _deltas(pieces, 1)
    if not stream:
        waits = [part for part in parts if not isinstance(part, Delta | bytes)]
        return Reply((*waits, teller.whole([part for part in parts if isinstance(part, Delta)], finish)))
    actions = teller.stream(parts, finish)
    return Reply(tuple(actions), headers=SSE, framing="chunked")


def paced(text: str, count: int, seconds: float) -> list[Piece]:
    """Return pieces for ``says``: the same text over and over, with a pause after each."""
    return [piece for _ in range(count) for piece in (text, seconds)]


def streams(*events: Mapping[str, Any] | Action, done: bool = True) -> Script:
    """Answer with exactly these events (dicts are framed, bytes go as they are)."""
    actions = tuple(event(item) if isinstance(item, Mapping) else item for item in events)
    return lambda _: Reply((*actions, *([DONE] if done else [])), headers=SSE, framing="chunked")


def answers(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Script:
    """Answer whole: bytes as they are, anything else as JSON."""
    raw = body if isinstance(body, bytes) else dumps(body)
    more = tuple((headers or {}).items())
    return lambda _: Reply((raw,), status, (*JSON, *more) if "content-type" not in dict(more) else more)


def writes(*actions: Action) -> Script:
    """Write exactly these bytes to the socket, head and all."""
    return lambda _: Reply(actions, framing="raw")


def delayed(script: Script, seconds: float) -> Script:
    """Keep silent before the head."""
    return lambda received: replace(script(received), before_head_s=seconds)


def cut(script: Script, size: int = 1) -> Script:
    """Write in pieces of ``size`` bytes, head included."""
    return lambda received: replace(script(received), write_size=size)


def gzipped(script: Script) -> Script:
    """Compress a whole answer, though the gateway asks for identity."""

    def compressed(received: Received) -> Reply:
        reply = script(received)
        body = b"".join(action for action in reply.actions if isinstance(action, bytes))
        return replace(reply, actions=(gzip.compress(body),), headers=(*reply.headers, ("content-encoding", "gzip")))

    return compressed
