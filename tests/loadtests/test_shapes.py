"""The shapes of a load over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.shapes import SHAPES, ramp, soak, spike, stairs


@given(st.sampled_from(sorted(SHAPES)), st.floats(0, 100), st.integers(1, 500))
def test_every_shape_has_somebody_and_never_more_than_was_said(name: str, at: float, users: int) -> None:
    assert 1 <= SHAPES[name](at, 100, users) <= users


def test_a_ramp_ends_with_all_of_them() -> None:
    assert [ramp(at, 100, 50) for at in (0, 50, 100)] == [1, 25, 50]


def test_a_spike_is_in_the_middle() -> None:
    assert [spike(at, 100, 50) for at in (0, 39, 40, 59, 60)] == [5, 5, 50, 50, 5]


def test_a_soak_comes_back_to_the_same_level() -> None:
    levels = [soak(at, 600, 90) for at in range(0, 600, 100)]
    assert levels == [90] * 6
    assert soak(50, 600, 90) == 30


@given(st.integers(0, 15))
def test_each_stair_is_higher_than_the_last(step: int) -> None:
    assert stairs(step + 1) > stairs(step)


@pytest.mark.parametrize(("step", "users"), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6), (5, 9)])
def test_the_stairs(step: int, users: int) -> None:
    assert stairs(step) == users
