"""Several filters of one channel behave as one, and tell their edits in the original text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channel import ChannelFilter, ShadowFilter, SkippableFilter, Stage
from gateway.errors import FilterUnavailable
from gateway.record import Hit, Record, Run
from gateway.sdk import Blocked, Edit, Reading


class Replace:
    """Replaces a word by another text, holding back while the word may still come; "!" blocks from there on."""

    def __init__(self, word: str, new: str) -> None:
        self.word, self.new = word, new
        self.pending, self.at = "", 0

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        self.pending += text
        return self._take(end=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        return self._take(end=True)

    def _take(self, *, end: bool) -> tuple[str, Sequence[Edit]]:
        shown, edits = "", []
        while self.pending:
            if self.pending.startswith(self.word):
                edits.append(Edit(self.at, self.at + len(self.word), self.new))
                shown += self.new
                self.pending = self.pending[len(self.word) :]
                self.at += len(self.word)
            elif self.pending[0] == "!":
                raise Blocked("rule", shown=shown, edits=edits)
            elif self.word.startswith(self.pending) and not end:
                break
            else:
                shown += self.pending[0]
                self.pending = self.pending[1:]
                self.at += 1
        return shown, edits


def channel(*filters: Replace, record: Record | None = None) -> ChannelFilter:
    stages = [Stage(f"f{index}", each, Run()) for index, each in enumerate(filters)]
    return ChannelFilter(lambda: stages, record or Record())


def run(filtered: ChannelFilter, pieces: Sequence[str]) -> tuple[str, list[Edit]]:
    shown = ""
    edits: list[Edit] = []
    for piece in pieces:
        text, made = filtered.feed(piece)
        shown += text
        edits += made
        assert filtered.told <= filtered.fed
    text, made = filtered.finish()
    return shown + text, edits + list(made)


def applied(text: str, edits: Sequence[Edit]) -> str:
    out, at = "", 0
    for start, end, new in edits:
        assert at <= start <= end
        out += text[at:start] + new
        at = end
    return out + text[at:]


words = st.text("ab", min_size=1, max_size=3)
news = st.text("abc*", max_size=4)


@given(st.text("abc", max_size=24), words, news, words, news, st.data())
def test_edits_told_in_the_original_give_what_was_shown_under_any_split(
    text: str, one: str, new_one: str, two: str, new_two: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, edits = run(channel(Replace(one, new_one), Replace(two, new_two)), pieces)
    assert shown == run(channel(Replace(one, new_one), Replace(two, new_two)), [text])[0]
    assert shown == text.replace(one, new_one).replace(two, new_two)
    assert applied(text, edits) == shown


@given(st.text("abc", max_size=12), st.text("abc!", max_size=8), st.data())
def test_what_a_block_leaves_is_the_text_before_it_as_the_others_show_it(
    before: str, after: str, data: st.DataObject
) -> None:
    text = before + "!" + after
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    filtered = channel(Replace("ab", "x"), Replace("zz", ""))
    shown, edits = run(filtered, pieces)
    assert filtered.blocked is not None
    assert filtered.blocker == "f0"
    assert shown == before.replace("ab", "x")
    assert applied(text[: filtered.told], edits) == shown


def test_clean_text_goes_through_as_the_same_object() -> None:
    text = "nothing to see"
    shown, edits = channel(Replace("ab", "x"), Replace("q", "")).feed(text)
    assert shown == text
    assert not edits


def test_filters_are_made_only_for_text_that_cannot_be_told_clean() -> None:
    made: list[str] = []

    def make() -> Iterator[Stage]:
        made.append("made")
        yield Stage("f0", Replace("ab", "x"), Run())

    def is_clean(text: Reading) -> bool:
        if "?" in text.text:
            raise RuntimeError(text.text)
        return "ab" not in text.text

    def whole(text: str) -> tuple[str, Sequence[Edit], int]:
        filtered = ChannelFilter(make, Record(), [(None, "f0", is_clean, True)])
        shown, edits = filtered.whole(text)
        return shown, edits, filtered.told

    assert whole("acb") == ("acb", (), 3)
    assert not made
    assert whole("cab") == ("cx", [Edit(1, 3, "x")], 3)
    assert whole("ab?") == ("x?", [Edit(0, 2, "x")], 3), "who cannot tell is asked for the filter"
    assert made == ["made", "made"]


class Broken(Replace):
    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        if "b" in text:
            raise RuntimeError(text)
        return super().feed(text)


def test_a_filter_that_fails_closed_ends_the_exchange_and_says_nothing_of_the_text() -> None:
    record = Record()
    filtered = channel(Broken("aab", ""), record=record)
    assert filtered.feed("caa")[0] == "c"
    with pytest.raises(FilterUnavailable) as failure:
        filtered.feed("bc")
    assert "bc" not in failure.value.message
    assert record.runs["f0"].outcome == "failed"


def test_a_filter_that_fails_open_loses_nothing_that_it_held() -> None:
    record = Record()
    skippable = SkippableFilter("f0", Broken("aax", ""), record)
    filtered = ChannelFilter(lambda: [Stage("f0", skippable, record.runs.setdefault("f0", Run()))], record)
    shown, _ = run(filtered, ["caa", "bc", "d"])
    assert shown == "caabcd"
    assert record.runs["f0"].outcome == "failed"


def test_a_shadow_filter_records_and_changes_nothing() -> None:
    record, source = Record(), Record()

    class Hits(Replace):
        def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
            source.hits.append(Hit("f0", "rule", "block", "answer"))
            raise Blocked("rule")

    filtered = ChannelFilter(lambda: [Stage("f0", ShadowFilter("f0", Hits("a", ""), source, record), Run())], record)
    assert run(filtered, ["ab", "c"])[0] == "abc"
    assert [hit.shadow for hit in record.hits] == [True]


class Capitals:
    """Replaces one letter by another, and knows where it would do nothing."""

    def __init__(self, letter: str, by: str, log: list[str]) -> None:
        self.letter, self.by, self.log, self.at = letter, by, log, 0

    def is_clean(self, text: str) -> bool:
        return self.letter not in text

    def feed(self, text: str) -> tuple[str, list[Edit]]:
        self.log.append(self.letter)
        edits = [Edit(self.at + i, self.at + i + 1, self.by) for i, each in enumerate(text) if each == self.letter]
        self.at += len(text)
        return text.replace(self.letter, self.by), edits

    def finish(self) -> tuple[str, list[Edit]]:
        return "", []


def capitals(log: list[str]) -> ChannelFilter:
    pairs = [("a", "b"), ("b", "c"), ("x", "y")]
    return ChannelFilter(lambda: [Stage(one, Capitals(one, two, log), Run()) for one, two in pairs], Record())


@given(st.text("abxz", max_size=8))
def test_a_whole_text_that_passes_by_clean_filters_comes_out_as_through_them(text: str) -> None:
    whole, pieces = capitals([]), capitals([])
    shown, edits = whole.whole(text)
    fed, more = pieces.feed(text)
    tail, last = pieces.finish()
    assert (shown, [*edits]) == (fed + tail, [*more, *last])
    assert shown == text.replace("a", "b").replace("b", "c").replace("x", "y")
    assert (whole.fed, whole.told) == (len(text), len(text))


@pytest.mark.parametrize(("text", "asked"), [("zz", []), ("bz", ["b", "x"]), ("az", ["a", "b", "x"]), ("xz", ["x"])])
def test_only_the_first_filters_are_left_out(text: str, asked: list[str]) -> None:
    log: list[str] = []
    capitals(log).whole(text)
    assert log == asked, "what one has changed, those behind it have to see"
