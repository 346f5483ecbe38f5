"""What the answers come to: success, changes, how long, what it cost; and whether that is good enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from gateway.compare.asking import Heard
from gateway.compare.targets import Target

Answers = Mapping[str, Sequence[Heard]]
#: A quantile is told of any number, and held to a threshold only where that many answers lie beyond it.
BEYOND = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One target's sums. Seconds by quantile; ``cost`` None: it has no price."""

    answers: int
    right: int
    failed: int
    seconds: dict[str, float]
    first: dict[str, float]
    prompt_tokens: int
    completion_tokens: int
    cost: float | None

    @property
    def success(self) -> float:
        """The part of answers that is right."""
        return self.right / self.answers if self.answers else 0.0

    @property
    def lost(self) -> float:
        """The part of answers that did not come."""
        return self.failed / self.answers if self.answers else 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much worse the second may be; shares, None: no matter."""

    drop: float | None = 0.0
    slower: float | None = None
    changed: float | None = None
    dearer: float | None = None
    same_prompts: bool = False


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the smallest values that so many do not exceed (nearest rank); nothing of nothing."""
    ranked = sorted(values)
    return {name: ranked[max(0, ceil(share * len(ranked)) - 1)] for name, share in QUANTILES.items()} if ranked else {}


def summed(answers: Answers, target: Target) -> Side:
    """Sum up what one target said."""
    every = [heard for said in answers.values() for heard in said]
    well = [heard for heard in every if not heard.failed]
    prompt, completion = sum(each.prompt_tokens for each in well), sum(each.completion_tokens for each in well)
    return Side(
        answers=len(every),
        right=sum(not each.wrong for each in every),
        failed=len(every) - len(well),
        seconds=quantiles([each.seconds for each in well]),
        first=quantiles([each.first_s for each in well if each.first_s is not None]),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=target.cost(prompt, completion),
    )


def changed(one: Answers, other: Answers) -> list[str]:
    """Name the cases in which no answer of the one is among the other's, but for white space."""
    return [name for name in one if not _texts(one[name]) & _texts(other.get(name, ()))]


def unsteady(answers: Answers) -> list[str]:
    """Name the cases that the same target answered in several ways."""
    return [name for name, said in answers.items() if len(_texts(said)) > 1]


def other_prompts(one: Answers, other: Answers) -> list[str]:
    """Name the cases whose prompts came to other numbers of tokens: another tokenizer, template or system prompt."""
    return [name for name in one if not _prompts(one[name]) & _prompts(other.get(name, ()))]


def _texts(said: Sequence[Heard]) -> set[str]:
    return {" ".join(each.text.split()) for each in said if not each.failed}


def _prompts(said: Sequence[Heard]) -> set[int]:
    return {each.prompt_tokens for each in said if not each.failed} or {-1}


def faults(one: Side, other: Side, limits: Limits, changes: int, prompts: int, cases: int) -> Iterator[str]:
    """Say in which ways the second is not good enough. Who gives no answer can neither pass nor be held to."""
    if silent := [letter for letter, side in (("A", one), ("B", other)) if side.lost == 1]:
        yield f"no answer from {' or '.join(silent)}: there is nothing to compare"
        return
    if limits.drop is not None:
        yield from _falls(one, other, limits.drop)
    if limits.changed is not None and changes > limits.changed * cases + 1e-9:
        yield f"{changes} of {cases} answers are others, more than {limits.changed:.0%}"
    if limits.same_prompts and prompts:
        yield f"{prompts} of {cases} prompts have other numbers of tokens: another tokenizer, template or system prompt"
    if limits.slower is not None:
        yield from _slower(one, other, limits.slower)
    if (limits.same_prompts or limits.dearer is not None) and not (one.prompt_tokens and other.prompt_tokens):
        yield "the tokens of prompts were not counted by both"
    costs = one.cost, other.cost
    if limits.dearer is not None and costs[0] is not None and (costs[1] or 0.0) > costs[0] * (1 + limits.dearer):
        yield f"the cost rises from {costs[0]:.4g} to {costs[1]:.4g}, by more than {limits.dearer:.0%}"


def _falls(one: Side, other: Side, limit: float) -> Iterator[str]:
    """Hold task success to that of the answers which A did give: what kept A from answering is no excuse for B."""
    before = one.success / (1 - one.lost)
    if before - other.success > limit + 1e-9:
        yield f"task success falls from {before:.0%} to {other.success:.0%}, by more than {limit:.0%}"
    if other.lost - one.lost > limit + 1e-9:
        yield f"no answer: rises from {one.lost:.0%} to {other.lost:.0%}, by more than {limit:.0%}"


def _slower(one: Side, other: Side, limit: float) -> Iterator[str]:
    for what, before, after in (("whole answer", one.seconds, other.seconds), ("first text", one.first, other.first)):
        if before and not after:
            yield f"{what}: none from B"
        for name, share in QUANTILES.items():
            enough = (1 - share) * min(one.answers - one.failed, other.answers - other.failed) >= BEYOND - 1e-9
            if enough and name in before and name in after and after[name] > before[name] * (1 + limit):
                yield f"{what}, {name}: {after[name]:.3g} s instead of {before[name]:.3g} s, over {limit:.0%} more"
