"""One's own patterns run in linear time; a bad one is refused at load, with its place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from gateway.registry import build_chain
from gateway.settings import ChainEntry, ConfigurationError
from plugins.pii import Pii
from plugins.pii.own import OwnForm
from plugins.pii.scan import scan


def made(*patterns: str, **options: Any) -> Pii:
    named = [{"name": f"own_{number}", "pattern": pattern} for number, pattern in enumerate(patterns)]
    return Pii(Pii.Options.model_validate({"kinds": [], "patterns": named, **options}))


def values(plugin: Pii, text: str) -> list[str]:
    return [text[found.start : found.end] for found in scan(plugin._scanner, text)]


def refused(pattern: str) -> str:
    entry = ChainEntry(plugin="pii", options={"patterns": [{"name": "mine", "pattern": pattern}]})
    with pytest.raises(ConfigurationError) as caught:
        build_chain([entry], Path())
    (line,) = caught.value.lines
    place, _, said = line.partition("patterns[0].pattern: ")
    assert place == "configuration: chain[0].options."
    return said


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "missing ), unterminated subpattern at position 0"),
        ("ab[c", "unterminated character set at position 2"),
        (r"x(?<!\d)", "looks around itself or back at a group, which cannot be done in linear time (at position 1)"),
        (r"(a)\1", "looks around itself or back at a group, which cannot be done in linear time (at position 3)"),
        ("a++", "looks around itself or back at a group, which cannot be done in linear time"),
        ("a*", "matches the empty text; let it ask for a character at least"),
        (r"\pL", r"bad escape \p at position 0"),
        ("[[:alpha:]]", "possible nested set at position 1"),
        ("((((a+)+)+)+)+", "nests repetitions without an end; give them one, as in {1,64}"),
        ("(" * 2000 + "a" + ")" * 2000, "nests too many groups"),
        (".{900}.{900}", "matches up to 1800 characters; a stream can wait for 1000"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_key_path(pattern: str, said: str) -> None:
    assert refused(pattern) == said


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a|a)*b", "(.*a){1,20}c"])
def test_a_dangerous_pattern_has_its_verdict_at_once(pattern: str) -> None:
    """CF-03: compiling says nothing; only matching would explode."""
    plugin = made(pattern)
    began = time.process_time()
    list(scan(plugin._scanner, "a" * 40 + "b"))
    list(scan(plugin._scanner, "a" * 100_000 + "b"))
    assert time.process_time() - began < 1


def test_a_pattern_without_an_end_says_what_it_holds_back(log: LogCapture) -> None:
    made(r"EMP-\d{6}", r"\w+@corp")
    (entry,) = log.entries
    assert entry["said"] == (
        "pii:own_1: the pattern has no longest match, so + and * reach 256 characters at most; "
        "up to 261 characters of an answer are held back while one may be under way"
    )


def test_a_pattern_is_found_as_it_is_written() -> None:
    assert values(made(r"(?i)emp-\d{6}"), "EMP-123456 emp-１２３４５６ xemp-12345") == [
        "EMP-123456",
        "emp-１２３４５６",
    ]
    assert values(made(r"\bT\d+\b"), "T12 aT3 T4b 工T5。") == ["T12", "T5"]
    assert values(made("[一-鿿]{2}先生", "a{2,}|b"), "张三先生 aaab") == ["张三先生", "aaa", "b"]
    assert values(made("^id:.{3}$"), "id:abc") == ["id:abc"]
    assert values(made("^id:.{3}$"), "an id:abc") == values(made("^id:.{3}$"), "id:abcd") == []


def test_the_first_group_is_the_value() -> None:
    (found,) = scan(made("key=(\\w{4,8});", keep_head=1, keep_tail=1)._scanner, "key=secret;")
    assert found.masks == [(5, 9)]


@pytest.mark.parametrize(
    ("pattern", "longest", "limit"),
    [("a{2,7}b?", 8, None), ("a+", 256, 256), ("(a|bb)+c", 513, 256), ("(a+b)+", 992, 31)],
)
def test_how_long_a_match_may_be_is_known(pattern: str, longest: int, limit: int | None) -> None:
    form = OwnForm(pattern)
    assert form.longest <= longest
    assert (form.limit is None) == (limit is None)
