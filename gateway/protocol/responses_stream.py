"""A streamed answer of ``/v1/responses`` without I/O: bytes of the engine in, bytes for the caller out.

What the stream repeats at the end of a part, of an item and of the whole is what was shown of it. An event in which
nothing changed leaves byte for byte as it came, but for its number where others were held back or added before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.errors import EngineError, Failure
from gateway.protocol import responses, sse
from gateway.protocol import responses_events as known
from gateway.protocol import responses_whole as whole
from gateway.protocol.alternatives import Alternatives
from gateway.protocol.editing import BROKE_OFF, NONSENSE, NamedEditor
from gateway.protocol.filtering import MakeFilter, reason_of
from gateway.protocol.named import Numbers, payload_of
from gateway.protocol.parts import TEXTS, Part, Place, channel_for, write
from gateway.protocol.patches import with_extra
from gateway.protocol.responses_events import Event, Key, Open, Where
from gateway.protocol.responses_places import item_places, part_places
from gateway.protocol.responses_shown import Shown
from gateway.protocol.rest_texts import filtered


class ResponsesEditor(NamedEditor):
    """Edits one streamed answer.

    ``echo`` holds request fields as the caller sent them; ``after`` is the number of the last event that the caller
    has already seen (a stream that is asked for again is edited from its beginning, and shown from there on).
    """

    def __init__(
        self,
        make_filter: MakeFilter,
        *,
        model: str,
        choices: int = 1,
        want_usage: bool = True,
        merge: bool = False,
        show_logprobs: int | None = None,
        echo: Mapping[str, Any] | None = None,
        after: int = -1,
    ) -> None:
        del choices, want_usage, merge  # there is one choice, it is always counted, and its last event is the whole
        super().__init__(make_filter)
        self._alternatives, self._show_logprobs = Alternatives(make_filter), show_logprobs
        self._numbers = Numbers(after)
        self._shown = Shown(model, echo or {}, self._numbers)
        self._opening: list[bytes] | None = []
        self._parts: dict[Key, Part] = {}
        self._text: Open | None = None
        self._waiting: list[tuple[Event, bytes]] = []  # ends of a part that holds text, until it is known what follows
        self._tools: dict[int, int] = {}
        self._hit: Key | None = None
        self._final: dict[str, Any] | None = None
        self._last = b""

    def feed(self, data: bytes) -> bytes:
        """Take the engine's bytes; return what the caller may see now."""
        return self._trimmed(super().feed(data))

    def _trimmed(self, shown: bytes) -> bytes:
        return shown if self._show_logprobs is None else known.trimmed_frames(shown, self._show_logprobs)

    def close(self, extra: dict[str, Any] | None) -> bytes:
        """Return the end of the stream, with ``extra`` under "sluice" in the response of its last event."""
        if self.abort:
            extra = {**(extra or {}), "usage": "estimate"}
        if self._final is None:
            self._final = self._shown.ending(self.used(), self.finish_reasons[0])
        if extra:
            response = self._final["response"]
            response["sluice"] = with_extra(response, extra)
        elif self._last:
            return self._trimmed(self._unended + self._last)
        return self._trimmed(self._unended + self._numbers.write(self._final))

    def merged(self) -> dict[str, Any]:
        """Return the answer as it was shown, as one whole."""
        if self._final is None:
            self._final = self._shown.ending(self.used(), self.finish_reasons[0])
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._final["response"]))
        return copied

    def broken(self, failure: Failure) -> bytes:
        """Return the event that ends a stream which has begun and has failed."""
        return self._shown.failed(failure)

    # ---- one frame ----

    def _payload(self, frame: bytes, payload: bytes) -> bytes:
        if (covered := self._alternatives.covered(payload)) != payload:
            frame, payload = sse.encode(covered, sse.event_name(frame)), covered
        event = known.decode_event(frame, payload)
        if event is None:
            self.failure = responses.error_event(payload) or EngineError(NONSENSE)
            return b""
        if known.may_hold_more(event) and (read := self._read(payload, ("", known.MEMBERS))) != payload:
            frame, payload = sse.encode(read, event.type.encode()), read
        return self._opened(event.type, self._event(frame, payload, event))

    def _opened(self, name: str, shown: bytes) -> bytes:
        """Keep what opens the stream until the engine has begun, for until then another may be asked."""
        if self.failure is not None:
            return b""
        if self._opening is None:
            self.events += 1
            return shown
        self._opening.append(shown)
        if name in known.OPENING:
            return b""
        opening, self._opening = b"".join(self._opening), None
        self.events += 1
        return opening

    def _event(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        before = b""
        if self._waiting:
            text = self._text
            fate = "ends" if text is None else known.fate_of(event, text.where, self._shown.kind(text.key[0]))
            if fate == "waits":
                self._waiting.append((event, frame))
                return b""
            before = self._release(goes_on=fate == "goes on")
        name = event.type
        where = known.DELTAS.get(name)
        if where is not None and not self.abort:
            return before + self._delta(frame, payload, event, where)
        if name in known.DONE and not self.abort:
            before += self._catch_up(event, known.DONE[name])
        if self.abort:
            return before
        if name in known.ENDS and self._text is not None and self._text.part.channel.holds:
            self._waiting.append((event, frame))
            return before
        return before + self._told(frame, payload, event)

    def _told(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        """An event that is no delta, and need not wait."""
        name = event.type
        if name in known.DONE:
            return self._text_done(frame, payload, event, known.DONE[name])
        if name in known.PART_ADDED or name in known.PART_DONE:
            return self._part_event(frame, payload, event)
        if name in {known.ITEM_ADDED, known.ITEM_DONE}:
            return self._item_event(frame, payload, event)
        if name in known.OPENING:
            return self._begun(frame, payload, event)
        if name in known.TERMINAL:
            return self._terminal(frame, payload, event)
        return self._unknown(frame, payload, event)

    def _begun(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        body = msgspec.json.decode(payload)
        response = body.get("response")
        changed = isinstance(response, dict) and self._beside(response)
        self._shown.begun(msgspec.Raw(msgspec.json.encode(response)) if changed else event.response)
        changed |= isinstance(response, dict) and self._shown.retold(response)
        return self._numbers.write(body) if changed else self._numbers.keep(frame, event.sequence_number)

    def _unknown(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        if self._is_watched() and not msgspec.json.decode(payload).keys() <= known.PLAIN:
            return b""  # text of a kind that we do not know: nobody has looked at it
        return self._numbers.keep(frame, event.sequence_number)

    # ---- texts ----

    def _delta(self, frame: bytes, payload: bytes, event: Event, where: Where) -> bytes:
        before, part = self._part(event, where)
        text = event.delta or ""
        if self.abort or not text:
            return before if self.abort else before + self._numbers.keep(frame, event.sequence_number)
        self.chunks += 1
        self.chars += len(text)
        shown, logprobs = part.feed(text, event.logprobs)
        blocked = part.channel.blocked
        if shown == text and not blocked and logprobs is None:
            return before + self._numbers.keep(frame, event.sequence_number)
        if shown or logprobs:
            body = {**msgspec.json.decode(payload), "delta": shown}
            if "logprobs" in body and logprobs is not None:
                body["logprobs"] = logprobs
            before += self._numbers.write(body)
        return before + (self._block(event.key(where)) if blocked else b"")

    def _part(self, event: Event, where: Where) -> tuple[bytes, Part]:
        """Return the part that an event belongs to, and what has to be told before it if that is a new one."""
        key = event.key(where)
        part = self._parts.get(key)
        if part is not None:
            return b"", part
        text, before = self._text, b""
        if text is not None and text.where[:2] == where[:2]:  # nothing between them: they are read as one text
            part = Part(text.part.channel)
        else:
            before = self._end_text()
            part = Part(channel_for(where.kind, self._make_filter, self._tool(event.output_index, where.kind)))
        self._parts[key] = part
        if where.kind in TEXTS:
            self._text = Open(where, key, event, part)
        return before, part

    def _tool(self, index: int, kind: str) -> int:
        """Return the ordinal of the tool call that an item is."""
        return self._tools.setdefault(index, len(self._tools)) if kind in {"arguments", "code"} else 0

    def _end_text(self) -> bytes:
        """Nothing follows that is read with the text that goes on: show what was held back of it."""
        text, self._text = self._text, None
        if text is None:
            return b""
        return self._finished(text.where, text.key, text.event, text.part)

    def _finished(self, where: Where, key: Key, event: Event, part: Part) -> bytes:
        shown, logprobs = part.finish()
        tail = self._numbers.write(known.delta_event(where, event, shown, logprobs)) if shown or logprobs else b""
        return tail + (self._block(key) if part.channel.blocked else b"")

    def _catch_up(self, event: Event, where: Where) -> bytes:
        """The end of a part repeats its text: show what of it came in no delta."""
        before, part = self._part(event, where)
        said, text = part.said, getattr(event, where.field) or ""
        if self.abort or said == text:
            return before
        if not text.startswith(said):
            part.changed = True  # it contradicts itself: what was shown stands
            return before
        rest = text[len(said) :]
        self.chunks += 1
        self.chars += len(rest)
        shown, logprobs = part.feed(rest)
        if shown:
            before += self._numbers.write(known.delta_event(where, event, shown, logprobs))
        return before + (self._block(event.key(where)) if part.channel.blocked else b"")

    def _text_done(self, frame: bytes, payload: bytes, event: Event, where: Where) -> bytes:
        key = event.key(where)
        part = self._parts[key]
        before = b""
        if where.kind not in TEXTS and not part.ended:
            before = self._finished(where, key, event, part)
            if self.abort:
                return before
        if not part.changed:
            return before + self._numbers.keep(frame, event.sequence_number)
        body = {**msgspec.json.decode(payload), where.field: part.shown}
        if body.get("logprobs"):
            body["logprobs"] = part.masked(body["logprobs"])
        return before + self._numbers.write(body)

    # ---- the ends of parts that hold text ----

    def _release(self, *, goes_on: bool) -> bytes:
        shown = b"" if goes_on else self._end_text()
        waiting, self._waiting = self._waiting, []
        for event, frame in waiting:
            if not self.abort:  # a block tells the ends itself
                shown += self._told(frame, payload_of(frame) or b"", event)
        return shown

    # ---- parts, items and the response, which repeat texts ----

    def _checked(self, index: int, places: Iterable[Place], *, ended: bool) -> bool:
        """Make the texts that an event repeats what was shown of them, and feed those not heard before.

        Returns whether that changed anything; sets ``_hit`` where a filter ended the answer.
        """
        changed = False
        for place in places:
            key, said = (index, place.group, place.number), place.text
            part = self._parts.get(key)
            if part is None:
                if not said:
                    continue
                tool = self._tool(index, place.kind)
                part = self._parts[key] = Part(channel_for(place.kind, self._make_filter, tool))
                part.feed(said)
                self.chars += len(said) if place.kind != "name" else 0
            elif part.said != said:
                part.changed = True
            if ended and not part.ended and (self._text is None or self._text.part.channel is not part.channel):
                part.finish()
            if part.channel.blocked:
                self._hit = key
            if part.changed:
                changed = True
                write(place, part)
        return changed

    def _part_event(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        added = event.type in known.PART_ADDED
        group = known.PART_ADDED.get(event.type) or known.PART_DONE[event.type]
        number = event.content_index if group == "content" else event.summary_index
        part = msgspec.json.decode(event.part)
        if not isinstance(part, dict):
            self.failure = EngineError(NONSENSE)
            return b""
        changed = self._checked(event.output_index, part_places(part, group, number), ended=not added)
        if self._hit is not None:
            return self._block(self._hit)
        self._shown.part((event.output_index, group, number), part)
        if not changed:
            return self._numbers.keep(frame, event.sequence_number)
        return self._numbers.write({**msgspec.json.decode(payload), "part": part})

    def _item_event(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        item, index, before = msgspec.json.decode(event.item), event.output_index, b""
        if not isinstance(item, dict):
            self.failure = EngineError(NONSENSE)
            return b""
        text = self._text
        if text is not None and event.type == known.ITEM_ADDED and item.get("type") != self._shown.kind(text.key[0]):
            before = self._end_text()
            if self.abort:
                return before
        if item.get("type") in whole.TOOLS:
            self._tools.setdefault(index, len(self._tools))
        changed = self._checked(index, item_places(item), ended=event.type == known.ITEM_DONE)
        self._shown.item(index, item)
        if self._hit is not None:
            return before + self._block(self._hit, item)
        if not changed:
            return before + self._numbers.keep(frame, event.sequence_number)
        return before + self._numbers.write({**msgspec.json.decode(payload), "item": item})

    def _terminal(self, frame: bytes, payload: bytes, event: Event) -> bytes:
        before = self._end_text()
        if self.abort:
            return before
        try:
            head = whole.decode_head(event.response)
        except msgspec.MsgspecError:
            self.failure = responses.error_event(payload) or EngineError(NONSENSE)
            return b""
        if whole.is_broken_off(head):
            self.failure = responses.error_event(payload) or EngineError(BROKE_OFF)
            return b""
        self.usage = whole.tokens(head)
        self.finish_reasons = [whole.reason(head) or "stop"]
        body = msgspec.json.decode(payload)
        changed = self._repeated(body) | self._beside(body["response"], body) | self._shown.retold(body["response"])
        self.complete = self.done = True
        self._final = body
        if not changed and event.sequence_number in {None, self._numbers.next}:
            self._last = self._numbers.keep(frame, None)
        return before

    def _beside(self, response: dict[str, Any], last: dict[str, Any] | None = None) -> bool:
        """Filter what stands in a response beside its items; in its ``last`` event a block ends it. Was it changed?"""
        members = {name: value for name, value in response.items() if name not in whole.KNOWN}
        texts = filtered(members, self._make_filter)
        response |= members
        if last is not None and texts.blocked is not None:
            self.finish_reasons = [reason_of(texts.blocked)]
            last["type"] = f"response.{whole.end_by(response, self.finish_reasons[0])}"
            return True
        return texts.changed

    def _repeated(self, body: dict[str, Any]) -> bool:
        changed, output = False, body["response"]["output"]
        for position, item in enumerate(output):
            if not isinstance(item, dict):
                continue
            index = self._shown.index_of(item, position)
            changed |= self._checked(index, item_places(item), ended=True)
            if self._hit is not None:  # in what had not been told before
                del output[position + 1 :]
                why = self._parts[self._hit].channel.reason
                item["status"] = whole.end_by(body["response"], why)
                body["type"] = f"response.{item['status']}"
                self.finish_reasons = [why]
                return True
        return changed

    # ---- a block ----

    def _block(self, key: Key, item: dict[str, Any] | None = None) -> bytes:
        """A filter ended the answer: its part and its item end here; the response does in ``close``."""
        self.abort = self.complete = True
        self.finish_reasons = [self._parts[key].channel.reason]
        return self._shown.cut(key, self._parts, item)
