"""The chain seen from outside: the same verdict streamed and whole, however the answer is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.forms import COMPLETIONS, DONE, Delta, chunk, dumps, event
from tests.fakes.script import SILENCE, answers, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, WORDS, Gateway, configuration, hear, model
from tests.system.conftest import StartGateway

HARD = [["for", "bidden", "zeb", "ra!"], ["赌", "博"], list("say forbiddenzebra now"), ["ok 赌", "博 no"]]


def whole(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    """Ask for a whole answer and return its first choice."""
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI} | fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


@pytest.mark.parametrize("pieces", HARD, ids="|".join)
def test_a_word_split_over_chunks_never_leaks(fake: FakeVLLM, gateway: Gateway, pieces: list[str]) -> None:
    """EV-07: no character of the match, never a plain stop, and the same verdict as for the whole text."""
    fake.always(says(*pieces))
    heard = hear(gateway, {})
    clean = "".join(pieces).partition("forbiddenzebra")[0].partition("赌")[0]
    assert heard.text() == clean
    assert heard.finishes() == ["content_filter"]
    assert heard.errors == []
    assert heard.done
    choice = whole(gateway)
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == (clean, "content_filter")


def test_a_block_aborts_the_engines_request(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("ok ", "forbidden", "zebra", SILENCE))
    heard = hear(gateway, {"stream_options": {"include_usage": True}})
    assert (heard.text(), heard.finishes(), heard.done) == ("ok ", ["content_filter"], True)
    assert heard.events[-1]["usage"]["completion_tokens"] >= 1
    assert heard.events[-1]["choices"] == []
    received = fake.requests()[0]
    assert received.left.wait(1)


def test_of_two_choices_the_clean_one_goes_on(fake: FakeVLLM, gateway: Gateway) -> None:
    """The engine's request is aborted only when every choice has ended."""
    gate = fake.gate()
    pieces: list[Any] = [
        Delta(0, {"content": "forbiddenzebra"}),
        gate,
        Delta(1, {"content": "clean"}),
        Delta(0, {"content": " x"}),
    ]
    fake.script(says(*pieces, Delta(1, {"content": "."})))
    gate.set()
    heard = hear(gateway, {"n": 2})
    assert (heard.text(0), heard.finishes(0)) == ("", ["content_filter"])
    assert (heard.text(1), heard.finishes(1)) == ("clean.", ["stop"])
    assert heard.done


def test_completions_are_filtered_alike(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(says("ok forbid", "denzebra"))
    heard = hear(gateway, {"prompt": "hi"}, COMPLETIONS)
    assert (heard.text(), heard.finishes()) == ("ok ", ["content_filter"])
    answer = gateway.post(COMPLETIONS, {"model": "smollm2", "prompt": "hi"}).json()["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("ok ", "content_filter")


def forwarded(fake: FakeVLLM, gateway: Gateway, text: str, words: list[Any] | None = None) -> str:
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": [{"role": "user", "content": text}]})
    assert answer.status_code == 200, answer.text
    return str(fake.requests()[-1].body["messages"][0]["content"])


MASKED = {
    "İİİ maskpapaya ok": "İİİ ********** ok",
    "ﬃ ẞ MaskPapaya": "ﬃ ẞ **********",
    "＂maskpapaya＂": "＂**********＂",
}


@pytest.mark.parametrize("text", MASKED)
def test_exactly_the_letters_are_masked(fake: FakeVLLM, gateway: Gateway, text: str) -> None:
    """EV-15, in request and answer, streamed letter by letter and whole."""
    assert forwarded(fake, gateway, text) == MASKED[text]
    fake.always(says(*text))
    assert hear(gateway, {}).text() == MASKED[text]
    assert whole(gateway)["message"]["content"] == MASKED[text]


OVERLAPPING: list[tuple[list[str], str, str]] = [
    (["*klm*", "*jkly*"], "jklm", "j***"),
    (["登记号", "产品登记号表"], "产品登记号", "产品***"),
    (["*xy*", "*xyzxyw*"], "qqxyzxywqq", "qq******qq"),
    (["蓝色", "蓝色房子"], "蓝色房子好看", "****好看"),
]


def test_overlapping_entries_all_count(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """EV-14, each list as a model's own chain entry."""
    chain = [
        {
            "plugin": "sensitive_words",
            "models": [f"m{at}"],
            "options": {"words": [{"word": word, "action": "mask"} for word in words]},
        }
        for at, (words, _, _) in enumerate(OVERLAPPING)
    ]
    gateway = start_gateway(configuration([model(f"m{at}", fake.url) for at in range(4)], chain=chain))
    for at, (_, text, masked) in enumerate(OVERLAPPING):
        fake.always(says(*text))
        messages = [{"role": "user", "content": text}]
        answer = gateway.post(CHAT, {"model": f"m{at}", "messages": messages}).json()
        assert fake.requests()[-1].body["messages"][0]["content"] == masked
        assert answer["choices"][0]["message"]["content"] == masked
        assert hear(gateway, {"model": f"m{at}"}).text() == masked


def test_an_allow_entry_wins(fake: FakeVLLM, gateway: Gateway) -> None:
    assert forwarded(fake, gateway, "惹上大麻烦了，三黄片是药") == "惹上大麻烦了，三黄片是药"
    fake.always(says(*"大麻烦和三黄片"))
    assert hear(gateway, {}).text() == "大麻烦和三黄片"
    fake.always(says("大", "麻", "不好"))
    assert (hear(gateway, {}).text(), hear(gateway, {}).finishes()) == ("", ["content_filter"])


def test_soft_hits_are_tags(fake: FakeVLLM, gateway: Gateway) -> None:
    messages = [{"role": "user", "content": "a softkiwi"}]
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": messages})
    assert answer.headers["x-sluice-tags"] == "soft"
    assert answer.json()["sluice"]["tags"] == ["soft"]
    assert fake.requests()[0].body["messages"] == messages


def test_every_place_of_a_request_is_checked(fake: FakeVLLM, gateway: Gateway) -> None:
    word = "forbiddenzebra"
    parts = [{"type": "text", "text": part} for part in ("forbidden", "zebra")]
    bodies: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [{"role": "system", "content": word}, *HI]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": word}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": parts}]}),
        (CHAT, {"messages": [*HI, {"role": "assistant", "content": "x", "reasoning": word}, *HI]}),
        (CHAT, {"messages": [{"role": "user", "name": word, "content": "hi"}]}),
        (CHAT, {"messages": [*HI, {"role": "tool", "tool_call_id": "a", "content": word}]}),
        (COMPLETIONS, {"prompt": word}),
        (COMPLETIONS, {"prompt": ["ok", word]}),
        (COMPLETIONS, {"prompt": "ok", "suffix": word}),
        ("/v1/embeddings", {"input": word}),
        ("/v1/embeddings", {"input": ["ok", word]}),
        ("/tokenize", {"prompt": word}),
        ("/tokenize", {"messages": [{"role": "user", "content": word}]}),
    ]  # fmt: skip
    for path, body in bodies:
        answer = gateway.post(path, {"model": "smollm2"} | body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["code"] == "content_filter", body
        assert "zebra" not in answer.text
    assert [received for received in fake.everything() if received.method == "POST"] == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_logprobs_repeat_nothing_that_is_masked_or_blocked(fake: FakeVLLM, gateway: Gateway, stream: bool) -> None:
    for pieces in (["ok ", "mask", "papaya", " so"], ["ok ", "forbidden", "zebra"]):
        fake.always(says(*pieces))
        body = {"model": "smollm2", "messages": HI, "stream": stream, "logprobs": True, "top_logprobs": 1}
        answer = gateway.post(CHAT, body).text
        for trace in ("papaya", "zebra", "[112,97,112,97,121,97]", "[122,101,98,114,97]"):
            assert trace not in answer.replace(" ", ""), answer
        assert "ok " in answer
        fake.always(says(*pieces))
        body = {"model": "smollm2", "prompt": "hi", "stream": stream, "logprobs": 1}
        answer = gateway.post(COMPLETIONS, body).text
        for trace in ("papaya", "zebra"):
            assert trace not in answer


def test_an_echoed_prompt_is_filtered_too(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(says("tell me of the mask", "papaya", ": it is"))
    answer = gateway.post(COMPLETIONS, {"model": "smollm2", "prompt": "tell me", "echo": True})
    assert "maskpapaya" not in answer.text


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(
        st.sampled_from(
            ["forbiddenzebra", "赌", "博", "mask", "maskpapaya", "黄片", "三黄片", "大麻", "烦", " ", "ok", "🌍"]
        ),
        min_size=1,
        max_size=8,
    ).map("".join),
    data=st.data(),
)
def test_every_split_gives_the_answer_of_the_whole(
    fake: FakeVLLM, gateway: Gateway, text: str, data: st.DataObject
) -> None:
    """EV-07 as a law."""
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    fake.script(says(*pieces), says(text))
    heard = hear(gateway, {})
    choice = whole(gateway)
    assert heard.text() == (choice["message"]["content"] or "")
    assert heard.finishes() == [choice["finish_reason"]]


def test_shadow_changes_nothing_and_is_recorded(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=[WORDS | {"mode": "shadow"}]))
    assert forwarded(fake, gateway, "forbiddenzebra maskpapaya") == "forbiddenzebra maskpapaya"
    fake.always(says("forbidden", "zebra"))
    heard = hear(gateway, {})
    assert (heard.text(), heard.finishes()) == ("forbiddenzebra", ["stop"])


def test_a_blocked_answer_is_in_the_log_with_its_rule(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("forbidden", "zebra"))
    heard = hear(gateway, {})
    line = gateway.wait_record(heard.headers["x-request-id"])
    assert (line["outcome"], line["plugin"], line["status"]) == ("content_filter", "sensitive_words", 200)
    assert line["rule"]
    assert "zebra" not in json.dumps(line)


def spoken(field: str, text: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what a message, a choice and an answer hold that says a text in a field that no engine of ours has."""
    message: dict[str, dict[str, Any]] = {
        "transcript": {"audio": {"id": "audio_1", "data": "UklGRg==", "transcript": text}},
        "thinking": {"thinking": text},
        "details": {"reasoning_details": [{"type": "reasoning.text", "format": "v1", "index": 0, "text": text}]},
        "summary": {"reasoning_details": [{"type": "reasoning.summary", "summary": text}]},
        "title": {"annotations": [{"type": "url_citation", "url_citation": {"url": "http://a.b/", "title": text}}]},
        "url": {"annotations": [{"type": "url_citation", "url_citation": {"url": text}}]},
        "custom": {"tool_calls": [{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "f", "input": text}}]},
    }
    choice: dict[str, dict[str, Any]] = {"text": {"text": text}, "other": {"x": {"content": text}}}
    return message.get(field, {}), choice.get(field, {}), {"prompt_text": text} if field == "top" else {}


FIELDS = [
    *((CHAT, field) for field in ("transcript", "thinking", "details", "summary", "title", "url", "custom", "text")),
    *((route, field) for route in (CHAT, COMPLETIONS) for field in ("other", "top")),
]


def piece(route: str, field: str, text: str, finish: str | None = None) -> dict[str, Any]:
    message, beside, top = spoken(field, text)
    said = {"delta": message} if route == CHAT else {"text": ""}
    return chunk(finish=finish) | {"choices": [{"index": 0, **said, "finish_reason": finish, **beside}], **top}


def entire(route: str, field: str, text: str) -> dict[str, Any]:
    message, beside, top = spoken(field, text)
    said = {"message": {"role": "assistant", "content": "ok", **message}} if route == CHAT else {"text": "ok"}
    choice = {"index": 0, **said, **beside, "logprobs": None, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "smollm2", "choices": [choice], **top}


@pytest.mark.parametrize(("route", "field"), FIELDS)
def test_a_field_that_no_engine_of_ours_has_is_filtered_in_a_stream(
    fake: FakeVLLM, gateway: Gateway, route: str, field: str
) -> None:
    body = {} if route == CHAT else {"prompt": "hi"}

    def heard(*texts: str) -> tuple[bytes, list[str]]:
        pieces = [piece(route, field, text) for text in texts]
        fake.script(streams(*pieces, piece(route, "", "", "stop")))
        told = hear(gateway, body, route)
        assert told.done
        return told.raw, told.finishes()

    clean = [piece(route, field, "a tree"), piece(route, field, " and more"), piece(route, "", "", "stop")]
    assert heard("a tree", " and more") == (b"".join(map(event, clean)) + DONE, ["stop"])
    raw, ends = heard("ok mask", "papa", "ya so")
    assert b"papa" not in raw
    assert b"**" in raw
    assert b"ya so" not in raw
    assert ends == ["stop"]
    raw, ends = heard("so forbid", "den", "zebra", " late")
    assert not any(trace in raw for trace in (b"forbid", b"zebra", b"late"))
    assert b"so " in raw
    assert ends == ["content_filter"]


@pytest.mark.parametrize(("route", "field"), FIELDS)
def test_a_field_that_no_engine_of_ours_has_is_filtered_in_a_whole_answer(
    fake: FakeVLLM, gateway: Gateway, route: str, field: str
) -> None:
    def told(text: str) -> bytes:
        fake.script(answers(entire(route, field, text)))
        return gateway.post(route, {"model": "smollm2", "messages": HI, "prompt": "hi"}).content

    assert told("a tree") == dumps(entire(route, field, "a tree"))
    assert json.loads(told("ok maskpapaya so")) == entire(route, field, "ok ********** so")
    blocked = json.loads(told("so forbiddenzebra later"))
    assert blocked["choices"][0].pop("finish_reason") == "content_filter"
    expected = entire(route, field, "so ")
    del expected["choices"][0]["finish_reason"]
    assert blocked == expected


def test_a_system_message_that_goes_on_with_the_system_text_is_checked_with_it(
    fake: FakeVLLM, gateway: Gateway
) -> None:
    """An engine that merges them puts nothing between."""
    messages = [*HI, {"role": "system", "content": "zebra"}]
    body = {"model": "smollm2", "max_tokens": 9, "system": "forbidden", "messages": messages}
    assert gateway.post("/v1/messages", body).status_code == 400
    assert [received for received in fake.everything() if received.method == "POST"] == []
