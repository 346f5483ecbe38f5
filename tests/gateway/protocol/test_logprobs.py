"""Logprobs repeat the text: nothing that was held back, masked or blocked shows in them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.logprobs import LogprobQueue, masked, trimmed


def entries(*tokens: str) -> dict[str, Any]:
    return {"content": [entry(token) for token in tokens]}


def entry(token: str) -> dict[str, Any]:
    top = [{"token": token, "logprob": -0.1, "bytes": list(token.encode())}]
    return {"token": token, "logprob": -0.1, "bytes": list(token.encode()), "top_logprobs": top}


def tokens_of(logprobs: Any) -> list[str]:
    return [each["token"] for each in logprobs["content"]] if logprobs else []


def test_a_masked_part_is_masked_in_its_tokens_and_nowhere_else() -> None:
    shown = masked(entries("my ", "pa", "paya", " tree"), "my papaya tree", [(3, 9, "******")])
    assert tokens_of(shown) == ["my ", "**", "****", " tree"]
    assert shown["content"][0] == entry("my ")
    hidden = shown["content"][1]
    assert bytes(hidden["bytes"]) == b"**"
    assert hidden["top_logprobs"] == []
    assert "papaya" not in json.dumps(shown)


def test_completions_logprobs_are_masked_in_their_own_form() -> None:
    logprobs = {
        "tokens": ["a ", "zebra"],
        "token_logprobs": [-0.1, -0.2],
        "top_logprobs": [{"a ": -0.1}, {"zebra": -0.2}],
        "text_offset": [0, 2],
    }
    shown = masked(logprobs, "a zebra", [(2, 7, "*****")])
    assert shown["tokens"] == ["a ", "*****"]
    assert shown["top_logprobs"] == [{"a ": -0.1}, None]
    assert shown["text_offset"] == [0, 2]


def test_where_tokens_do_not_join_to_the_text_all_of_them_are_masked() -> None:
    assert tokens_of(masked(entries("\ufffd", "\ufffd"), "赌", [(0, 1, "*")])) == ["*", "*"]


def test_what_is_no_logprobs_stays() -> None:
    assert masked(None, "a", [(0, 1, "*")]) is None
    assert masked({"content": None, "other": 1}, "a", [(0, 1, "*")]) == {"content": None, "other": 1}


def feed(queue: LogprobQueue, text: str, fed: int, told: int, edits: list[tuple[int, int, str]]) -> list[str]:
    logprobs, _ = queue.feed(json.dumps(entries(text)).encode(), b"[7]", text, fed, told, edits)
    return tokens_of(logprobs)


def test_logprobs_wait_for_their_text() -> None:
    queue = LogprobQueue()
    assert feed(queue, "ze", 2, 0, []) == []
    assert not queue.empty
    assert feed(queue, "al", 4, 4, []) == ["ze", "al"]
    assert queue.empty


def test_an_edit_reaches_the_tokens_of_earlier_chunks() -> None:
    queue = LogprobQueue()
    assert feed(queue, "pa", 2, 0, []) == []
    assert feed(queue, "pa", 4, 0, []) == []
    assert feed(queue, "ya!", 7, 7, [(0, 6, "******")]) == ["**", "**", "***"]


def test_token_ids_of_what_was_edited_are_gone() -> None:
    queue = LogprobQueue()
    assert queue.feed(b"null", b"[1]", "one", 3, 3, []) == (None, [1])
    assert queue.feed(b"null", b"[2]", "two", 6, 6, [(3, 6, "***")]) == (None, None)


@given(st.data())
def test_released_tokens_are_the_shown_text_in_order(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=8))
    queue, fed, told, shown = LogprobQueue(), 0, 0, list[str]()
    for piece in pieces:
        fed += len(piece)
        told = data.draw(st.integers(told, fed))
        shown += feed(queue, piece, fed, told, [])
        assert len("".join(shown)) <= told
    logprobs, _ = queue.release(fed, [], None)
    assert shown + tokens_of(logprobs) == pieces


def test_who_asked_for_fewer_alternatives_sees_fewer() -> None:
    assert trimmed(entries("a"), -1) is None
    assert trimmed(entries("a"), 0)["content"][0]["top_logprobs"] == []
    assert trimmed(entries("a"), 1) == entries("a")
    completion = {"tokens": ["b", "c"], "token_logprobs": [-2.0, None], "top_logprobs": [{"a": -0.1, "b": -2.0}, None]}
    assert trimmed(completion, 0) == {**completion, "top_logprobs": [{"b": -2.0}, None]}
    assert trimmed(completion, 1) == completion
    assert trimmed(None, 1) is None
