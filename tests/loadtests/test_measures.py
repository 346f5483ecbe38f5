"""What a load test measures: the stream as its caller sees it, objectives, percentiles, the knee."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.measures import Objective, Step, Stream, knee, percentile, recommended, since


def line(**event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n"


def said(text: str, finish: str | None = None) -> bytes:
    return line(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


def test_a_stream_is_timed_by_its_text_not_by_its_first_event() -> None:
    stream = Stream(10.0)
    stream.line(line(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]), 10.1)
    stream.line(b": keep-alive\n", 10.2)
    stream.line(said("a"), 10.5)
    stream.line(said("b"), 10.75)
    stream.line(said("c", "stop"), 11.0)
    stream.line(line(choices=[], usage={"completion_tokens": 3}), 11.1)
    stream.line(b"data: [DONE]\n", 11.2)
    assert stream.ttft == pytest.approx(0.5)
    assert stream.gaps == pytest.approx([0.25, 0.25])
    assert stream.pace == pytest.approx(4.0)
    assert stream.tokens == 3
    assert stream.fault() is None


def test_an_answer_that_breaks_off_is_named_by_its_kind() -> None:
    cut = Stream(0.0)
    cut.line(said("a"), 1.0)
    assert cut.fault() == "cut"
    told = Stream(0.0)
    told.line(line(error={"code": "engine_error"}), 1.0)
    assert told.fault() == "event:engine_error"
    endless = Stream(0.0)
    endless.line(said("a"), 1.0)
    endless.line(b"data: [DONE]\n", 1.0)
    assert endless.fault() == "no_finish_reason"


@pytest.mark.parametrize(
    ("text", "kind", "share", "limit", "name"),
    [
        ("ttft_p95=300ms", "ttft", 0.95, 300, None),
        ("ttft_p99=1.5s", "ttft", 0.99, 1500, None),
        ("chat.itl_p50=80", "itl", 0.5, 80, "chat"),
        ("pace_p5=20", "pace", 0.05, 20, None),
        ("errors=1%", "errors", None, 0.01, None),
        ("goodput=95%", "goodput", None, 0.95, None),
    ],
)
def test_objectives_are_read_as_people_write_them(
    text: str, kind: str, share: float | None, limit: float, name: str | None
) -> None:
    objective = Objective.parse(text)
    assert (objective.kind, objective.share, objective.name) == (kind, share, name)
    assert objective.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    "text", ["", "ttft=300ms", "ttft_p95", "speed_p95=3", "errors_p95=1%", "goodput=9ms", "itl_p9=3%"]
)
def test_what_is_no_objective_is_said_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="ttft_p95=300ms"):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("text", "measured", "held"),
    [
        ("ttft_p95=300ms", 300.0, True),
        ("ttft_p95=300ms", 301.0, False),
        ("pace_p5=20", 19.0, False),
        ("pace_p5=20", 20.0, True),
        ("goodput=95%", 0.96, True),
        ("errors=1%", 0.02, False),
        ("errors=1%", None, False),
    ],
)
def test_an_objective_holds_or_not(text: str, measured: float | None, held: bool) -> None:
    assert Objective.parse(text).verdict(measured)[0] is held


@given(st.lists(st.integers(0, 50), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_pass(values: list[int], share: float) -> None:
    found = percentile(Counter(map(float, values)), share)
    assert found is not None
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values) or found == min(values)


def test_nothing_has_no_percentile() -> None:
    assert percentile({}, 0.95) is None


@given(st.dictionaries(st.floats(0, 9), st.integers(1, 5)), st.dictionaries(st.floats(0, 9), st.integers(1, 5)))
def test_what_came_since_is_the_difference(before: dict[float, int], more: dict[float, int]) -> None:
    assert since(Counter(before) + Counter(more), before) == Counter(more)


def test_the_knee_is_the_last_step_within_the_target() -> None:
    steps = [Step(1, 50, 10, 0), Step(2, 60, 19, 0), Step(4, 90, 36, 0)]
    assert knee(steps, 200) is None
    assert knee([*steps, Step(8, 230, 60, 0)], 200) == steps[-1]
    assert knee([*steps, Step(8, 150, 60, 0.2)], 200) == steps[-1]
    assert knee([Step(1, 500, 10, 0)], 200) == Step(1, 500, 10, 0)


def test_a_throughput_that_grows_no_more_is_past_the_knee() -> None:
    steps = [Step(4, 90, 36, 0), Step(6, 95, 36.5, 0), Step(9, 99, 37, 0)]
    assert knee(steps[:2], 200) is None
    assert knee(steps, 200) == steps[0]


def test_a_fifth_is_left_free() -> None:
    assert recommended(Step(10, 90, 36, 0)) == 8
    assert recommended(Step(1, 90, 36, 0)) == 1
