"""Chunks put together again are the whole answer that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import sse
from gateway.protocol.chunks import Usage
from gateway.protocol.filtering import Blocked
from gateway.protocol.merging import finish_merge, frames_of, merge_chunk
from gateway.protocol.stream import StreamEditor


def merged(*chunks: dict[str, Any], usage: Usage | None = None) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for chunk in chunks:
        merge_chunk(whole, chunk)
    return finish_merge(whole, usage)


def test_texts_calls_and_logprobs_are_joined_choice_by_choice() -> None:
    whole = merged(
        {"id": "c", "choices": [{"index": 1, "delta": {"content": "b"}}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "logprobs": {"content": [1]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]},
        {"choices": [{"index": 0, "delta": {"content": "c"}, "logprobs": {"content": [2]}, "finish_reason": "stop"}]},
        usage=Usage(1, 2),
    )
    first, second = whole["choices"]
    assert (first["message"]["content"], second["message"]["content"]) == ("ac", "b")
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "t"}
    assert first["message"]["tool_calls"] == [call]
    assert (first["logprobs"], first["finish_reason"]) == ({"content": [1, 2]}, "stop")
    assert (whole["id"], whole["object"]) == ("c", "chat.completion")
    assert whole["usage"] == {"prompt_tokens": 1, "completion_tokens": 2}


def test_completions_have_a_text() -> None:
    whole = merged({"choices": [{"index": 0, "text": "a"}]}, {"choices": [{"index": 0, "text": "b"}]})
    assert (whole["object"], whole["choices"][0]["text"]) == ("text_completion", "ab")


class Louder:
    """Shows in capitals, holds a z back until more comes, and blocks at an exclamation mark."""

    blocked: Any = None
    fed = told = 0

    def __init__(self) -> None:
        self.held = ""

    def feed(self, text: str) -> tuple[str, Sequence[Any]]:
        self.fed += len(text)
        text = self.held + text
        self.held = "z" if text.endswith("z") else ""
        shown = text.removesuffix("z")
        if "!" in shown:
            self.blocked, shown, self.held = Blocked("loud"), shown.partition("!")[0], ""
        self.told = self.fed - len(self.held)
        return shown.upper(), ()

    def finish(self) -> tuple[str, Sequence[Any]]:
        return self.held.upper(), ()

    whole = feed


def played(pieces: list[str], *, filtered: bool, field: str = "content") -> tuple[str, dict[str, Any]]:
    """Return the text that was shown of a stream, and the answer put together."""
    editor = StreamEditor(
        lambda *_: Louder() if filtered else None, model="ours", choices=1, want_usage=False, merge=True
    )
    shown = b""
    for piece in (*pieces, None):
        said = {"text": piece or ""} if field == "text" else {"delta": {} if piece is None else {"content": piece}}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": "stop" if piece is None else None}
        shown += editor.feed(sse.encode(msgspec.json.encode({"id": "x", "model": "m", "choices": [choice]})))
    editor.end()
    shown += editor.close(None)
    chunks = [
        msgspec.json.decode(data) for part in frames_of(shown) if (data := sse.payload(part)) != b"[DONE]" and data
    ]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in choices), editor.merged()


@given(st.lists(st.sampled_from(["a", "bz", "z", "好", "!", ""]), max_size=30), st.booleans())
def test_what_is_put_together_is_what_was_shown(pieces: list[str], filtered: bool) -> None:
    for field in ("content", "text"):
        shown, whole = played(pieces, filtered=filtered, field=field)
        (choice,) = whole["choices"]
        assert (choice["message"].get("content") or "" if field == "content" else choice["text"]) == shown
        assert choice["finish_reason"] == ("content_filter" if filtered and "!" in "".join(pieces) else "stop")


def test_pieces_of_a_text_that_nobody_named_are_put_together_too() -> None:
    whole: dict[str, Any] = {}
    for delta in ({"role": "assistant", "thinking": "a "}, {"role": "assistant", "thinking": "tree"}):
        merge_chunk(whole, {"choices": [{"index": 0, "delta": delta}]})
    message = finish_merge(whole, None)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "thinking": "a tree"}
