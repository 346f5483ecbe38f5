"""What a caller has been told of a response so far, and how it is brought to an end before its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import Failure
from gateway.protocol import responses
from gateway.protocol.chunks import Usage
from gateway.protocol.named import Numbers
from gateway.protocol.parts import Part
from gateway.protocol.responses_events import Key, cut_item, done_events, invented_end
from gateway.protocol.responses_whole import retold


class Shown:
    """A response as it was shown. ``items`` are those of its output, by index, in the form last told."""

    __slots__ = ("_base", "_echo", "_forms", "_indices", "_model", "_numbers", "items")

    def __init__(self, model: str, echo: Mapping[str, Any], numbers: Numbers) -> None:
        self._model, self._echo, self._numbers = model, echo, numbers
        self._base: msgspec.Raw | None = None
        self._indices: dict[Any, int] = {}
        self._forms: dict[Key, dict[str, Any]] = {}
        self.items: dict[int, dict[str, Any]] = {}

    def begun(self, response: msgspec.Raw) -> None:
        """Take the response as its first events tell it."""
        self._base = response

    def item(self, index: int, item: dict[str, Any]) -> None:
        """Take an item as it was announced, or as it was when it ended."""
        self._indices[item.get("id")] = index
        self.items[index] = item

    def part(self, key: Key, part: dict[str, Any]) -> None:
        """Take a content part as it was announced."""
        self._forms.setdefault(key, part)

    def kind(self, index: int) -> Any:
        """Return the type of an item."""
        return self.items.get(index, {}).get("type")

    def index_of(self, item: dict[str, Any], position: int) -> int:
        """Return the index under which an item of the whole output was told; one of its own where it was not."""
        return self._indices.get(item.get("id"), -1 - position)

    def retold(self, response: dict[str, Any]) -> bool:
        """Put the caller's own words into a response; returns whether that changed anything."""
        return retold(response, self._model, self._echo)

    def cut(self, key: Key, parts: Mapping[Key, Part], item: dict[str, Any] | None) -> bytes:
        """End a part and its item before their time; return the events that say so."""
        why = parts[key].channel.reason
        index = key[0]
        if item is None:
            mine = {where: part for where, part in parts.items() if where[0] == index}
            item = cut_item(self.items.get(index), mine, self._forms)
        item["status"] = "completed" if why == "stop" and key[1] != "call" else "incomplete"
        self.items[index] = item
        return b"".join([self._numbers.write(body) for body in done_events(key, item)])

    def ending(self, used: Usage, why: str) -> dict[str, Any]:
        """Build the last event of a stream that a filter ended."""
        return invented_end(self._response(), self._output(), used, why)

    def failed(self, failure: Failure) -> bytes:
        """Write the last event of a stream that has failed."""
        return responses.failure_event(failure, self._response(), self._output(), self._numbers)

    def _output(self) -> list[dict[str, Any]]:
        items = [item for _, item in sorted(self.items.items())]
        return [{**item, "status": "incomplete"} if item.get("status") == "in_progress" else item for item in items]

    def _response(self) -> dict[str, Any]:
        response = msgspec.json.decode(self._base) if self._base is not None else {}
        if not isinstance(response, dict):
            return {}
        self.retold(response)
        return response
