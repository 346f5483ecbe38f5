"""A blocked caller reads it in a language it asked for; no text depends on what was found but for its tag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wording import GENERIC, SHIPPED, Wording

CONFIGURED = Wording(
    blocked={"en": "Blocked.", "fr": "Bloqué."},
    tags={"politics": {"zh": "涉政内容不予处理", "en": "No politics."}},
    languages={"team-zh": "zh", "team-fr": "fr-ca"},
)


def test_without_configuration_it_is_generic_in_english_and_in_chinese_for_who_asks() -> None:
    assert Wording().say(GENERIC) == Wording().say(GENERIC, tag="politics", key="team") == (GENERIC, False)
    assert Wording().say(GENERIC, accept="zh-CN,zh;q=0.9,en;q=0.8") == ("请求被内容过滤拦截", False)
    assert Wording(default="zh").say(GENERIC) == (SHIPPED["zh"], False)


@pytest.mark.parametrize(
    ("accept", "key", "tag", "said"),
    [
        (None, None, None, "Blocked."),
        (None, None, "politics", "No politics."),
        ("zh", None, "politics", "涉政内容不予处理"),
        ("zh", None, "violence", "请求被内容过滤拦截"),
        ("fr-FR", None, "politics", "Bloqué."),
        (None, "team-zh", "politics", "涉政内容不予处理"),
        (None, "team-fr", None, "Bloqué."),
        ("fr", "team-zh", None, "Bloqué."),
        ("de, *;q=0.5", "team-zh", None, "请求被内容过滤拦截"),
        ("en;q=0.2, fr;q=0.7", None, None, "Bloqué."),
        ("fr;q=0, en", None, None, "Blocked."),
        ("en;q=0.2, fr;Q=0.7", None, None, "Bloqué."),
        ("en;q=0.2, fr; Q=0.7", None, None, "Bloqué."),
        ("de, fr;q=inf, en;q=0.1", None, None, "Blocked."),
        ("FR-ca", None, None, "Bloqué."),
    ],
)
def test_the_callers_language_comes_first_then_the_keys_then_the_default(
    accept: str | None, key: str | None, tag: str | None, said: str
) -> None:
    assert CONFIGURED.say(GENERIC, tag=tag, accept=accept, key=key) == (said, said not in SHIPPED.values())


def test_what_a_plugin_says_itself_stays_until_something_is_configured() -> None:
    own = "The request contains control tokens of a chat template."
    assert Wording().say(own, accept="zh") == (own, False)
    assert CONFIGURED.say(own) == ("Blocked.", True)


@given(st.text(), st.text())
def test_no_header_is_a_fault(accept: str, tag: str) -> None:
    assert Wording().say(GENERIC, accept=accept, tag=tag)[0] in SHIPPED.values()


def test_a_long_header_is_not_read_to_its_end() -> None:
    assert Wording().say(GENERIC, accept="xx," * 1000 + "zh")[0] == GENERIC
