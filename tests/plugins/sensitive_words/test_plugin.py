"""What a found word means for a request and for an answer, through the plugin as the chain uses it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import LogCapture

from gateway.sdk import Blocked, Channel, Exchange, Hit, Refused
from plugins.sensitive_words import SensitiveWords
from plugins.sensitive_words import plugin as plugin_module
from plugins.sensitive_words.matcher import Matcher
from tests.plugins.exchanges import chat, contents

Make = Callable[..., SensitiveWords]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**options: Any) -> SensitiveWords:
        plugin = SensitiveWords(SensitiveWords.Options.model_validate(options, context={"base": tmp_path}))
        plugin.name = "sensitive_words"
        return plugin

    return made


def refused(plugin: SensitiveWords, exchange: Exchange) -> Refused:
    with pytest.raises(Refused) as caught:
        plugin.on_request(exchange)
    return caught.value


def answered(plugin: SensitiveWords, exchange: Exchange, *pieces: str, kind: str = "content") -> str:
    channel = plugin.text_filter(exchange, Channel(0, kind, 0))
    assert channel is not None
    return "".join([channel.feed(piece)[0] for piece in pieces]) + channel.finish()[0]


def test_a_blocked_request_names_the_place_and_never_the_word(make: Make) -> None:
    exchange = chat("hello", "say forbiddenzebra!")
    failure = refused(make(words=[{"word": "forbiddenzebra", "tag": "animals"}]), exchange)
    assert failure.status == 400
    assert failure.body()["error"] == {
        "message": "The request was blocked by the content filter.",
        "type": "invalid_request_error",
        "param": "messages[1].content",
        "code": "content_filter",
    }
    assert (failure.rule, failure.tag) == ("words:1", "animals")
    assert exchange.record.hits == [
        Hit("sensitive_words", "words:1", "block", "request", "animals", "messages[1].content", 4, 18)
    ]


def test_a_masked_word_is_masked_in_the_request_and_the_rest_is_as_it_was(make: Make) -> None:
    exchange = chat("蓝色房子好看", "İİİ maskpapaya ok", "ＯＫ")
    plugin = make(words=[{"word": word, "action": "mask"} for word in ("蓝色", "蓝色房子", "maskpapaya")])
    assert plugin.on_request(exchange) is None
    assert contents(exchange) == ["****好看", "İİİ ********** ok", "ＯＫ"]
    assert [(hit.rule, hit.start, hit.end) for hit in exchange.record.hits] == [
        ("words:1", 0, 2),
        ("words:2", 0, 4),
        ("words:3", 4, 14),
    ]


def test_the_mask_character_is_an_option(make: Make) -> None:
    exchange = chat("赌博")
    make(words=[{"word": "赌博", "action": "mask"}], mask_char="＊").on_request(exchange)
    assert contents(exchange) == ["＊＊"]


def test_a_soft_entry_tags_and_changes_nothing(make: Make) -> None:
    plugin = make(words=[{"word": "软猕猴", "action": "tag", "tag": "软性"}, {"word": "softkiwi", "action": "tag"}])
    exchange = chat("i like 软猕猴")
    plugin.on_request(exchange)
    assert contents(exchange) == ["i like 软猕猴"]
    assert answered(plugin, exchange, "i ", "like ", "soft", "kiwi") == "i like softkiwi"
    assert exchange.record.tags == ["软性", "sensitive_words"]


def test_an_answer_is_blocked_with_the_text_before_the_hit(make: Make) -> None:
    exchange = chat("hi")
    channel = make(words=["赌博"]).text_filter(exchange, Channel(1, "arguments", 2))
    assert channel is not None
    assert channel.feed("去赌") == ("去", ())
    with pytest.raises(Blocked) as caught:
        channel.feed("博吧")
    assert (caught.value.rule, caught.value.shown) == ("words:1", "")
    (hit,) = exchange.record.hits
    assert (hit.direction, hit.where, hit.start, hit.end) == ("answer", "choices[1].tool_calls[2].arguments", 1, 3)


def test_choices_and_kinds_are_texts_of_their_own(make: Make) -> None:
    plugin, exchange = make(words=["赌博"]), chat("hi")
    first, second = (plugin.text_filter(exchange, Channel(0, kind)) for kind in ("content", "reasoning"))
    assert first is not None
    assert second is not None
    assert first.feed("赌") == ("", ())
    assert second.feed("博") == ("博", ())
    assert first.finish() == ("赌", ())


def test_directions_can_be_switched_off(make: Make) -> None:
    asking, answering = (make(words=["赌博"], directions=[one]) for one in ("request", "answer"))
    assert list(answering.idle) == ["on_request"]
    assert list(asking.idle) == ["text_filter", "is_clean"]
    assert (asking.blocks_requests, answering.blocks_requests) == (True, False)


def test_without_a_blocking_entry_token_ids_may_come_in(make: Make) -> None:
    assert not make(words=[{"word": "赌博", "action": "mask"}]).blocks_requests


def test_no_entries_cost_nothing(make: Make) -> None:
    assert list(make().idle) == ["on_request", "text_filter", "is_clean"]


def test_lists_are_read_beside_the_configuration_and_watched(make: Make, tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "block.txt").write_text("赌博\n黄片\tmask\n", "utf-8")
    (tmp_path / "soft.yaml").write_text("- 软猕猴\n", "utf-8")
    plugin = make(lists=["words/block.txt", {"path": "soft.yaml", "action": "tag", "tag": "soft"}])
    assert plugin.files == [tmp_path / "words" / "block.txt", tmp_path / "soft.yaml"]
    exchange = chat("软猕猴和黄片")
    plugin.on_request(exchange)
    assert contents(exchange) == ["软猕猴和**"]
    assert exchange.record.tags == ["soft"]
    assert [hit.rule for hit in exchange.record.hits] == ["soft.yaml:1", "block.txt:2"]
    assert refused(plugin, chat("赌博")).rule == "block.txt:1"


def test_two_files_of_one_name_are_told_apart(make: Make, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "block.txt").write_text("赌博\n", "utf-8")
    assert refused(make(lists=["a/block.txt", "b/block.txt"]), chat("赌博")).rule == "a/block.txt:1"


def test_a_list_may_be_for_some_keys_only(make: Make, tmp_path: Path) -> None:
    (tmp_path / "tenant.txt").write_text("赌博\n", "utf-8")
    plugin = make(lists=[{"path": "tenant.txt", "keys": ["team-a"]}])
    assert plugin.on_request(chat("赌博", key="team-b")) is None
    assert answered(plugin, chat("hi", key="team-b"), "赌", "博") == "赌博"
    assert refused(plugin, chat("赌博", key="team-a")).rule == "tenant.txt:1"
    with pytest.raises(Blocked):
        answered(plugin, chat("hi", key="team-a"), "赌", "博")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mask_char": "**"}, "mask_char"),
        ({"mask_char": ""}, "mask_char"),
        ({"max_skip": -1}, "max_skip"),
        ({"list": []}, "list"),
        ({"directions": ["both"]}, "directions"),
        ({"lists": [{"path": "a.txt", "encoding": "utf-9"}]}, "not an encoding"),
        ({"words": [{"word": "a", "action": "blok"}]}, "action"),
    ],
)
def test_wrong_options_are_refused(make: Make, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        make(**options)


def test_a_wrong_list_is_refused_naming_file_and_line(make: Make, tmp_path: Path) -> None:
    (tmp_path / "block.txt").write_text("赌博\n黄片\thide\n", "utf-8")
    with pytest.raises(ValueError, match=r"/block\.txt: line 2: the action must be one of"):
        make(lists=["block.txt"])


def test_blank_inline_words_are_skipped_with_a_warning(make: Make, log: LogCapture) -> None:
    plugin = make(words=["", "赌博", "\u200b"], allow=[" "])
    assert plugin.on_request(chat("hello")) is None
    assert refused(plugin, chat("赌博")).rule == "words:2"
    assert [entry["said"].partition(":")[0] for entry in log.entries] == ["words", "allow"]


async def test_a_long_request_is_scanned_in_a_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    scan = Matcher.scan_long

    def watched(*args: Any) -> Any:
        threads.add(threading.current_thread())
        yield from scan(*args)

    monkeypatch.setattr(Matcher, "scan_long", watched)
    plugin = make(words=["赌博", {"word": "黄片", "action": "mask"}])
    exchange = chat("黄片", "机器学习" * 20_000 + "黄片")
    waiting = plugin.on_request(exchange)
    assert waiting is not None
    await waiting
    assert contents(exchange) == ["**", "机器学习" * 20_000 + "**"]
    assert threads
    assert threading.main_thread() not in threads
    waiting = plugin.on_request(chat("赌", "x" * 100_000 + "赌博"))
    assert waiting is not None
    with pytest.raises(Refused, match="content filter"):
        await waiting


async def test_the_event_loop_goes_on_while_a_long_request_is_scanned(make: Make) -> None:
    plugin = make(words=["赌博机"])
    loop, longest = asyncio.get_running_loop(), 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)

    watching = asyncio.create_task(watch())
    waiting = plugin.on_request(chat("赌é" * 300_000))
    assert waiting is not None
    await waiting
    watching.cancel()
    assert longest < 0.2


def test_what_is_recorded_of_one_exchange_is_bounded(make: Make) -> None:
    exchange = chat("的" * 5000)
    make(words=[{"word": "的", "action": "mask"}]).on_request(exchange)
    assert contents(exchange) == ["*" * 5000]
    assert len(exchange.record.hits) == plugin_module._HITS


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("赌 、博", {"max_skip": 3}),
        ("s\u043dit sh\u0456t", {"confusables": True}),
        ("shiiit", {"repeats": True}),
        ("du bo", {"pinyin": True, "max_skip": 3}),
    ],
)
def test_each_way_of_reading_can_be_switched(make: Make, text: str, options: dict[str, Any]) -> None:
    off = {"max_skip": 0, "confusables": False, "repeats": False, "pinyin": False}
    words = ["赌博", "shit"]
    assert make(words=words, **off).on_request(chat(text)) is None
    assert refused(make(words=words, **(off | options)), chat(text)).code == "content_filter"
