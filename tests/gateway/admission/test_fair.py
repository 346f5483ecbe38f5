"""Turns by weight: what each key gets, whatever it sends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.fair import FairQueue, Flow


@dataclass(eq=False)
class Job:
    key: str
    tokens: int
    flow: Flow | None = None


def add(queue: FairQueue, key: str, tokens: int, weight: float = 1.0) -> Job:
    job = Job(key, tokens)
    job.flow = queue.add(job, key, weight)
    return job


def served(queue: FairQueue) -> Job:
    job = queue.first()
    assert isinstance(job, Job)
    queue.serve()
    return job


@given(
    st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(1, 9), st.integers(1, 500)), min_size=2),
    st.randoms(use_true_random=False),
)
def test_keys_that_always_wait_get_tokens_by_weight(keys: dict[str, tuple[int, int]], random: object) -> None:
    """The bound of the paper: two backlogged keys differ by at most one largest request of each, by weight."""
    queue = FairQueue()
    for key, (weight, largest) in keys.items():
        for _ in range(60):
            add(queue, key, random.randint(1, largest), weight)  # type: ignore[attr-defined] # a Random
    got: Counter[str] = Counter()
    left = Counter(dict.fromkeys(keys, 60))
    while min(left.values()):
        job = served(queue)
        got[job.key] += job.tokens
        left[job.key] -= 1
        for one, (weight, largest) in keys.items():
            for other, (weight2, largest2) in keys.items():
                bound = largest / weight + largest2 / weight2
                assert abs(got[one] / weight - got[other] / weight2) <= bound + 1e-6


def test_who_was_idle_has_saved_nothing_up() -> None:
    queue = FairQueue()
    for _ in range(100):
        add(queue, "busy", 10)
    add(queue, "late", 10)
    for _ in range(50):
        served(queue)
    for _ in range(100):
        add(queue, "late", 10)
    assert Counter(served(queue).key for _ in range(20)) == {"busy": 10, "late": 10}


def test_one_key_s_requests_go_in_their_order() -> None:
    queue = FairQueue()
    jobs = [add(queue, "a", tokens) for tokens in (500, 1, 30)]
    assert [served(queue) for _ in jobs] == jobs


def test_who_leaves_costs_its_key_nothing() -> None:
    queue = FairQueue()
    gone = [add(queue, "a", 1000) for _ in range(3)]
    for key in "ab":
        for _ in range(20):
            add(queue, key, 10)
    for job in gone:
        assert job.flow is not None
        queue.leave(job, job.flow)
    assert Counter(served(queue).key for _ in range(10)) == {"a": 5, "b": 5}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.sampled_from(["add", "serve", "leave"]))))
def test_nothing_is_lost_or_served_twice(steps: list[tuple[str, int, str]]) -> None:
    queue, waiting = FairQueue(), list[Job]()
    for key, tokens, step in steps:
        if step == "add":
            waiting.append(add(queue, key, tokens))
        elif waiting and step == "serve":
            waiting.remove(served(queue))
        elif waiting:
            job = waiting.pop(tokens % len(waiting))
            assert job.flow is not None
            queue.leave(job, job.flow)
        assert len(queue) == len(waiting)
    assert sorted(id(served(queue)) for _ in range(len(queue))) == sorted(map(id, waiting))
    assert queue.first() is None
