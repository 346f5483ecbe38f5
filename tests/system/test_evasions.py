"""Spellings that get past filters and ordinary texts that filters stumble over, through a running gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.script import answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, WORDS, Gateway, configuration, hear, model, running_gateway

MASKED: list[Any] = [{"word": word, "action": "mask"} for word in ("ass", "赌博", "shit")]
OTHER: list[Any] = ["红木大门"]


@pytest.fixture(scope="module")
def evaded(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The fixture configuration, and lists that single cases name, each as a model's own."""
    chain = [
        WORDS | {"models": ["smollm2"]},
        {"plugin": "sensitive_words", "models": ["masked"], "options": {"words": MASKED}},
        {"plugin": "sensitive_words", "models": ["door"], "options": {"words": OTHER}},
    ]
    models = [model(name, _engine.url) for name in ("smollm2", "masked", "door")]
    with running_gateway(configuration(models, chain=chain), tmp_path_factory.mktemp("evaded")) as started:
        yield started


def blocked(fake: FakeVLLM, gateway: Gateway, text: str, name: str = "smollm2") -> bool:
    """Say whether the text is refused before any engine and cut off in an answer; the two have to agree."""
    fake.reset()
    answer = gateway.post(CHAT, {"model": name, "messages": [{"role": "user", "content": text}]})
    asked = len(fake.requests())
    fake.always(says(*text))
    finishes = hear(gateway, {"model": name}).finishes()
    if answer.status_code == 400:
        assert (answer.json()["error"]["code"], asked, finishes) == ("content_filter", 0, ["content_filter"])
        return True
    assert (answer.status_code, asked, finishes) == (200, 1, ["stop"]), answer.text
    return False


def passed(fake: FakeVLLM, gateway: Gateway, text: str, name: str = "smollm2") -> str:
    """Return what the engine reads of a message; what a caller reads of an answer has to be the same."""
    fake.reset()
    answer = gateway.post(CHAT, {"model": name, "messages": [{"role": "user", "content": text}]})
    assert (answer.status_code, "x-sluice-tags" in answer.headers) == (200, False), answer.text
    read = str(fake.requests()[-1].body["messages"][0]["content"])
    fake.always(says(*text))
    assert hear(gateway, {"model": name}).text() == read
    return read


INVISIBLE = [
    *("forbidden\u200bzebra", "f\u200dorbiddenzebra", "forbidden\ufeffzebra", "赌\u200c博"),
    *("forbidden\u2060zebra", "forbidden\u00adzebra", "赌\u180e博", "赌\u2063\u2064博", "大\U000e0020麻", "赌\u3164博"),
    *("forbidden\u202ezebra", "大\u115f麻", "赌\ufe0f博", "say f\u200b\u200c\u200dorbiddenzebra"),
]


@pytest.mark.parametrize("text", INVISIBLE, ids=ascii)
def test_what_cannot_be_seen_hides_no_word(fake: FakeVLLM, evaded: Gateway, text: str) -> None:
    """EV-01."""
    assert blocked(fake, evaded, text)


STYLED = [
    *("ＦｏｒＢｉｄｄｅｎＺｅｂｒａ", "fOrBiDdEnZeBrA", "ⓕⓞⓡⓑⓘⓓⓓⓔⓝⓩⓔⓑⓡⓐ", "𝐟𝐨𝐫𝐛𝐢𝐝𝐝𝐞𝐧𝐳𝐞𝐛𝐫𝐚"),
    *("𝕗𝕠𝕣𝕓𝕚𝕕𝕕𝕖𝕟𝕫𝕖𝕓𝕣𝕒", "𝖋𝖔𝖗𝖇𝖎𝖉𝖉𝖊𝖓𝖟𝖊𝖇𝖗𝖆", "FORBIDDENZEBRA", "🅕🅞🅡🅑🅘🅓🅓🅔🅝🅩🅔🅑🅡🅐", "ᶠᵒʳᵇⁱᵈᵈᵉⁿᶻᵉᵇʳᵃ"),
]


@pytest.mark.parametrize("text", STYLED)
def test_width_case_and_style_hide_no_word(fake: FakeVLLM, evaded: Gateway, text: str) -> None:
    """EV-03."""
    assert blocked(fake, evaded, text)


def test_a_styled_text_that_is_clean_is_forwarded_as_it_is(fake: FakeVLLM, evaded: Gateway) -> None:
    """EV-03: matching is done on a copy."""
    for text in ("ＦｏｒＢｉｄｄｅｎ ⓩⓔⓑⓡⓐ", "ﬁne ① ㎏ Å ſ", "ｈｅｌｌｏ，　ｗｏｒｌｄ"):
        assert passed(fake, evaded, text) == text


SEPARATED = [
    *("赌 博", "赌。。。博", "赌￥博", "赌*-博", "赌\n博", "赌　博"),
    *("大 麻", "赌...博", "赌|博", "赌……博", "赌\t博", "赌_博", "赌、博", "赌@#博", "大\r\n麻", "赌❤博", "赌\u00a0博"),
]


@pytest.mark.parametrize("text", SEPARATED, ids=ascii)
def test_separators_inside_a_chinese_word_hide_nothing(fake: FakeVLLM, evaded: Gateway, text: str) -> None:
    """EV-05."""
    assert blocked(fake, evaded, text)


FOREIGN = [
    *("線上賭博", "賭\u200b博", "fоrbiddenzebra", "forbiddenzеbrа", "fοrbiddenzebra"),
    *("賭 博", "forbіddenzebra", "forbiddenzebrа", "ｆоrbiddenzebra", "FΟRBIDDENZEBRA", "fᴏrbiddenzebra", "賭。。。博"),
]


@pytest.mark.parametrize("text", FOREIGN, ids=ascii)
def test_traditional_characters_and_letters_that_look_alike_hide_no_word(
    fake: FakeVLLM, evaded: Gateway, text: str
) -> None:
    """EV-06."""
    assert blocked(fake, evaded, text)


def thought(fake: FakeVLLM, gateway: Gateway, message: dict[str, Any]) -> dict[str, Any]:
    """Return the choice that a caller gets of a whole answer with this message."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    fake.script(answers({"object": "chat.completion", "model": "smollm2", "choices": [choice]}))
    return dict(gateway.post(CHAT, {"model": "smollm2", "messages": HI}).json()["choices"][0])


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_what_a_model_thinks_is_checked_as_what_it_says(fake: FakeVLLM, evaded: Gateway, field: str) -> None:
    """EV-11: the same verdict as in content, streamed and whole."""
    fake.always(says({field: "forbidden"}, {field: "zebra"}, {"content": "fine"}))
    heard = hear(evaded, {})
    assert (heard.text(kind=field), heard.finishes(), heard.done) == ("", ["content_filter"], True)
    assert b"forbidden" not in heard.raw
    answer = thought(fake, evaded, {field: "forbiddenzebra", "content": "fine"})
    assert (answer["finish_reason"], answer["message"][field] or "") == ("content_filter", "")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_and_answer_are_two_texts(fake: FakeVLLM, evaded: Gateway, field: str) -> None:
    """EV-11: no word is made of the end of the one and the beginning of the other."""
    fake.always(says({field: "it is forbidden"}, {"content": "zebra crossing"}))
    heard = hear(evaded, {})
    assert (heard.text(kind=field), heard.text(), heard.finishes()) == ("it is forbidden", "zebra crossing", ["stop"])
    said = thought(fake, evaded, {field: "it is forbidden", "content": "zebra crossing"})
    assert (said["message"][field], said["message"]["content"]) == ("it is forbidden", "zebra crossing")
    assert said["finish_reason"] == "stop"


MASKS = {
    "The assistant cut the grass in class.": "The assistant cut the grass in class.",
    "you ass!": "you ***!",
    "Ass, (ass) and 你ass的; passage, assess, bass": "***, (***) and 你***的; passage, assess, bass",
    "assx ass2 xass": "assx ass2 xass",
    "this hit song is hit": "this hit song is hit",
    "别跟我赌。博物馆几点开门？": "别跟我赌。博物馆几点开门？",
    "he is as simple; push it!": "he is as simple; push it!",
    "你还赌？博士都劝你了！赌！博文很好。": "你还赌？博士都劝你了！赌！博文很好。",
    "赌。。。博": "*****",
}


@pytest.mark.parametrize("text", MASKS)
def test_words_are_whole_words_and_neighbours_make_none(fake: FakeVLLM, evaded: Gateway, text: str) -> None:
    """FP-01, FP-05."""
    assert passed(fake, evaded, text, "masked") == MASKS[text]


ALLOWED = {
    "我有一个大麻烦": False,
    "有人种植大麻": True,
    "大麻烦和大麻": True,
    "大麻烦大麻烦": False,
    "三黄片": False,
    "麻烦很大。麻利点": False,
    "大家麻烦了": False,
}


@pytest.mark.parametrize("text", ALLOWED)
def test_an_allowed_word_covers_itself_and_nothing_else(fake: FakeVLLM, evaded: Gateway, text: str) -> None:
    """FP-02."""
    assert blocked(fake, evaded, text) is ALLOWED[text]


@pytest.mark.parametrize(
    "text",
    [
        *("Сегодня хорошая погода, спасибо за ответ", "Το σπίτι είναι μεγάλο"),
        *("Сова сосёт сок, а рак-сосед ест борщ", "Ο καλός μας φίλος ήρθε χθες", "Шіт — это не слово"),
    ],
)
def test_ordinary_text_of_other_scripts_reaches_the_engine_unchanged(
    fake: FakeVLLM, evaded: Gateway, text: str
) -> None:
    """FP-06."""
    for name in ("smollm2", "masked"):
        assert passed(fake, evaded, text, name) == text


def test_the_beginning_of_an_entry_is_no_entry(fake: FakeVLLM, evaded: Gateway) -> None:
    """FP-07."""
    verdicts = {"我的红木桌子坏了": False, "红木大门": True, "红木大": False, "木大门": False, "红木红木大门": True}
    assert {text: blocked(fake, evaded, text, "door") for text in verdicts} == verdicts
