"""What the answers come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.compare.asking import Heard
from gateway.compare.targets import Target
from gateway.compare.verdict import Limits, Side, changed, faults, other_prompts, quantiles, summed, unsteady

TARGET = Target("a", "http://a:1", "m", price=(1.0, 2.0))


def heard(text: str = "x", *wrong: str, **facts: float) -> Heard:
    given = {"seconds": 1.0, "prompt_tokens": 5, "completion_tokens": 2, **facts}
    return Heard(text, wrong, **given)  # type: ignore[arg-type] # numbers of either kind


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_quantile_is_a_value_that_so_many_do_not_exceed(values: list[float]) -> None:
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        found = quantiles(values)[name]
        assert found in values
        assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_sums_count_what_is_right_and_leave_failures_out_of_times_and_tokens() -> None:
    failed = Heard("", ("503",), 9.0, failed=True)
    found = summed({"a": [heard(), heard("y", "no 'x'")], "b": [failed]}, TARGET)
    assert (found.answers, found.right, found.failed) == (3, 1, 1)
    assert found.seconds == {"p50": 1.0, "p90": 1.0, "p99": 1.0}
    assert (found.prompt_tokens, found.completion_tokens) == (10, 4)
    assert found.cost == pytest.approx(18e-6)


def test_an_answer_is_changed_when_none_of_the_other_s_is_the_same_and_white_space_is_no_change() -> None:
    one = {"a": [heard("x y")], "b": [heard("x"), heard("z")], "c": [heard("x")]}
    other = {"a": [heard("x  y\n")], "b": [heard("z")], "c": [heard("y")]}
    assert changed(one, other) == ["c"]
    assert unsteady(one) == ["b"]


def test_prompts_that_come_to_other_numbers_of_tokens_are_named() -> None:
    assert other_prompts({"a": [heard()], "b": [heard()]}, {"a": [heard()], "b": [heard(prompt_tokens=6)]}) == ["b"]


def test_each_threshold_says_what_it_was_and_what_it_became() -> None:
    one = summed({str(at): [heard()] for at in range(10)}, TARGET)
    worse = {str(at): [heard("y", *(["no"] if at == 0 else []), seconds=1.2, completion_tokens=9)] for at in range(10)}
    other = summed(worse, TARGET)
    strict = Limits(drop=0.05, slower=0.1, changed=0.5, dearer=0.1, same_prompts=True)
    found = list(faults(one, other, strict, 6, 1, 10))
    assert found[0] == "task success falls from 100% to 90%, by more than 5%"
    assert found[1] == "6 of 10 answers are others, more than 50%"
    assert found[2].startswith("1 of 10 prompts")
    assert [each.split(":")[0] for each in found[3:5]] == [
        "whole answer, p50",
        "whole answer, p90",
    ]  # 10 say nothing of p99
    assert found[5].startswith("the cost rises")
    assert list(faults(one, other, Limits(drop=0.1), 6, 1, 10)) == []
    assert list(faults(one, one, strict, 0, 0, 10)) == []


FAILED = Heard("", ("503",), 9.0, failed=True)


def side(right: int, wrong: int = 0, failed: int = 0) -> Side:
    return summed({"a": [heard()] * right + [heard("y", "no")] * wrong + [FAILED] * failed}, TARGET)


@pytest.mark.parametrize("limits", [Limits(), Limits(drop=None), Limits(drop=1.0, slower=9.0)])
def test_who_gives_no_answer_at_all_never_lets_the_gate_pass(limits: Limits) -> None:
    told = "no answer from {}: there is nothing to compare"
    assert list(faults(side(0, 0, 9), side(9), limits, 0, 0, 9)) == [told.format("A")]
    assert list(faults(side(0, 9), side(0, 0, 9), limits, 0, 0, 9)) == [told.format("B")]


def test_an_answer_that_does_not_come_is_held_against_b_and_never_excuses_it() -> None:
    assert list(faults(side(1, 0, 9), side(1, 9), Limits(), 0, 0, 10)) == [
        "task success falls from 100% to 10%, by more than 0%"
    ]
    assert list(faults(side(0, 10), side(0, 8, 2), Limits(drop=0.1), 0, 0, 10)) == [
        "no answer: rises from 0% to 20%, by more than 10%"
    ]
    assert list(faults(side(8, 0, 2), side(10), Limits(), 0, 0, 10)) == []


def test_who_says_nothing_is_not_as_fast() -> None:
    one, other = summed({"a": [heard(first_s=0.5)]}, TARGET), summed({"a": [heard()]}, TARGET)
    assert list(faults(one, other, Limits(slower=0.1), 0, 0, 1)) == ["first text: none from B"]


@given(st.tuples(*[st.integers(0, 5)] * 3), st.tuples(*[st.integers(0, 5)] * 3))
def test_whatever_passes_has_answers_and_is_right_as_often(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    if not list(faults(side(*one), side(*other), Limits(), 0, 0, 1)):
        assert sum(one[:2])
        assert sum(other[:2])
        assert other[0] * sum(one) >= one[0] * sum(other)


@pytest.mark.parametrize("limits", [Limits(same_prompts=True), Limits(dearer=0.1)])
def test_tokens_that_nobody_counted_pass_no_threshold_on_tokens(limits: Limits) -> None:
    uncounted = summed({"a": [heard(prompt_tokens=0, completion_tokens=0)]}, TARGET)
    for one, other in ((side(1), uncounted), (uncounted, uncounted)):
        assert list(faults(one, other, limits, 0, 0, 1)) == ["the tokens of prompts were not counted by both"]
