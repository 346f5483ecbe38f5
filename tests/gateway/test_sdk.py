"""The surface that plugins are written against: nothing in it changes unnoticed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway import sdk
from gateway.record import Hit, Record
from gateway.sdk import Answer, ConfigPath, Exchange, Plugin

#: A change here is a change of what every plugin relies on: it goes into the changelog.
SURFACE = [
    *("Answer", "Blocked", "Channel", "ConfigPath", "ContentFiltered", "Edit", "Exchange", "Failure", "Hit"),
    *(
        "KeyName",
        "Listing",
        "ModelName",
        "Options",
        "Plugin",
        "Reading",
        "Record",
        "Refused",
        "Reply",
        "Run",
        "Shape",
        "Text",
        "TextFilter",
    ),
    "WIDE_MARKS",
]
HOOKS = ["start", "stop", "on_request", "text_filter", "on_answer", "on_failure", "on_complete"]


class Host:
    def __init__(self) -> None:
        self.asked: list[tuple[Exchange, Any]] = []

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((exchange, request))
        return {"choices": []}

    async def embed(self, exchange: Exchange, model: str, texts: Any) -> list[list[float]]:
        self.asked.append((exchange, texts))
        return [[1.0] for _ in texts]

    async def count_tokens(self, exchange: Exchange, text: Any, tools: Any = None) -> int:
        self.asked.append((exchange, text))
        return 7

    def window(self, exchange: Exchange) -> int:
        return 2048


def exchange(request: dict[str, Any] | None = None, host: Host | None = None) -> Exchange:
    record = Record(request_id="r-1", route="/v1/chat/completions", key="team", model="m")
    return Exchange(record, request if request is not None else {"messages": []}, {}, host or Host())


def test_the_surface_is_what_it_was() -> None:
    assert sorted(sdk.__all__) == SURFACE
    assert [name for name, _ in inspect.getmembers(Plugin, inspect.isfunction) if not name.startswith("_")] == sorted(
        [*HOOKS, "is_clean"]
    )


@pytest.mark.parametrize("name", SURFACE)
def test_everything_in_it_is_documented(name: str) -> None:
    assert name == "ConfigPath" or inspect.getdoc(getattr(sdk, name))


def test_every_hook_is_optional_and_does_nothing() -> None:
    plugin, there = Plugin(Plugin.Options()), exchange()
    assert plugin.start() is None
    assert plugin.on_request(there) is None
    assert plugin.text_filter(there, sdk.Channel(0, "content")) is None
    assert plugin.on_answer(there, Answer("/v1/chat/completions", {})) is None
    assert plugin.on_failure(there, sdk.Failure("x")) is None
    assert plugin.on_complete(there) is None
    assert plugin.stop() is None


def test_options_refuse_unknown_names_and_never_change() -> None:
    class Options(sdk.Options):
        size: int = 3

    with pytest.raises(ValidationError, match="siez"):
        Options.model_validate({"siez": 4})
    with pytest.raises(ValidationError, match="frozen"):
        Options().size = 4  # type: ignore[misc]


def test_a_relative_path_is_taken_from_the_configuration_s_folder() -> None:
    class Options(sdk.Options):
        path: ConfigPath

    context = {"base": "/etc/sluice"}
    assert Options.model_validate({"path": "words/a.txt"}, context=context).path == Path("/etc/sluice/words/a.txt")
    assert Options.model_validate({"path": "/else/a.txt"}, context=context).path == Path("/else/a.txt")


def test_an_exchange_finds_the_texts_of_its_request_and_edits_go_into_it() -> None:
    there = exchange({"messages": [{"role": "user", "content": "one two"}]})
    (text,) = there.texts()
    assert (text.text, text.role, text.path) == ("one two", "user", "messages[0].content")
    text.edit([(4, 7, "***")])
    assert there.request["messages"][0]["content"] == "one ***"


def test_texts_are_looked_for_anew_when_the_request_may_have_changed() -> None:
    there = exchange({"messages": [{"role": "user", "content": "one"}]})
    assert [text.text for text in there.texts()] == ["one"]
    there.request["messages"].append({"role": "user", "content": "two"})
    assert [text.text for text in there.texts()] == ["one", "two"]
    there.request = {"messages": [{"role": "user", "content": "three"}]}
    assert [text.text for text in there.texts()] == ["three"]


def test_a_reading_is_of_the_texts_as_they_are_now() -> None:
    there = exchange({"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two\0"}]})
    first = there.reading()
    assert (first.text, first.ordinary) == ("one\ntwo\0", False)
    assert there.reading() is first
    there.texts()[1].edit([(3, 4, "")])
    assert (there.reading().text, there.reading().ordinary) == ("one\ntwo", True)
    there.request["messages"].pop()
    assert there.reading().text == "one"


def test_a_tag_is_told_once_and_a_hit_is_recorded() -> None:
    there = exchange()
    there.tag("soft")
    there.tag("soft")
    there.hit(Hit("words", "list:1", "tag", "request"))
    assert there.record.tags == ["soft"]
    assert [hit.rule for hit in there.record.hits] == ["list:1"]


async def test_an_exchange_asks_its_host() -> None:
    host = Host()
    there = exchange(host=host)
    assert await there.ask({"messages": []}) == {"choices": []}
    assert await there.count_tokens("text") == 7
    assert host.asked == [(there, {"messages": []}), (there, "text")]
    assert there.window == 2048


def test_an_answer_finds_its_texts() -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}}]}
    assert [text.text for text in Answer("/v1/chat/completions", body).texts()] == ["hello"]
