"""Tool arguments in pieces: values are filtered, the rest keeps its bytes, and no cut changes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.arguments import ArgumentsFilter

Edit = tuple[int, int, str]


class Passing:
    """Changes nothing."""

    blocked: Any = None

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        return text, ()

    def finish(self) -> tuple[str, Sequence[Edit]]:
        return "", ()


class Masking:
    """Masks "bad" and the digit 7, ends the answer at "hit"; holds back while a word may still come."""

    def __init__(self) -> None:
        self.blocked: Any = None
        self._held, self._at = "", 0

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        self._held += text
        return self._go(last=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        return self._go(last=True)

    def _go(self, *, last: bool) -> tuple[str, Sequence[Edit]]:
        text, shown, edits, at = self._held, "", [], 0
        while at < len(text) and self.blocked is None:
            rest = text[at:]
            if rest.startswith("hit"):
                self.blocked = "rule 1"
                break
            if not last and ("bad".startswith(rest) or "hit".startswith(rest)):
                break
            taken = 3 if rest.startswith("bad") else 1
            new = {"bad": '*"*', "7": "#"}.get(rest[:taken], rest[:taken])
            if new != rest[:taken]:
                edits.append((self._at + at, self._at + at + taken, new))
            shown, at = shown + new, at + taken
        self._held, self._at = text[at:], self._at + at
        return shown, edits


def masked(text: str) -> str:
    masking = Masking()
    return masking.feed(text)[0] + masking.finish()[0]


def run(make: Callable[[], Any], raw: str, cuts: Sequence[int] = ()) -> str:
    arguments = ArgumentsFilter(make)
    shown, at = "", 0
    for cut in [*sorted(cuts), len(raw)]:
        shown += arguments.feed(raw[at:cut])
        at = cut
    return shown + arguments.finish()


def cuts_of(raw: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(raw)), max_size=10) | st.just(list(range(len(raw))))


signs = st.sampled_from(
    [
        *'{}[]:,"\\ud83de00123bad7hit-+.eE \ntruefalsnN',
        "\\ud83d",
        "\\ude00",
        "\\u0062",
        '"a":',
        '{"',
        '"}',
        '\\"',
        "\\\\",
    ]
)
raws = st.text() | st.lists(signs, max_size=40).map("".join)
texts = st.text(st.sampled_from('bad7x"\\\n😀赌\x00') | st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=15)


@given(raws, st.data())
def test_what_no_filter_changes_leaves_byte_for_byte_however_it_is_cut(raw: str, data: st.DataObject) -> None:
    cuts = data.draw(cuts_of(raw))
    assert run(Passing, raw, cuts) == raw
    assert run(lambda: None, raw, cuts) == raw


@given(raws, st.data())
@example('"b\\u0061d', None)
def test_the_cut_makes_no_difference(raw: str, data: st.DataObject | None) -> None:
    cuts = data.draw(cuts_of(raw)) if data else range(len(raw))
    assert run(Masking, raw, cuts) == run(Masking, raw)


def each_masked(value: Any) -> Any:
    match value:
        case str():
            return masked(value)
        case dict():
            return {name: each_masked(member) for name, member in value.items()}
        case list():
            return [each_masked(member) for member in value]
        case bool() | None:
            return value
    text = json.dumps(value)
    return value if masked(text) == text else masked(text)


@given(
    values.filter(lambda value: "hit" not in json.dumps(value)), st.booleans(), st.sampled_from([None, 1]), st.data()
)
def test_every_value_is_masked_in_json_that_stays_valid(
    value: Any, ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert json.loads(run(Masking, raw, data.draw(cuts_of(raw)))) == each_masked(value)


def test_an_escaped_surrogate_pair_cut_in_two_comes_out_as_it_was() -> None:
    arguments = ArgumentsFilter(Passing)
    first, second = '{"m":"\\ud83d', '\\ude00"}'
    assert arguments.feed(first) + arguments.feed(second) + arguments.finish() == first + second
    assert json.loads(first + second)["m"] == "😀"


def test_a_filter_sees_decoded_values_and_each_from_its_beginning() -> None:
    seen: list[str] = []

    class Noting(Passing):
        def __init__(self) -> None:
            seen.append("")

        def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
            seen[-1] += text
            return text, ()

    run(Noting, '{"a":"\\u8d4c\\n\\ud83d\\ude00","b":[13800138000,-1.5e3,true,null,""]}', range(60))
    assert seen == ["a", "赌\n😀", "b", "13800138000", "-1.5e3", ""]


def test_a_masked_number_becomes_a_string() -> None:
    assert run(Masking, '{"tel": 1700, "n": 12}', [9]) == '{"tel": "1#00", "n": 12}'


def test_names_are_unchanged_by_a_mask() -> None:
    assert run(Masking, '{"bad":"bad"}') == '{"bad":"*\\"*"}'


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ('{"q":"a hit b","r":1}', '{"q":"a '),
        ('{"q":"a h\\u0069t"}', '{"q":"a '),
        ('{"hit":1}', '{"'),
        ("[1, hit]", "[1, "),
        ("so: hit", "so: "),
        ('{"a":"bad hit"}', '{"a":"*\\"* '),
    ],
)
def test_nothing_of_a_hit_and_nothing_behind_it_is_shown_however_it_is_cut(raw: str, shown: str) -> None:
    for cuts in ([], list(range(len(raw))), [len(raw) // 2]):
        assert run(Masking, raw, cuts) == shown
    arguments = ArgumentsFilter(Masking)
    arguments.feed(raw)
    arguments.finish()
    assert arguments.blocked == "rule 1"
    assert arguments.feed("more") + arguments.finish() == ""


@pytest.mark.parametrize(
    "raw",
    [
        "bad",
        "not json: bad",
        "{bad}",
        '{"a" "bad"}',
        '{"a":1}}bad',
        "[1,2}bad",
        "truebad",
        '{"a":x"bad"',
        "1" * 600 + "bad",
        '"never ended bad',
        "-bad",
        '{"a":"x"}\xa0bad',
    ],
)
def test_what_is_no_json_is_filtered_as_plain_text(raw: str) -> None:
    for cuts in ([], list(range(len(raw)))):
        assert run(Masking, raw, cuts) == raw.replace("bad", '*\\"*')


def test_what_is_held_back_is_given_out_at_the_end() -> None:
    arguments = ArgumentsFilter(Masking)
    assert arguments.feed('{"a":"xba') == '{"a":"x'
    assert arguments.finish() == "ba"


def test_a_filter_that_miscounts_is_believed_in_what_it_shows() -> None:
    class Miscounting(Passing):
        def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
            return "*", ((5, 90, "**"),)

    assert run(Miscounting, '["secret"]') == '["*"]'


def test_two_calls_written_one_behind_the_other_are_both_filtered() -> None:
    assert run(Masking, '{"a":"b\\u0061d"}\n{"a":"b\\u0061d"}') == '{"a":"*\\"*"}\n{"a":"*\\"*"}'
