"""An answer ends where a phrase begins, however it is cut; an echo falls away, an answer of its own does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.sdk import Blocked, Edit, Plugin, TextFilter
from gateway.testing import MESSAGES, RESPONSES, Played, play
from plugins.stop_phrases import EchoFilter, PhraseFilter, StopPhrases
from plugins.system_prompt import SystemPrompt
from tests.plugins.exchanges import chat
from tests.plugins.pages import example

PROMPT = "What is the capital of France?"
phrases = st.lists(st.text("ab#", min_size=1, max_size=5), max_size=4)
texts = st.lists(st.text("ab#", max_size=6), max_size=6)


async def played(answer: Any, request: Any = PROMPT, **options: Any) -> Played:
    return await play(StopPhrases(StopPhrases.Options.model_validate(options)), request, answer)


def run(text_filter: TextFilter, pieces: list[str]) -> tuple[str, list[Edit], bool]:
    shown = ""
    edits: list[Edit] = []
    try:
        for piece in pieces:
            more, made = text_filter.feed(piece)
            shown += more
            edits += made
        more, made = text_filter.finish()
    except Blocked as blocked:
        return shown + blocked.shown, [*edits, *blocked.edits], True
    return shown + more, [*edits, *made], False


@given(phrases, texts)
def test_however_a_text_is_cut_it_ends_at_the_same_place(stops: list[str], pieces: list[str]) -> None:
    whole = run(PhraseFilter(stops, chat("q"), "p"), ["".join(pieces)])
    assert run(PhraseFilter(stops, chat("q"), "p"), pieces) == whole
    assert not any(stop in whole[0] for stop in stops)


@given(
    st.lists(st.sampled_from([*PROMPT, PROMPT, PROMPT[:9], " ", "\n", "Paris", "#"]), max_size=8),
    st.sampled_from([(PROMPT,), (f"Be kind.\n\n{PROMPT}", PROMPT), (PROMPT, f"{PROMPT} What")]),
)
def test_however_an_echo_is_cut_the_answer_is_the_same(pieces: list[str], prompts: tuple[str, ...]) -> None:
    def echo() -> EchoFilter:
        exchange = chat("q")
        return EchoFilter(prompts, PhraseFilter(["#"], exchange, "p"), exchange, "p")

    assert run(echo(), pieces) == run(echo(), ["".join(pieces)])
    assert run(echo(), list("".join(pieces))) == run(echo(), ["".join(pieces)])


async def test_a_phrase_over_chunk_borders_ends_the_answer_with_stop() -> None:
    answer = await played(["Paris.\n", "Us", "er", ": more", " and more"], phrases=["\nUser:", "###"])
    assert answer.shown == "Paris."
    assert answer.record.finish_reasons == ["stop"]
    assert answer.record.outcome == "ok"
    assert [(hit.rule, hit.action) for hit in answer.hits] == [("phrases:0", "stop")]


async def test_only_the_beginning_of_a_phrase_is_held_back() -> None:
    answer = await played(["a #", "# b", "c"], phrases=["###"])
    assert answer.pieces == ["a ", "## b", "c", ""]


async def test_a_whole_answer_ends_there_too() -> None:
    answer = await played(
        "Paris.###", {"messages": [{"role": "user", "content": "q"}], "stream": False}, phrases=["###"]
    )
    assert (answer.shown, answer.body["choices"][0]["finish_reason"]) == ("Paris.", "stop")


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (f"{PROMPT}\n\nParis.", "Paris."),
        (f" {PROMPT} Paris.", "Paris."),
        (PROMPT, PROMPT),
        (f"{PROMPT[:-1]} is Paris.", f"{PROMPT[:-1]} is Paris."),
        ("What is it? Paris.", "What is it? Paris."),
    ],
)
async def test_an_echo_falls_away_and_an_answer_of_its_own_does_not(answer: str, shown: str) -> None:
    assert (await played(list(answer))).shown == shown


async def test_an_answer_may_take_the_prompt_up() -> None:
    begun = "The capital of France is"
    assert (await played([begun, " Paris."], begun)).shown == f"{begun} Paris."
    assert (await played([begun, "\nParis."], begun)).shown == "Paris."


@pytest.mark.parametrize("prompt", ["Hello there!", "long " * 5000])
async def test_short_and_endless_prompts_are_not_watched(prompt: str) -> None:
    assert (await played([prompt, " Yes."], prompt)).shown == f"{prompt} Yes."


async def test_an_echo_that_was_asked_for_stays() -> None:
    plugin = StopPhrases(StopPhrases.Options())
    request = {"model": "m", "prompt": PROMPT, "echo": True}
    answer = await play(plugin, request, [PROMPT, " Paris."], route="/v1/completions")
    assert answer.shown == f"{PROMPT} Paris."
    answer = await play(plugin, {"model": "m", "prompt": PROMPT}, [PROMPT, " Paris."], route="/v1/completions")
    assert answer.shown == "Paris."


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("echoed", ["", "You answer for Acme.\n\n"])
async def test_the_callers_prompt_is_an_echo_with_and_without_the_operators_words(above: bool, echoed: str) -> None:
    said = SystemPrompt(SystemPrompt.Options(text="You answer for Acme.", recital="off"))
    stops = StopPhrases(StopPhrases.Options())
    chain: list[Plugin] = [stops, said] if above else [said, stops]
    answer = await play(chain, PROMPT, [echoed, PROMPT, " Paris."], route="/v1/completions")
    assert answer.shown == "Paris."


async def test_the_echo_can_be_left() -> None:
    assert (await played([PROMPT, " Paris."], prompt_echo="off")).shown == f"{PROMPT} Paris."


@pytest.mark.parametrize("options", [{"phrases": [""]}, {"prompt_echo": "keep"}, {"phrase": ["x"]}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StopPhrases.Options.model_validate(options)


async def test_the_example_of_its_page_is_what_happens() -> None:
    options, (request, answered) = example("stop_phrases")
    plugin = StopPhrases(StopPhrases.Options.model_validate(options))
    answer = await play(
        plugin, {**request, "stream": False}, "What is the capital of France?\n\nParis.\nUser: And of Italy?"
    )
    assert answer.body["choices"] == answered["choices"]
    assert {**answer.extra, **({"tags": answer.tags} if answer.tags else {})} == answered.get("sluice", {})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (RESPONSES, {"input": PROMPT}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]}),
        (MESSAGES, {"max_tokens": 9, "messages": [{"role": "user", "content": PROMPT}]}),
    ],
)
async def test_newer_routes_are_cut_and_stopped_alike(route: str, asked: dict[str, Any], stream: bool) -> None:
    plugin = StopPhrases(StopPhrases.Options(phrases=("\nUser:",)))
    plugin.name = "stop_phrases"
    answer = f"{PROMPT}\nParis.\nUser: And now?"
    played = await play(plugin, {"model": "m", "stream": stream, **asked}, answer, route=route)
    assert played.shown == "Paris."
    assert [hit.rule for hit in played.hits] == ["prompt_echo", "phrases:0"]
    assert played.record.finish_reasons == ["stop"]
