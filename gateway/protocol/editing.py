"""What all editors of streamed answers have in common: frames in, what became of the answer out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import msgspec

from gateway.errors import EngineError, Failure
from gateway.protocol import sse
from gateway.protocol.chunks import Usage
from gateway.protocol.filtering import MakeFilter
from gateway.protocol.named import payload_of
from gateway.protocol.numbers import decoded

NONSENSE = "The model's server sent an answer that could not be understood."
BROKE_OFF = "The model's server ended the answer before it was complete."


class Editor(ABC):
    """Edits one streamed answer without I/O: the engine's bytes in, the caller's out.

    ``failure`` is set when the stream is none (an error event, nonsense, no end); what came before it may be shown.
    ``complete`` says that the answer has ended; ``abort`` that the engine need not go on, for all was blocked.
    ``prompt_estimate`` stands for the prompt's tokens where an engine was stopped before it told them.
    """

    def __init__(self, make_filter: MakeFilter) -> None:
        self._make_filter = make_filter
        self._splitter = sse.Splitter()
        self._unended = b""
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self.done = self.complete = self.abort = False
        self.events = self.chars = self.chunks = self.prompt_estimate = 0
        self.finish_reasons: list[str] = []

    @abstractmethod
    def _frame(self, frame: bytes) -> bytes:
        """Take one event of an answer that goes on; return what the caller may see now."""

    @abstractmethod
    def close(self, extra: dict[str, Any] | None) -> bytes:
        """Return the end of the stream, with ``extra`` under "sluice" in its last event that has a place for it."""

    @abstractmethod
    def merged(self) -> dict[str, Any]:
        """Return the answer as it was shown, put together as one whole."""

    @abstractmethod
    def broken(self, failure: Failure) -> bytes:
        """Return the event that ends a stream which has begun and has failed."""

    def used(self) -> Usage:
        """Return what was used, for caller and record alike: as the engine told it; where it was stopped before it did,
        the estimate of the prompt, and chunks for tokens.
        """
        told = self.usage
        answer = told.completion_tokens if told is not None and not self.abort else 0
        return Usage(told.prompt_tokens if told is not None else self.prompt_estimate, answer or self.chunks)

    def feed(self, data: bytes) -> bytes:
        """Take the engine's bytes; return what the caller may see now."""
        try:
            frames = self._splitter.feed(data)
        except ValueError:
            self.failure = EngineError(NONSENSE)
            return b""
        if len(frames) == 1:
            return self._guarded(frames[0])
        return b"".join([self._guarded(frame) for frame in frames])

    def end(self) -> None:
        """The engine's body has ended: sets ``failure`` if the answer had not."""
        rest = self._splitter.rest
        if rest:  # an event that nobody ended, or that ends in a lone CR
            self._unended = self._guarded(rest.rstrip(b"\r\n") + b"\n\n")
        self._set_done()

    def _set_done(self) -> None:
        if not self.complete and self.failure is None:
            self.failure = EngineError(BROKE_OFF)
        self.done = True

    def _guarded(self, frame: bytes) -> bytes:
        return b"" if self.done or self.failure is not None or self.abort else self._frame(frame)


class NamedEditor(Editor):
    """Edits a stream of named events, of which some are of a kind that nobody here knows."""

    def __init__(self, make_filter: MakeFilter) -> None:
        super().__init__(make_filter)
        self._watched: bool | None = None

    @abstractmethod
    def _payload(self, frame: bytes, payload: bytes) -> bytes:
        """Take one event and its data; return what the caller may see now."""

    def _frame(self, frame: bytes) -> bytes:
        payload = payload_of(frame)
        if payload is None:
            return frame if frame.startswith(b":") else b""
        if payload == b"[DONE]":
            self._set_done()
            return b""
        return self._payload(frame, payload)

    def _read(self, payload: bytes, *known: tuple[str, Collection[str]]) -> bytes:
        """Return an event without what may be text in members of it, and of members of it, that are not ``known``.

        A word may be cut over such members of several events, and nobody can tell how they are put together.
        """
        if not self._is_watched():
            return payload
        body, odd = decoded(payload), False
        for member, names in known:
            held = body.get(member) if member else body
            for name in [each for each in held if each not in names] if isinstance(held, dict) else ():
                if isinstance(held[name], str | dict | list):
                    del held[name]
                    odd = True
        return msgspec.json.encode(body) if odd else payload

    def _is_watched(self) -> bool:
        """Does anybody look at the answer's text? Then text of a kind that we do not know is not shown."""
        if self._watched is None:
            self._watched = self._make_filter(0, "content", 0) is not None
        return self._watched
