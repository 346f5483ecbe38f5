"""The memory is bounded by size and time, and forgets in the right order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.cache.memory import OVERHEAD, Memory

LIMIT, TTL = 3 * (OVERHEAD + 100), 10
STEPS = st.lists(st.tuples(st.sampled_from("pg"), st.sampled_from(b"abcdefg"), st.integers(0, 600), st.integers(0, 4)))


@given(STEPS)
def test_it_never_holds_more_than_its_limit_nor_gives_what_is_old_or_was_never_kept(
    steps: list[tuple[str, int, int, int]],
) -> None:
    memory, now = Memory(LIMIT, TTL), 0
    last: dict[bytes, tuple[bytes, int]] = {}
    for step, letter, length, seconds in steps:
        now += seconds
        name = bytes([letter])
        if step == "p":
            value = b"%d" % len(last) + b"x" * length
            memory.put(name, value, now)
            last[name] = value, now
        elif (kept := memory.get(name, now)) is not None:
            assert (kept.value, kept.since) == last[name]
            assert now - kept.since < TTL
        assert memory.size <= LIMIT
        assert memory.size >= OVERHEAD * len(memory)


@given(st.lists(st.sampled_from(b"abcde"), min_size=1))
def test_what_was_not_used_longest_goes_first(used: list[int]) -> None:
    memory = Memory(3 * (OVERHEAD + 1), TTL)
    for letter in used:
        if memory.get(bytes([letter]), 0) is None:
            memory.put(bytes([letter]), b"x", 0)
    latest = list(dict.fromkeys(reversed(used)))
    assert {letter for letter in b"abcde" if memory.get(bytes([letter]), 0)} == set(latest[:3])


def test_what_is_too_large_alone_is_not_kept_and_drops_nothing() -> None:
    memory = Memory(LIMIT, TTL)
    memory.put(b"a", b"x", 0)
    memory.put(b"b", b"x" * LIMIT, 0)
    assert memory.get(b"b", 0) is None
    assert memory.get(b"a", 0) is not None
    memory.clear()
    assert (len(memory), memory.size) == (0, 0)
