"""What the answers come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.compare.asking import Heard
from gateway.compare.targets import Target
from gateway.compare.verdict import Limits, changed, faults, other_prompts, quantiles, summed, unsteady

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
