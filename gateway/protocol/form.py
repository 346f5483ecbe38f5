"""The form that nearly all chunks of one stream share: byte for byte alike, but for the text."""

from __future__ import annotations

import msgspec

from gateway.protocol.chunks import NULL, Chunk
from gateway.protocol.patches import Patch, named, patched

_text = msgspec.json.Decoder(str).decode
_QUOTE = 0x22


class Form:
    """What stands before and after the text, as the engine writes it and, under its own name for the model, as the
    caller sees it.

    A frame that begins and ends so, with one JSON string between, says what the frame said that the form was taken
    from, with that string as its text: nothing else of it has to be read.
    """

    __slots__ = ("_after", "_before", "_shown_after", "_shown_before", "same")

    def __init__(self, frame: tuple[bytes, bytes], shown: tuple[bytes, bytes]) -> None:
        self._before, self._after = frame
        self._shown_before, self._shown_after = shown
        self.same = frame == shown  # a frame whose text stays may go on as it is

    def text_of(self, frame: bytes) -> str | None:
        """Return the text of a frame that has this form, else None."""
        begin, end = len(self._before), len(frame) - len(self._after)
        if end - begin < 2 or not (frame.startswith(self._before) and frame.endswith(self._after)):
            return None
        if frame[begin] != _QUOTE or frame[end - 1] != _QUOTE:
            return None
        try:
            return _text(frame[begin:end])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def renamed(self, frame: bytes) -> bytes:
        """Write a frame of this form as the caller sees it."""
        return self._shown_before + frame[len(self._before) : len(frame) - len(self._after)] + self._shown_after

    def saying(self, text: str) -> bytes:
        """Write a frame of this form with another text, as the caller sees it."""
        return self._shown_before + msgspec.json.encode(text) + self._shown_after


def form_of(frame: bytes, chunk: Chunk, name: str) -> Form | None:
    """Take the form of a frame that says a text and nothing else; None where it says more, or cannot be cut in three.

    ``name`` is what the caller calls the model.
    """
    (choice,) = chunk.choices or (None,)
    if choice is None or chunk.usage is not None or choice.finish_reason is not None:
        return None
    if choice.logprobs != NULL or choice.token_ids != NULL:
        return None
    if choice.delta is None:
        field, text = b"text", choice.text
    else:
        field, text = b"content", choice.delta.content
        if choice.delta != type(choice.delta)(text):
            return None
    if not text or not frame.startswith(b"data: {") or frame.find(b"\n") != len(frame) - 2 or b"\r" in frame:
        return None
    if patched(frame[6:-2], {0: Patch("")}, name):  # there is something beside the text
        return None
    cut, shown = _around(frame, field, text), _around(named(frame, chunk.model, name), field, text)
    return Form(cut, shown) if cut is not None and shown is not None else None


def _around(frame: bytes, field: bytes, text: str) -> tuple[bytes, bytes] | None:
    name = b'"' + field + b'":'  # unescaped quotes: never inside a text
    begin = frame.find(name) + len(name)
    if frame.count(name) != 1:
        return None
    if frame[begin : begin + 1] == b" ":
        begin += 1
    said = msgspec.json.encode(text)
    return (frame[:begin], frame[begin + len(said) :]) if frame.startswith(said, begin) else None
