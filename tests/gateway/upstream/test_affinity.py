"""Requests that belong together meet at one engine, and not more of them than it has room for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.affinity import BOUND, LONGEST, SHORTEST, SPARE, digest, home, prefix_of
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.want import Want

POOL = Pool(Origin.parse("http://engine:8000"))
LONG = "You answer questions about the tax law of a small country. " * 20


def engines(count: int, weight: float = 1) -> list[Engine]:
    return [Engine(f"e{number}", POOL, weight=weight) for number in range(count)]


def homes(among: list[Engine], count: int = 3000) -> dict[int, str]:
    found = {each: home(among, digest(b"%d" % each), 1) for each in range(count)}
    return {each: engine.name for each, engine in found.items() if engine is not None}


def chat(*texts: str, system: str | None = None) -> dict[str, Any]:
    lead = [] if system is None else [{"role": "system", "content": system}]
    return {"messages": lead + [{"role": "user", "content": text} for text in texts]}


def test_when_an_engine_goes_only_its_own_digests_move_and_when_one_comes_it_takes_only_its_share() -> None:
    five, six = engines(5), engines(6)
    before, after = homes(five), homes(six)
    assert all(after[each] in {before[each], "e5"} for each in before)
    moved = sum(after[each] != before[each] for each in before)
    assert abs(moved / len(before) - 1 / 6) < 0.03


def test_digests_are_spread_by_weight() -> None:
    among = engines(2)
    among[1].weight = 3
    assert abs(Counter(homes(among).values())["e1"] / 3000 - 0.75) < 0.04


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=120), st.integers(2, 6))
@settings(max_examples=60)
def test_no_home_has_much_more_than_its_part(requests: list[tuple[int, int]], count: int) -> None:
    among = engines(count)
    for number, work in requests:
        engine = home(among, digest(b"%d" % number), work)
        assert engine is not None
        mean = (sum(each.work for each in among) + work) / count
        assert engine.work <= BOUND * mean + SPARE * work
        engine.begin(Want(work))


def test_a_prompt_that_everybody_shares_fills_one_engine_after_the_other_in_its_own_order() -> None:
    among = engines(4)
    order = []
    for _ in range(40):
        engine = home(among, 5, 1)
        assert engine is not None
        engine.begin(Want(1))
        order.append(engine.name)
    assert len(set(order[:SPARE])) == 1
    assert max(Counter(order).values()) <= BOUND * 10 + SPARE + 1
    assert len(set(order)) >= 3


def test_digests_are_the_same_in_every_process() -> None:
    code = "from gateway.upstream.affinity import digest; print(digest(b'x'))"
    seeds = ("1", "2")
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in seeds
    ]
    assert {int(run.stdout) for run in runs} == {digest(b"x")}
    assert digest(b"") != 0


def test_a_long_system_prompt_decides_alone() -> None:
    assert prefix_of(chat("a", system=LONG)) == prefix_of(chat("b", "c", system=LONG)) != 0
    assert prefix_of(chat("a", system=LONG)) != prefix_of(chat("a", system="Other. " + LONG))
    parts = [{"type": "text", "text": LONG[:500]}, {"type": "text", "text": LONG[500:]}]
    assert prefix_of({"messages": [{"role": "developer", "content": parts}]}) == prefix_of(chat("x", system=LONG))


def test_a_short_one_is_told_apart_by_the_first_message_and_one_short_message_is_not_worth_it() -> None:
    assert prefix_of(chat("hi")) == prefix_of(chat("hi", system="Be kind.")) == 0
    assert prefix_of(chat(LONG, system="Be kind.")) not in {0, prefix_of(chat("Else. " + LONG, system="Be kind."))}
    talk = chat("hi", "hello", "how are you")
    assert prefix_of(talk) == prefix_of(chat("hi", "hello", "how are you", "fine", "thanks")) != 0


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": LONG + "a"},
        {"prompt": [LONG, "x"]},
        {"instructions": LONG, "input": "a"},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": LONG}]}]},
        {"system": LONG, "messages": [{"role": "user", "content": "a"}]},
        {"system": [{"type": "text", "text": LONG}], "messages": []},
    ],
)
def test_every_route_has_a_beginning(body: dict[str, Any]) -> None:
    assert (
        prefix_of(body) == digest(LONG.encode())
        or len(LONG) + 1 > LONGEST
        or prefix_of(body) == digest((LONG + "a").encode())
    )


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner),
        max_leaves=8,
    )
)
@settings(max_examples=100)
def test_whatever_stands_there_is_read_without_a_fault(value: Any) -> None:
    for field in ("messages", "prompt", "input", "system"):
        assert prefix_of({field: value}) >= 0


def test_only_so_much_is_looked_at() -> None:
    assert prefix_of(chat("a", system="x" * LONGEST)) == prefix_of(chat("a", system="x" * LONGEST + "y" * SHORTEST))
