"""What all whole answers have in common: the engine's bytes, until something in them has to change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import msgspec

from gateway.errors import EngineError
from gateway.protocol.alternatives import Alternatives
from gateway.protocol.chunks import Usage
from gateway.protocol.editing import NONSENSE
from gateway.protocol.filtering import MakeFilter
from gateway.protocol.numbers import decoded
from gateway.protocol.patches import with_extra
from gateway.protocol.rest import strangers
from gateway.protocol.rest_texts import filtered


class Whole(ABC):
    """One whole answer. ``raw`` is what the caller gets: the engine's bytes, unless something had to change.

    ``chars`` and ``finish_reasons`` are for the record.
    """

    __slots__ = ("_body", "chars", "finish_reasons", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._body: dict[str, Any] | None = None
        self.chars = 0
        self.finish_reasons: list[str] = []

    @property
    @abstractmethod
    def usage(self) -> Usage | None:
        """What the engine counted."""

    @property
    def is_over(self) -> bool:
        """Is it the last word, or is the engine still at work on it?"""
        return True

    @abstractmethod
    def filter(self, make_filter: MakeFilter) -> None:
        """Send every text of the answer through its channel's filter.

        Raises EngineError where it is no answer of its route, and whatever a filter that failed raises.
        """

    @abstractmethod
    def _retell(self, model: str, show_logprobs: int | None) -> None:
        """Put into the body what the caller is to see otherwise: the model's name, fewer logprobs."""

    def _cover_alternatives(self, make_filter: MakeFilter) -> None:
        """Cover alternatives to the answer's tokens that may not be shown. To be done before anything has changed."""
        raw = self.raw if self._body is None else msgspec.json.encode(self._body)
        if (covered := Alternatives(make_filter).covered(raw)) != raw:
            self._body = decoded(covered)

    def _beside(self, known: Collection[str], make_filter: MakeFilter) -> Any:
        """Filter every text in members of the answer that are not ``known``; return what blocked one, else None."""
        raw = self.raw if self._body is None else msgspec.json.encode(self._body)
        if not (members := strangers(raw, known)):
            return None
        texts = filtered(members, make_filter)
        self.chars += texts.chars
        if texts.changed:
            self.body.update(members)
        return texts.blocked

    @property
    def body(self) -> dict[str, Any]:
        """The answer as an object; from now on it is written anew."""
        if self._body is None:
            self._body = decoded(self.raw)
            if not isinstance(self._body, dict):
                raise EngineError(NONSENSE)
        return self._body

    @body.setter
    def body(self, body: dict[str, Any]) -> None:
        self._body = body

    def close(self, model: str, extra: dict[str, Any] | None, show_logprobs: int | None = None) -> bytes:
        """Return the bytes for the caller: under the model's name that it used, with ``extra`` under "sluice"."""
        self._retell(model, show_logprobs)
        if extra:
            self.body["sluice"] = with_extra(self.body, extra)
        return self.raw if self._body is None else msgspec.json.encode(self._body)
