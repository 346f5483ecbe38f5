"""What has gone wrong is noticed however it arrives, and what only looks odd is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.sdk import Blocked
from gateway.testing import COMPLETIONS, MESSAGES, RESPONSES, Played, play
from plugins.answer_sanity import AnswerSanity, SanityFilter
from tests.plugins.exchanges import chat
from tests.plugins.pages import example

PROSE = " ".join(f"Sentence number {number} says something else about {number * 7919}." for number in range(200))
LOOP = "I am happy to help you with that. " * 60


async def played(answer: Any, request: Any = "q", **options: Any) -> Played:
    return await play(AnswerSanity(AnswerSanity.Options.model_validate(options)), request, answer)


def watched(pieces: list[str], **options: Any) -> tuple[str, list[str]]:
    exchange, shown = chat("q"), ""
    text_filter = SanityFilter(AnswerSanity.Options.model_validate(options), exchange, "p", "content")
    try:
        for piece in pieces:
            shown += text_filter.feed(piece)[0]
        text_filter.finish()
    except Blocked as blocked:
        shown += blocked.shown
    return shown, exchange.record.tags


@given(
    st.lists(st.sampled_from(["\ufffd", "<unk>", "<0xE4>", "a", "ha ", PROSE[:300], "no " * 90, "\n---"]), max_size=12),
    st.integers(1, 300),
    st.sampled_from(["tag", "stop"]),
)
def test_however_a_text_is_cut_the_same_is_noticed_at_the_same_place(parts: list[str], size: int, action: str) -> None:
    text = "".join(parts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert watched(pieces, action=action) == watched([text], action=action)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("Good \ufffd\ufffd\ufffd morning", ["garbled"]),
        ("▁Good▁morning▁to you", ["garbled"]),
        ("Hello<0xE4><0xBD><0xA0>", ["garbled"]),
        ("a <unk> b <unk> c [UNK]", ["garbled"]),
        ("GoodĠmorningĠtoĠyou", ["garbled"]),
        ("Itâ€™s whatâ€™s â€œleftâ€\x9d", ["garbled"]),
        (PROSE + LOOP, ["looping"]),
        ("好的，我来帮您。" * 60, ["looping"]),
        ("ha" * 300, ["looping"]),
        (PROSE, []),
        ("The <unk> token stands for unknown words; ▁▂▃▄▅ is a chart; Ġorġ is a name.", []),
        ("one\ufffd", []),
        ("-" * 600 + "\n| --- | --- |\n" + "=" * 600, []),
        ("0, " * 100, []),
        (LOOP[:200] + PROSE, []),
    ],
)
async def test_what_is_wrong_is_tagged_and_what_is_odd_is_not(text: str, tags: list[str]) -> None:
    answer = await played(text)
    assert (answer.tags, answer.shown) == (tags, text)


async def test_a_loop_can_be_stopped_and_the_engine_with_it() -> None:
    answer = await played([LOOP[at : at + 7] for at in range(0, len(LOOP), 7)], action="stop")
    assert answer.shown == LOOP[: len(answer.shown)]
    assert 400 <= len(answer.shown) < 600
    assert (answer.record.finish_reasons, answer.tags) == (["length"], ["looping"])
    assert [(hit.rule, hit.action) for hit in answer.hits] == [("looping", "stop")]


async def test_an_answer_without_end_is_noticed() -> None:
    assert (await played(PROSE, max_characters=1000)).tags == ["endless"]
    stopped = await played(PROSE, max_characters=1000, action="stop")
    assert (stopped.shown, stopped.record.finish_reasons) == (PROSE[:1024], ["length"])


def ended(reason: str, content: str | None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("body", "tags"),
    [
        (ended("stop", None), ["empty_answer"]),
        (ended("stop", " \n"), ["empty_answer"]),
        (ended("stop", None, reasoning="Hm."), ["empty_answer"]),
        (ended("tool_calls", None, tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]), []),
        (ended("content_filter", ""), []),
        (ended("repetition", "a"), ["looping"]),
        (ended("length", "a"), []),
        (
            {"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]},
            ["empty_answer"],
        ),
    ],
)
async def test_what_only_the_whole_shows_is_tagged(body: dict[str, Any], tags: list[str]) -> None:
    assert (await played(body)).tags == tags


async def test_an_answer_that_only_the_ceiling_ended_has_no_end() -> None:
    plugin = AnswerSanity(AnswerSanity.Options())
    assert (await play(plugin, "q", ended("length", "a"), filled=("max_tokens",))).tags == ["endless"]


async def test_a_completion_that_ends_at_its_usual_16_tokens_is_not_without_end() -> None:
    body = {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}
    plugin = AnswerSanity(AnswerSanity.Options())
    asked = {"model": "m", "prompt": "q", "max_tokens": 16}
    assert (await play(plugin, asked, body, route=COMPLETIONS, filled=("max_tokens",))).tags == []


async def test_thoughts_are_watched_too() -> None:
    assert (await played(ended("stop", "Yes.", reasoning=LOOP))).tags == ["looping"]


def test_little_is_kept() -> None:
    text_filter = SanityFilter(AnswerSanity.Options(), chat("q"), "p", "content")
    for _ in range(100):
        text_filter.feed(PROSE)
    assert len(text_filter._end) <= 4096 + 128


@pytest.mark.parametrize("options", [{"action": "block"}, {"loop_repeats": 1}, {"loops": 3}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AnswerSanity.Options.model_validate(options)


async def test_the_example_of_its_page_is_what_happens() -> None:
    options, (request, answered) = example("answer_sanity")
    plugin = AnswerSanity(AnswerSanity.Options.model_validate(options))
    answer = await play(plugin, {**request, "stream": False}, "")
    assert answer.body["choices"] == answered["choices"]
    assert {**answer.extra, **({"tags": answer.tags} if answer.tags else {})} == answered.get("sluice", {})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("route", "asked"),
    [(RESPONSES, {"input": "q"}), (MESSAGES, {"max_tokens": 9, "messages": [{"role": "user", "content": "q"}]})],
)
async def test_newer_routes_are_watched_alike(route: str, asked: dict[str, Any], stream: bool) -> None:
    for answer, tag in (("again and " * 80, "looping"), (" ", "empty_answer"), ("\ufffd" * 5, "garbled")):
        plugin = AnswerSanity(AnswerSanity.Options())
        seen = await play(plugin, {"model": "m", "stream": stream, **asked}, answer, route=route)
        assert seen.tags == [tag]
