"""No logprob of a stream shows a word that its text does not: of thoughts, arguments, or ahead of the text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.protocol.test_stream import chunk, editor, events, logprobs

TEXTS = ["reasoning", "reasoning_content", "refusal", "content"]


def tokens(out: bytes) -> list[str]:
    entries = [c["logprobs"] or {} for event in events(out) for c in event["choices"]]
    return [entry["token"] for its in entries for name in ("content", "refusal") for entry in its.get(name) or ()]


def told(*chunks: bytes) -> bytes:
    edited = editor()
    out = edited.feed(b"".join(chunks))
    return out + edited.close(None)


def call(arguments: str, name: str | None = None) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_masked_text_of_any_kind_is_masked_in_its_logprobs(kind: str) -> None:
    out = told(
        chunk({kind: "eat "}, logprobs=logprobs("eat ")),
        chunk({kind: "pa"}, logprobs=logprobs("pa"), token_ids=[77]),
        chunk({kind: "paya"[2:] + "ya now"}, logprobs=logprobs("ya", "ya now")),
        chunk({kind: " papaya"}, logprobs=logprobs(" ", "papaya"), token_ids=[78]),
        chunk({}, "stop"),
    )
    assert "papaya" not in "".join(tokens(out))
    assert b"78" not in out
    assert tokens(out)[0] == "eat "


@pytest.mark.parametrize("kind", TEXTS)
def test_a_block_shows_no_token_of_the_word(kind: str) -> None:
    out = told(chunk({kind: "a ze"}, logprobs=logprobs("a ", "ze")), chunk({kind: "bra b"}, logprobs=logprobs("bra b")))
    assert "z" not in "".join(tokens(out))
    assert b"content_filter" in out


@pytest.mark.parametrize("kind", TEXTS)
def test_logprobs_of_a_clean_text_of_any_kind_are_all_told(kind: str) -> None:
    out = told(
        chunk({kind: "eat pa"}, logprobs=logprobs("eat ", "pa")),
        chunk({kind: "per"}, logprobs=logprobs("per")),
        chunk({}, "stop"),
    )
    assert tokens(out) == ["eat ", "pa", "per"]


def test_a_refusals_own_logprobs_are_masked() -> None:
    own = {"content": None, "refusal": logprobs("papaya")["content"]}
    assert tokens(told(chunk({"refusal": "papaya"}, logprobs=own), chunk({}, "stop"))) == ["******"]


def test_arguments_that_change_show_no_tokens() -> None:
    out = told(
        chunk(call('{"a":"', "f"), logprobs=logprobs('{"a":"')),
        chunk(call("pa"), logprobs=logprobs("pa")),
        chunk(call('paya"}'[2:] + "x"), logprobs=logprobs("ya")),
        chunk(call("papaya"), logprobs=logprobs("papaya")),
        chunk({}, "tool_calls"),
    )
    assert tokens(out)[0] == '{"a":"'
    assert "papaya" not in "".join(tokens(out))
    assert tokens(told(chunk(call("{}", "zebra"), logprobs=logprobs("zebra")))) == []


def test_tokens_ahead_of_the_text_wait_for_it() -> None:
    """vLLM holds back as much text as a stop phrase is long, but not the logprobs of its tokens."""
    ahead = [
        chunk({"content": ""}, logprobs=logprobs("eat ")),
        chunk({"content": ""}, logprobs=logprobs("papaya")),
        chunk({"content": "ea"}, logprobs=logprobs(" now")),
    ]
    edited = editor()
    assert tokens(edited.feed(b"".join(ahead))) == []
    rest = edited.feed(chunk({"content": "t papaya now"}) + chunk({}, "stop")) + edited.close(None)
    assert "papaya" not in "".join(tokens(rest))
    blocked = told(chunk({"content": "e"}, logprobs=logprobs("eat ", "zebra")), chunk({"content": "at zebra"}))
    assert "z" not in "".join(tokens(blocked))


def test_tokens_ahead_of_a_clean_text_come_with_its_end() -> None:
    out = told(
        chunk({"content": ""}, logprobs=logprobs("eat ")),
        chunk({"content": "ea"}, logprobs=logprobs("now")),
        chunk({"content": "t now"}, "stop", logprobs=logprobs("<|im_end|>")),
    )
    assert tokens(out) == ["eat ", "now", "<|im_end|>"]


def test_bytes_of_half_a_character_wait_for_the_whole() -> None:
    half = {"content": [{"token": "\ufffd", "logprob": -1.0, "bytes": [232, 181], "top_logprobs": []}]}
    edited = editor()
    assert tokens(edited.feed(chunk({"content": ""}, logprobs=half))) == []
    assert tokens(edited.feed(chunk({"content": "赌"}, logprobs=half))) == ["\ufffd", "\ufffd"]


def test_tokens_of_two_texts_in_one_chunk_are_hidden_where_one_changes() -> None:
    both = {"reasoning": "papaya", "content": "b"}
    out = told(chunk(both, logprobs=logprobs("papaya", "b")), chunk({}, "stop"))
    assert "papaya" not in "".join(tokens(out))
    assert json.dumps(events(out)[0]).count("******") >= 1
