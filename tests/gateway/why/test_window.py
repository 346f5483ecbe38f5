"""Two scrapes, and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.why.window import Span, read
from tests.gateway.why.exposition import text


def span(before: Mapping[str, float], after: Mapping[str, float]) -> Span:
    return Span(text(before), text(after))


def test_a_counter_s_growth_is_summed_over_the_series_with_the_labels() -> None:
    found = span({'a{x="1",y="1"}': 2}, {'a{x="1",y="1"}': 5, 'a{x="1",y="2"}': 4, 'a{x="2",y="1"}': 7})
    assert found.grew("a") == 14
    assert found.grew("a", x="1") == 7
    assert found.by("a", "x") == {"1": 7, "2": 7}
    assert found.grew("b") == 0


def test_a_counter_that_began_anew_has_what_it_has_counted_since() -> None:
    assert span({"a": 100}, {"a": 3}).grew("a") == 3


def test_a_histogram_s_mean_and_quantile_are_the_window_s_alone() -> None:
    before = {'h_bucket{le="1"}': 10, 'h_bucket{le="+Inf"}': 10, "h_sum": 5, "h_count": 10}
    after = {'h_bucket{le="1"}': 11, 'h_bucket{le="+Inf"}': 13, "h_sum": 20, "h_count": 13}
    found = span(before, after)
    assert found.mean("h") == pytest.approx(5)
    assert found.quantile("h", 0.3) == 1
    assert found.quantile("h", 0.9) == float("inf")
    assert found.quantile("none", 0.5) == found.mean("none") == 0


def test_gauges_are_read_at_the_end_between_and_throughout() -> None:
    found = span({"g": 2, 'up{engine="a"}': 1}, {"g": 4, 'up{engine="a"}': 0, 'up{engine="b"}': 1})
    assert (found.now("g"), found.between("g"), found.top("g")) == (4, 3, 4)
    assert found.always("g")
    assert not found.always("up", engine="a")
    assert found.zeros("up", "engine") == ["a"]


def test_what_is_not_a_number_counts_as_nothing() -> None:
    assert span({}, {"g": float("nan")}).now("g") == 0


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 10**6)))
def test_a_window_in_which_nothing_happened_has_grown_by_nothing(counts: dict[str, int]) -> None:
    found = span(dict(counts), dict(counts))
    assert all(found.grew(name) == 0 for name in counts)


def test_what_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError):
        read("<html>\n")
