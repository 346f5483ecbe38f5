"""What a request holds beside text."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocol.surface import POSTED
from gateway.protocol.unread import forbidden, media_urls

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("route", "body", "path"),
    [
        ("/v1/completions", {"prompt": [1, 2]}, "prompt"),
        ("/v1/completions", {"prompt": ["a", [1, 2]]}, "prompt[1]"),
        ("/v1/completions", {"prompt": [[1.0]]}, "prompt[0]"),
        ("/v1/completions", {"prompt": ["a", 1]}, "prompt"),
        ("/v1/completions", {"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ("/v1/completions", {"prompt": "a", "prompt_embeds": ["AAAA"]}, "prompt_embeds"),
        ("/v1/completions", {"prompt": {"prompt_token_ids": [1]}}, "prompt.prompt_token_ids"),
        ("/v1/completions", {"prompt": ["a", {"prompt_token_ids": [1]}]}, "prompt[1].prompt_token_ids"),
        ("/v1/embeddings", {"input": [1]}, "input"),
        ("/v1/embeddings", {"input": [[1], [2]]}, "input[0]"),
        (CHAT, {"messages": [{"content": ["a", {"type": "prompt_embeds", "data": "AAAA"}]}]}, "messages[0].content[1]"),
        (CHAT, {"messages": [{"content": [{"image_embeds": "AAAA"}]}]}, "messages[0].content[0]"),
        ("/detokenize", {"tokens": [1, 2]}, None),
        ("/v1/completions", {"prompt": "a", "prompt_embeds": None}, None),
        ("/v1/completions", {"prompt": ["a"]}, None),
        ("/v1/completions", {"prompt": []}, None),
        (CHAT, {"messages": [{"content": [{"type": "text", "text": "prompt_embeds"}]}], "stop_token_ids": [1]}, None),
    ],
)
def test_a_prompt_without_text_is_named(route: str, body: dict[str, Any], path: str | None) -> None:
    assert POSTED[route].has_token_ids(body) == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template": ""}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template": None, "chat_template_kwargs": {"enable_thinking": False}}, None),
        ({"chat_template_kwargs": "nonsense"}, None),
    ],
)
def test_a_template_of_the_callers_own_is_named(body: dict[str, Any], path: str | None) -> None:
    assert forbidden(body) == path


URL = "http://169.254.169.254/x"


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, ".image_url.url"),
        ({"image_url": URL}, ".image_url"),
        ({"type": "input_image", "image_url": URL}, ".image_url"),
        ({"type": "audio_url", "audio_url": {"url": URL}}, ".audio_url.url"),
        ({"type": "video_url", "video_url": {"url": URL}}, ".video_url.url"),
        ({"image_url": [{"url": URL}]}, ".image_url[0].url"),
        ({"image_url": [URL]}, ".image_url[0]"),
        ({"type": "file", "file": {"file_url": URL}}, ".file.file_url"),
    ],
)
def test_every_url_that_an_engine_would_fetch_is_found(part: dict[str, Any], place: str) -> None:
    for field in ("messages", "input"):
        body = {field: [{"content": "a"}, {"role": "tool", "content": ["b", part]}]}
        assert media_urls(body) == [(f"{field}[1].content[1]{place}", URL)]
        assert media_urls({field: [body[field]]}) == [(f"{field}[0][1].content[1]{place}", URL)]
    assert media_urls({"messages": [{"content": part}]}) == [(f"messages[0].content[0]{place}", URL)]


def test_a_url_in_a_text_is_no_media() -> None:
    assert media_urls({"messages": [{"content": URL}, {"content": [{"type": "text", "text": URL}]}]}) == []
