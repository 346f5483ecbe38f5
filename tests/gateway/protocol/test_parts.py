"""A part on its way through the filters: what was said, what was shown, and the logprobs that repeat it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.parts import ArgumentsChannel, Part, Place, TextChannel, channel_for, fed, write
from tests.fakes.responses import Word


def entries(*tokens: str) -> list[dict[str, Any]]:
    return [{"token": token, "bytes": list(token.encode()), "logprob": -1, "top_logprobs": []} for token in tokens]


def test_a_part_that_nobody_watches_is_as_it_was_said() -> None:
    part = Part(TextChannel(None))
    assert part.feed("a papaya", msgspec.json.encode(entries("a papaya"))) == ("a papaya", None)
    assert part.finish() == ("", [])
    assert (part.said, part.shown, part.changed) == ("a papaya", "a papaya", False)
    assert part.masked(entries("a papaya")) == entries("a papaya")


def test_logprobs_come_with_the_text_that_they_repeat() -> None:
    part = Part(TextChannel(Word()))
    assert part.feed("a ", msgspec.json.encode(entries("a "))) == ("a ", None)
    assert part.feed("pap", msgspec.json.encode(entries("pap"))) == ("", [])
    shown, told = part.feed("aya", msgspec.json.encode(entries("aya")))
    assert shown == "******"
    assert [entry["token"] for entry in told or ()] == ["***", "***"]
    assert [entry["token"] for entry in part.masked(entries("a ", "pap", "aya"))] == ["a ", "***", "***"]
    assert part.masked(None) is None


def test_what_a_part_holds_comes_out_in_the_next_of_its_kind() -> None:
    channel = TextChannel(Word())
    first = Part(channel)
    first.feed("a pap")
    second = Part(channel)
    assert (first.shown, first.changed, second.changed) == ("a ", True, True)
    assert [entry["token"] for entry in first.masked(entries("a ", "pap"))] == ["a ", "***"]
    second.feed("aya!")
    assert second.finish() == ("", [])
    assert second.shown == "******!"
    assert channel.finish() == ("", [])


def test_of_a_part_in_which_the_answer_was_ended_no_token_is_left_behind_the_cut() -> None:
    told = entries("x ", "ze", "bra", " after", " more")
    whole, fed_ = Part(TextChannel(Word())), Part(TextChannel(Word()))
    whole.whole("x zebra after more")
    shown = [fed_.feed(entry["token"], msgspec.json.encode([entry])) for entry in told]
    for part in (whole, fed_):
        assert part.shown == "x "
        assert part.masked(told) == told[:1]
    assert [kept for _, kept in shown if kept] == []


def test_the_end_is_told_once() -> None:
    part = Part(TextChannel(Word()))
    part.feed("pap", msgspec.json.encode(entries("pap")))
    assert part.finish() == ("pap", entries("pap"))
    assert part.finish() == ("", [])
    assert part.shown == "pap"


def test_arguments_are_filtered_value_by_value() -> None:
    asked: list[Any] = []

    def make(*channel: Any) -> Word:
        asked.append(channel)
        return Word()

    part = Part(ArgumentsChannel(make, 3))
    assert part.feed('{"papaya":"pap')[0] == '{"papaya":"'
    assert part.feed('aya\\n"}')[0] == '******\\n"}'
    assert part.finish() == ("", [])
    assert set(asked) == {(0, "arguments", 3)}
    assert not part.channel.holds
    unwatched = ArgumentsChannel(lambda *_: None, 0)
    assert unwatched.whole('{"papaya":1}') == '{"papaya":1}'
    assert not unwatched.blocked


def test_a_kind_of_place_has_its_kind_of_channel() -> None:
    asked: list[Any] = []
    for kind in ("content", "reasoning", "refusal", "code", "rest", "arguments"):
        channel_for(kind, lambda *channel: asked.append(channel), 2)
    assert [(kind, tool) for _, kind, tool in asked] == [
        ("content", 0), ("reasoning", 0), ("refusal", 0), ("arguments", 2), ("content", 0), ("arguments", 2),
    ]  # fmt: skip


@given(st.lists(st.sampled_from(["pa", "papaya", "p", "aya", " b"]), min_size=1, max_size=8))
def test_the_pieces_of_a_whole_answer_are_read_as_one_text(texts: list[str]) -> None:
    holders = [{"text": text, "logprobs": []} for text in texts]
    found = [(0, Place("content", "content", at, holder, "text"), 0) for at, holder in enumerate(holders)]
    parts = fed(found, lambda *_: Word())
    for (_, place, _), part in zip(found, parts, strict=True):
        write(place, part)
    assert "".join(str(holder["text"]) for holder in holders) == "".join(texts).replace("papaya", "******")
