"""Server-sent events on bytes: cutting a stream into frames, reading a frame, writing one.

A frame is everything up to and including the blank line that ends an event, kept byte for byte so that it can be
passed on as it came. Line ends are LF, CRLF or a lone CR (WHATWG HTML, 9.2.6) and nothing else: U+2028 and its
relatives are ordinary text.
"""

from __future__ import annotations

import re

HEARTBEAT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
BOM = b"\xef\xbb\xbf"

#: The pending bytes of one frame; an engine that never ends its event would fill the memory.
LIMIT = 16 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")  # atomic: CRLF never counts as two ends


class FrameTooLong(ValueError):
    """The stream sent more bytes than the limit without ending its event."""


class Splitter:
    """Cuts a byte stream into frames; any cut of the stream gives the same frames.

    The frames joined, with ``rest`` behind them, are the input. A frame whose blank line ends in CR at the very end of
    the bytes so far waits for the next byte, for that could be the LF that belongs to it.
    """

    __slots__ = ("_limit", "_pending", "_seen")

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._seen = 0  # no blank line begins before this offset

    @property
    def rest(self) -> bytes:
        """What has come behind the last whole frame. At the end of a stream: an event that was never ended."""
        return bytes(self._pending)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the frames they complete; raises FrameTooLong."""
        if self._pending or b"\r" in data:
            return self._feed_any(data)
        if len(data) > 1 and data.find(b"\n\n") == len(data) - 2:
            return [data]
        *frames, rest = data.split(b"\n\n")
        if rest:
            self._hold(rest)
        return [frame + b"\n\n" for frame in frames]

    def _feed_any(self, data: bytes) -> list[bytes]:
        pending = self._pending
        pending += data
        frames = []
        begin, seen = 0, self._seen
        while found := _BLANK_LINE.search(pending, seen):
            end = found.end()
            if end == len(pending) and pending[-1:] == b"\r":
                seen = found.start()
                break
            frames.append(bytes(pending[begin:end]))
            begin = seen = end
        else:
            tail = 2 if pending.endswith(b"\r\n") else 1
            seen = max(begin, len(pending) - tail)
        del pending[:begin]
        self._seen = seen - begin
        self._hold(b"")
        return frames

    def _hold(self, rest: bytes) -> None:
        self._pending += rest
        if len(self._pending) > self._limit:
            message = f"an event of the stream is longer than {self._limit} bytes"
            raise FrameTooLong(message)


def payload(frame: bytes) -> bytes | None:
    """Return the frame's data, its lines joined by LF; None for a frame without data (a comment, a retry time)."""
    if frame.startswith(b"data: ") and frame.find(b"\n") == len(frame) - 2 and b"\r" not in frame:
        return frame[6:-2]
    lines = _field(frame, b"data")
    return b"\n".join(lines) if lines else None


def event_name(frame: bytes) -> bytes | None:
    """Return the name in the frame's ``event`` field (the last one counts), None where it has none."""
    if b"event" not in frame:
        return None
    names = _field(frame, b"event")
    return names[-1] if names else None


def _field(frame: bytes, name: bytes) -> list[bytes]:
    values = []
    for line in _LINE_END.split(frame.removeprefix(BOM)):
        field, _, value = line.partition(b":")
        if field == name:
            values.append(value.removeprefix(b" "))
    return values


def encode(payload: bytes, event: bytes | None = None) -> bytes:
    """Write one frame; a payload of several lines becomes several data lines."""
    if b"\n" in payload or b"\r" in payload:
        payload = b"\ndata: ".join(_LINE_END.split(payload))
    head = b"" if event is None else b"event: " + event + b"\n"
    return head + b"data: " + payload + b"\n\n"
