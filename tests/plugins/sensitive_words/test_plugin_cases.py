"""Cases that other filters were reported for: evasions that must hit and neighbours that must not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.sdk import Blocked, Channel, Refused
from plugins.sensitive_words import SensitiveWords
from tests.plugins.exchanges import chat, contents


def made(**options: Any) -> SensitiveWords:
    plugin = SensitiveWords(SensitiveWords.Options.model_validate(options))
    plugin.name = "sensitive_words"
    return plugin


POLICY = made(
    words=[
        *("forbiddenzebra", "赌博", "大麻"),
        *({"word": word, "action": "mask"} for word in ("maskpapaya", "黄片", "shit", "ass")),
    ],
    allow=["大麻烦", "三黄片"],
)


@pytest.mark.parametrize(
    "text",
    [
        *("forbidden\u200bzebra", "f\u200dorbiddenzebra", "forbidden\ufeffzebra", "赌\u200c博", "赌\u00ad\u2060博"),
        *("ＦｏｒＢｉｄｄｅｎＺｅｂｒａ", "fOrBiDdEnZeBrA", "ⓕⓞⓡⓑⓘⓓⓓⓔⓝⓩⓔⓑⓡⓐ", "𝐟𝐨𝐫𝐛𝐢𝐝𝐝𝐞𝐧𝐳𝐞𝐛𝐫𝐚"),
        *("有人种植大麻", "大麻烦和大麻", "赌\x00博", "赌\ufe0f博", "赌\U000e0061博"),
        *("赌 博", "赌。。。博", "赌￥博", "赌*-博", "赌\n博", "赌　博", "線上賭博", "賭\u200b博"),
        *("fоrbiddenzebra", "forbiddenzеbrа", "fοrbiddenzebra", "f.o.r.b.i.d.d.e.n.z.e.b.r.a", "for-bidden_zebra"),
    ],
)
def test_an_evasive_spelling_is_blocked_in_both_directions(text: str) -> None:
    with pytest.raises(Refused) as caught:
        POLICY.on_request(chat(text))
    assert caught.value.code == "content_filter"
    for pieces in ([text], list(text)):
        channel = POLICY.text_filter(chat("hi"), Channel(0, "content"))
        assert channel is not None
        with pytest.raises(Blocked):
            _ = [channel.feed(piece) for piece in pieces], channel.finish()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("İİİ maskpapaya ok", "İİİ ********** ok"),
        ("ﬃ ẞ MaskPapaya", "ﬃ ẞ **********"),
        ("＂maskpapaya＂", "＂**********＂"),
        ("you ass!", "you ***!"),
        ("三黄片和黄片", "三黄片和**"),
        ("😀 黄\u200b片 😀", "😀 *** 😀"),
        ("三 黄片", "三 **"),
        ("你说s-h-i-t，s h i t!", "你说*******，*******!"),
    ],
)
def test_exactly_the_word_is_masked_in_both_directions(text: str, masked: str) -> None:
    exchange = chat(text)
    POLICY.on_request(exchange)
    assert contents(exchange) == [masked]
    for pieces in ([text], list(text)):
        channel = POLICY.text_filter(chat("hi"), Channel(0, "content"))
        assert channel is not None
        assert "".join([channel.feed(piece)[0] for piece in pieces]) + channel.finish()[0] == masked


@pytest.mark.parametrize(
    "text",
    [
        *("The assistant cut the grass in class.", "我有一个大麻烦", "this hit song is hit", "see the forbid"),
        *("Сегодня хорошая погода, спасибо за ответ", "Το σπίτι είναι μεγάλο", "赌", "别跟我赌。博物馆几点开门？"),
        *("👨\u200d👩\u200d👧 🧑\u200d🚀 🏳\ufe0f\u200d🌈 ❤\ufe0f 👍🏽", "می\u200cروم کتاب\u200cها", "Việt ổn ที่นี่ क्षि"),
    ],
)
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    exchange = chat(text)
    POLICY.on_request(exchange)
    assert contents(exchange) == [text]
    for pieces in ([text], list(text)):
        channel = POLICY.text_filter(exchange, Channel(0, "content"))
        assert channel is not None
        shown = [channel.feed(piece) for piece in pieces] + [channel.finish()]
        assert "".join(piece for piece, _ in shown) == text
        assert not any(edits for _, edits in shown)
    assert not exchange.record.hits
