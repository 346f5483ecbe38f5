"""/v1/rerank and /v1/score: every text that is weighed is found, and too many are refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocol.openai import Asked, Ceilings
from gateway.protocol.places import texts_in
from gateway.protocol.scoring import REQUEST, RERANKED, ask, clamp, has_token_ids

WORD = "forbiddenzebra"


def parts(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"query": WORD, "documents": ["a"]}, "query"),
        ({"query": "a", "documents": ["b", WORD]}, "documents[1]"),
        ({"documents": WORD}, "documents"),
        ({"query": parts("forbidden", "zebra")}, "query.content[0].text"),
        ({"documents": [parts(WORD)]}, "documents[0].content[0].text"),
        ({"documents": [{"text": WORD}]}, "documents[0].text"),
        ({"queries": [WORD], "items": ["a"]}, "queries[0]"),
        ({"items": [WORD]}, "items[0]"),
        ({"data_1": WORD}, "data_1"),
        ({"data_2": [WORD]}, "data_2[0]"),
        ({"text_1": WORD}, "text_1"),
        ({"text_2": ["a", WORD]}, "text_2[1]"),
        ({"instruction": WORD}, "instruction"),
        ({"chat_template_kwargs": {"instruction": WORD}}, "chat_template_kwargs.instruction"),
    ],
)
def test_every_text_of_a_request_is_found_and_can_be_edited(body: dict[str, Any], path: str) -> None:
    body = copy.deepcopy(body)
    hits = [text for text in texts_in(REQUEST, body) if text.text == WORD]
    assert [text.path for text in hits] == [path]
    hits[0].edit([(0, len(WORD), "*" * len(WORD))])
    assert "zebra" not in json.dumps(body)
    assert "*" in json.dumps(body)


def test_the_documents_that_come_back_are_texts() -> None:
    results = [
        {"index": 1, "document": {"text": "a", "multi_modal": [{"type": "text", "text": "b"}]}, "relevance_score": 1.0}
    ]
    body = {"id": "rerank-1", "model": "m", "results": [*results, {"index": 0}, "odd"]}
    assert {text.path: text.text for text in texts_in(RERANKED, body)} == {
        "results[0].document.text": "a",
        "results[0].document.multi_modal[0].text": "b",
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"chat_template": "x"}, "chat_template"),
        ({"documents": [{"content": [{"type": "image_url", "image_url": {"url": "http://a/"}}]}]},
         "documents[0].content[0].image_url.url"),
        ({"query": {"content": [{"type": "video_url", "video_url": {"url": "http://a/"}}]}},
         "query.content[0].video_url.url"),
    ],
)  # fmt: skip
def test_what_no_engine_is_to_be_asked_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ask({"model": "m", "query": "a", "documents": ["b"], **fields}, frozenset())
    assert refused.value.param == param


def test_what_may_be_asked_is() -> None:
    media = {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}
    assert ask({"model": "m", "text_1": "a", "text_2": [media]}, frozenset()) == Asked("m")


def test_more_texts_than_allowed_are_refused() -> None:
    ceilings = Ceilings(None, 8, 2)
    clamp({"documents": ["a", "b"]}, Asked("m"), ceilings)
    with pytest.raises(InvalidRequest) as refused:
        clamp({"documents": ["a", "b", "c"]}, Asked("m"), ceilings)
    assert refused.value.param == "documents"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"query": [1, 2]}, "query"),
        ({"documents": ["a", [1]]}, "documents[1]"),
        ({"documents": [{"content": [{"type": "image_embeds", "image_embeds": "A"}]}]}, "documents[0].content[0]"),
        ({"query": "a", "documents": ["b"], "top_n": 1}, None),
    ],
)
def test_a_text_in_numbers_is_named(body: dict[str, Any], path: str | None) -> None:
    assert has_token_ids(body) == path
