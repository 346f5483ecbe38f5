"""The events of ``/v1/responses``: their names, what we read of them, and those that the gateway tells itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from gateway.protocol import sse
from gateway.protocol.chunks import Usage
from gateway.protocol.named import Numbers, payload_of
from gateway.protocol.named import event as event_of
from gateway.protocol.parts import Part
from gateway.protocol.responses_places import PARTS
from gateway.protocol.responses_whole import end_by, without_logprobs


class Where(NamedTuple):
    """Which text an event tells: ``kind`` and ``group`` (see responses_places.Place), the ``field`` with the text, and
    the event's name without ``.delta`` or ``.done``.
    """

    kind: str
    group: str
    field: str
    name: str


Key = tuple[int, str, int]
"""A part: output_index, group, number in its group."""

_SPEAKS = (
    Where("content", "content", "text", "response.output_text"),
    Where("refusal", "content", "refusal", "response.refusal"),
    Where("reasoning", "content", "text", "response.reasoning_text"),
    Where("reasoning", "summary", "text", "response.reasoning_summary_text"),
    Where("arguments", "call", "arguments", "response.function_call_arguments"),
    Where("arguments", "call", "arguments", "response.mcp_call_arguments"),
    Where("code", "call", "input", "response.custom_tool_call_input"),
    Where("code", "call", "code", "response.code_interpreter_call_code"),
)
DELTAS = {f"{where.name}.delta": where for where in _SPEAKS}
DONE = {f"{where.name}.done": where for where in _SPEAKS}
_NAMES = {"content": "response.content_part", "summary": "response.reasoning_summary_part"}
PART_ADDED = {f"{name}.added": group for group, name in _NAMES.items()}
PART_DONE = {f"{name}.done": group for group, name in _NAMES.items()}
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ENDS = frozenset((*DONE, *PART_DONE, ITEM_DONE))
#: What an engine sends before it has begun.
OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
#: Members of an event that hold no text.
PLAIN = frozenset({"type", "sequence_number", "output_index", "content_index", "summary_index", "item_id"})
_NULL = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """What we read of one event."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    item_id: str | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    code: str | None = None
    logprobs: msgspec.Raw = _NULL
    item: msgspec.Raw = _NULL
    part: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL

    def key(self, where: Where) -> Key:
        """Return the part that the event belongs to."""
        number = {"content": self.content_index, "summary": self.summary_index}.get(where.group, 0)
        return self.output_index, where.group, number


class _Plain(Event, gc=False, forbid_unknown_fields=True):
    """An event that holds what events of this route hold, and no more."""

    name: str | None = None
    obfuscation: str | None = None


class Open(NamedTuple):
    """The text that goes on: where it stands, and its last part."""

    where: Where
    key: Key
    event: Event
    part: Part


class _Typed(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: int | None = None


_decode, _decode_plain = msgspec.json.Decoder(Event).decode, msgspec.json.Decoder(_Plain).decode
_decode_type = msgspec.json.Decoder(_Typed).decode
MEMBERS = frozenset(_Plain.__struct_fields__)
_KNOWN = frozenset((*DELTAS, *ENDS, *PART_ADDED, ITEM_ADDED, *OPENING, *TERMINAL))


def decode_event(frame: bytes, payload: bytes) -> Event | None:
    """Read an event; None where it is none of this route's. Of an unknown one only type and number are read."""
    try:
        try:
            event: Event = _decode_plain(payload)
        except msgspec.ValidationError:
            event = _decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        try:
            typed = _decode_type(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        if typed.type in _KNOWN:
            return None
        event = Event(typed.type, typed.sequence_number)
    if not event.type:
        event.type = (sse.event_name(frame) or b"").decode(errors="replace")
    return event if event.type.startswith("response.") else None


def may_hold_more(event: Event) -> bool:
    """Tell whether an event that we know has members that we do not."""
    return type(event) is Event and event.type in _KNOWN


def type_of(raw: msgspec.Raw) -> str:
    """Return the type of an item or a part; "" where it has none."""
    try:
        return _decode_type(raw).type
    except msgspec.MsgspecError:
        return ""


def kind_of(part: msgspec.Raw) -> str:
    """Return the kind of channel that a content part is."""
    return PARTS.get(type_of(part), "content")


def fate_of(event: Event, text: Where, item_type: Any) -> str:
    """Tell what an event means for the ends of a part that holds text: it "waits" with them, the text "goes on" in the
    part that it begins, or the text "ends". ``item_type`` is that of the text's item.
    """
    if event.type in ENDS:
        return "waits"
    if event.type == ITEM_ADDED:
        return "waits" if type_of(event.item) == item_type else "ends"
    if event.type in PART_ADDED:
        return "goes on" if (kind_of(event.part), PART_ADDED[event.type]) == text[:2] else "ends"
    where = DELTAS.get(event.type)
    return "goes on" if where is not None and where[:2] == text[:2] else "ends"


def delta_event(where: Where, event: Event, shown: str, logprobs: list[Any] | None) -> dict[str, Any]:
    """Build a delta of the part that ``event`` belongs to, for text that the engine told in another event."""
    body: dict[str, Any] = {"type": f"{where.name}.delta", **_place(where.group, event), "delta": shown}
    return {**body, "logprobs": logprobs or []} if where.kind == "content" else body


def _place(group: str, event: Event) -> dict[str, Any]:
    body: dict[str, Any] = {"item_id": event.item_id, "output_index": event.output_index}
    if group == "content":
        body["content_index"] = event.content_index
    elif group == "summary":
        body["summary_index"] = event.summary_index
    return body


def cut_item(
    item: dict[str, Any] | None, parts: Mapping[Key, Part], forms: Mapping[Key, dict[str, Any]]
) -> dict[str, Any]:
    """Build an item that ends before its time from how it was announced and what was shown of its parts."""
    cut: dict[str, Any] = dict(item) if item is not None else {"type": "message", "role": "assistant"}
    for group in ("content", "summary"):
        mine = [(key, part) for key, part in sorted(parts.items(), key=lambda entry: entry[0]) if key[1] == group]
        if mine:
            cut[group] = [_shown_part(forms.get(key), part, cut, group) for key, part in mine]
    for key, part in parts.items():
        if key[1] == "call":
            field = next((name for name in ("arguments", "input", "code") if name in cut), "arguments")
            cut[field] = part.shown
    return cut


def _shown_part(form: dict[str, Any] | None, part: Part, item: dict[str, Any], group: str) -> dict[str, Any]:
    if form is None:
        kind = "summary_text" if group == "summary" else "reasoning_text"
        form = {"type": kind if item.get("type") == "reasoning" else "output_text", "annotations": []}
    field = "refusal" if form.get("type") == "refusal" else "text"
    return {**form, field: part.shown}


def done_events(key: Key, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events that end a part and its item before their time. A call that was cut is not called done."""
    index, group, number = key
    here: dict[str, Any] = {"item_id": item.get("id"), "output_index": index}
    held = item.get(group)
    part = held[number] if isinstance(held, list) and number < len(held) else None
    if isinstance(part, dict):
        here[f"{group}_index"] = number
        kind = PARTS.get(str(part.get("type")), "content")
        where = next(where for where in _SPEAKS if where[:2] == (kind, group))
        body = {"type": f"{where.name}.done", **here, where.field: part.get(where.field, "")}
        yield {**body, "logprobs": []} if kind == "content" else body
        yield {"type": f"{_NAMES[group]}.done", **here, "part": part}
    yield {"type": ITEM_DONE, "output_index": index, "item": item}


def trimmed_frames(shown: bytes, kept: int) -> bytes:
    """Leave at most ``kept`` alternatives for a token in frames; below 0 no logprobs at all."""
    frames = []
    for frame in sse.Splitter().feed(shown):
        body = msgspec.json.decode(payload_of(frame) or b"{}")
        without_logprobs(body, kept)
        frames.append(event_of(body) if body else frame)
    return b"".join(frames)


def invented_end(response: dict[str, Any], output: list[dict[str, Any]], used: Usage, why: str) -> dict[str, Any]:
    """Build the last event of a stream that a filter ended: the engine was stopped before it could count what was
    ``used`` of prompt and answer.
    """
    status = end_by(response, why)
    response["output"] = output
    response["usage"] = {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.prompt_tokens + (used.completion_tokens or 0),
    }
    return {"type": f"response.{status}", "response": response}


_CALLS = {
    "function_call": "response.function_call_arguments",
    "mcp_call": "response.mcp_call_arguments",
    "custom_tool_call": "response.custom_tool_call_input",
    "code_interpreter_call": "response.code_interpreter_call_code",
}


def as_stream(response: dict[str, Any], *, want_usage: bool = True) -> bytes:
    """Tell a whole answer as the stream that the caller asked for: each text of it in one piece."""
    del want_usage  # it is always told
    numbers = Numbers()
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    begun.pop("sluice", None)
    events: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": begun, "sequence_number": 0} for name in ("created", "in_progress")
    ]
    for index, item in enumerate(response.get("output") or ()):
        events += _item_in_pieces(index, item)
    ended = "incomplete" if response.get("status") == "incomplete" else "completed"
    events.append({"type": f"response.{ended}", "response": response})
    return b"".join([numbers.write(event) for event in events])


def _item_in_pieces(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    where = DONE.get(f"{_CALLS.get(str(item.get('type')))}.done")
    empty: dict[str, Any] = {group: [] for group in ("content", "summary") if isinstance(item.get(group), list)}
    call = item.get(where.field) if where is not None else None
    if where is not None and isinstance(call, str):
        empty[where.field] = ""
    yield {"type": ITEM_ADDED, "output_index": index, "item": {**item, **empty, "status": "in_progress"}}
    here: dict[str, Any] = {"item_id": item.get("id"), "output_index": index}
    for group in ("summary", "content"):
        for number, part in enumerate(item.get(group) or ()):
            if isinstance(part, dict):
                yield from _part_in_pieces({**here, f"{group}_index": number}, group, part)
    if where is not None and isinstance(call, str):
        yield {"type": f"{where.name}.delta", **here, "delta": call}
        named = {"name": item["name"]} if "name" in item else {}
        yield {"type": f"{where.name}.done", **here, **named, where.field: call}
    yield {"type": ITEM_DONE, "output_index": index, "item": item}


def _part_in_pieces(here: dict[str, Any], group: str, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = PARTS.get(str(part.get("type")), "content")
    where = next(where for where in _SPEAKS if where[:2] == (kind, group))
    logprobs = {"logprobs": part.get("logprobs") or []} if kind == "content" else {}
    blank: dict[str, Any] = {"logprobs": []} if "logprobs" in part else {}
    yield {"type": f"{_NAMES[group]}.added", **here, "part": {**part, where.field: "", **blank}}
    yield {"type": f"{where.name}.delta", **here, "delta": part.get(where.field) or "", **logprobs}
    yield {"type": f"{where.name}.done", **here, where.field: part.get(where.field) or "", **logprobs}
    yield {"type": f"{_NAMES[group]}.done", **here, "part": part}
