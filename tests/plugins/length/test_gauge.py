"""What is short at a glance is shorter than any tokenizer could make it long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sdk import Refused
from plugins.length.gauge import Gauge, Limits, at_most, check_ids
from tests.plugins.exchanges import chat


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_a_prompt_has_at_most_a_token_for_each_byte_and_what_a_template_adds(contents: list[str]) -> None:
    messages = [{"role": "user", "content": content} for content in contents]
    size = sum(len(content.encode()) for content in contents)
    most = at_most({}, messages)
    assert most is not None
    assert size + 256 <= most <= size + 256 + 16 * len(contents)
    assert at_most({}, contents[0]) == len(contents[0].encode()) + 16


@pytest.mark.parametrize("field", ["tools", "functions", "documents", "chat_template_kwargs", "mm_processor_kwargs"])
def test_what_a_template_writes_out_is_not_guessed(field: str) -> None:
    assert at_most({field: []}, [{"role": "user", "content": "x"}]) is None


@pytest.mark.parametrize(
    "message",
    [{"role": "user"}, {"role": "user", "content": [{"type": "image_url"}]}, {"role": "a", "content": "", "name": "n"}],
)
def test_nor_is_a_message_of_an_unusual_form(message: dict[str, Any]) -> None:
    assert at_most({}, [message]) is None


def test_token_ids_are_refused_by_their_number() -> None:
    check_ids([1, 2], Limits(2, None, None), "prompt")
    check_ids([1, 2], Limits(None, 1, None), "prompt")
    with pytest.raises(Refused, match="3 tokens, 1 more than the 2"):
        check_ids([1, 2, 3], Limits(2, None, None), "prompt")


async def test_without_a_limit_of_tokens_none_are_counted() -> None:
    gauge = Gauge(chat("x"), Limits(None, 4, None))
    assert await gauge.measure([{"role": "user", "content": "x" * 6}]) == 1.5
    assert str(gauge.refusal("messages")) == (
        "The prompt is too long: 6 characters, 2 more than the 4 that it may have."
    )
