"""What the end of a text means for what comes."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.skeleton import read
from plugins.sensitive_words.tail import Beginnings, Tail, context


def test_a_beginning_goes_on() -> None:
    its = Beginnings(["赌博机", "ab", "abc"])
    assert "赌博" in its
    assert "赌" in its
    assert "ab" in its
    assert "abc" not in its
    assert its.begins("abc")
    assert not its.begins("b")


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("我赌", "赌"),
        ("我赌，", "赌，"),
        ("我赌。", "赌。"),
        ("我赌\n", "赌\n"),
        ("赌-~", "赌-~"),
        ("this s", "s"),
        ("s h", "s h"),
    ],
)
def test_an_entry_may_have_begun(text: str, waits: str) -> None:
    tail = Tail(["赌博"], ["shit"], 3)
    copy = read(text)
    assert text[copy.places[tail.alive(copy)] :] == waits


@pytest.mark.parametrize("text", ["我", "赌\n\n", "赌。，", "赌-*-*", "this", "sh ", "ssh", "赌" + "-" * 66, "赌的"])
def test_what_ends_no_entry_waits_for_nothing(text: str) -> None:
    tail = Tail(["赌博"], ["shit"], 3)
    copy = read(text)
    assert tail.alive(copy) == len(copy.letters)


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        *(
            ("", ""),
            ("赌", ""),
            ("hello", "xx"),
            ("hello ", ""),
            ("x", "x"),
            ("say x ", "x "),
            ("a ", "a "),
            ("I'", "a'"),
        ),
        *(
            ("69", "11"),
            ("6", "1"),
            ("4.", "1."),
            ("44.", "11."),
            ("x\n\n", "x\n\n"),
            ("не выноси ", "ии "),
            ("сор ", ""),
        ),
        *(("ὀξύς, ", "ψψ "), ("x" + "-" * 70, "")),
        *(("4，", "1，"), ("444 ", "111 "), ("4444 ", "x1 "), ("a4,", "x1,"), ("4\t", "1\t"), ("44, ", "")),
        *(("и сор, а ", "ии а "), ("и 5", "ии 1"), ("ъ" + "." * 300, "ии "), ("и x", "x"), ("ъ① ", "ъ① ")),
        ("ъ " + "5" * 200 + "①", "ии 55555①"),
    ],
)
def test_little_of_what_stands_before_matters(text: str, stands: str) -> None:
    copy = read(text)
    assert context(copy, len(copy.letters)) == stands
    assert context(read(stands), len(read(stands).letters)) == stands, "it is read as itself"
