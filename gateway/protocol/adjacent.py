"""Which parts of a message an engine reads as one text: what it passes over does not part what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Run = list[tuple[Any, str | int]]
"""Where the pieces of one text sit: ``container[at]``, one after the other."""

#: Types of parts that are no more than a text, by the field that an engine reads of them; of all others: "text".
_OWN = {"thinking": "thinking", "refusal": "refusal"}
_TEXTUAL = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text", *_OWN})
_MEDIA = ("image", "audio", "video", "file", "document", "prompt_embeds", "input_")
#: So begins what vLLM leaves out of a system message, for it changes with each request.
_LEFT_OUT = "x-anthropic-billing-header"


class Lines:
    """A string in two: [0] is its first line, its end included, [1] the rest. Written to, they go back into one."""

    __slots__ = ("_at", "_container")

    def __init__(self, container: Any, at: str | int) -> None:
        self._container, self._at = container, at

    def __getitem__(self, index: Any) -> str:
        first, end, rest = self._container[self._at].partition("\n")
        return str(rest if index else first + end)

    def __setitem__(self, index: Any, new: str) -> None:
        self._container[self._at] = self[0] + new if index else new + self[1]


def text_field(part: Any) -> str | None:
    """Name the field of a content part that an engine reads as its text, "" where the part is the text itself.

    None where there is no text. A field of another type's name beside it is a decoy.
    """
    if isinstance(part, str):
        return ""
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if not isinstance(kind, str):
        return next((field for field in ("text", *_OWN) if isinstance(part.get(field), str)), None)
    field = _OWN.get(kind, "text")
    if kind not in _TEXTUAL and kind.startswith(_MEDIA):
        return None
    return field if isinstance(part.get(field), str) else None


def parts_texts(part: Any) -> bool:
    """Say whether a part without a text stands between texts: a picture does, an empty text or nothing does not."""
    if isinstance(part, dict):
        kind = part.get("type")
        return not isinstance(kind, str) or kind not in _TEXTUAL
    return isinstance(part, list)


def left_out(text: str) -> bool:
    """Say whether vLLM leaves a text of a system message out (on /v1/chat/completions only its first line)."""
    return text.startswith(_LEFT_OUT)


def runs(parts: Sequence[Any], fields: Sequence[str | None], parting: Sequence[bool]) -> list[tuple[int, Run]]:
    """Gather the pieces that are read as one text; return each text with the ordinal of the part in which it begins.

    ``fields`` names the field of each part that is its text, ``parting`` says which of the others part texts.
    """
    found: list[tuple[int, Run]] = []
    begun: Run | None = None
    for index, (part, field, parts_them) in enumerate(zip(parts, fields, parting, strict=True)):
        if field is not None:
            if begun is None:
                begun = []
                found.append((index, begun))
            begun.append((parts, index) if field == "" else (part, field))
        elif parts_them:
            begun = None
    return found
