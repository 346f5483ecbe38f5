"""The order in which a delay is looked for, stage by stage, and what each stage says of itself.

From the gateway's door to the engine's sampling and back to the caller: what is cheapest to rule out comes first. A
stage says how many seconds of a mean request it has (of those that ended in the window; where requests wait, by
Little's law, what is waiting over how many got through), and names the narrowest cause that its numbers allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from gateway.why.stages import STAGES, Finding
from gateway.why.window import Window

__all__ = ["Answer", "Finding", "answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """``walk``: every stage in order. ``causes``: the faults among them, the weightiest first; empty: none."""

    requests: float
    seconds: float  # of a mean request
    walk: tuple[Finding, ...]
    causes: tuple[Finding, ...]


#: A stage below this part of a request, or this many seconds, is no cause.
SHARE, LEAST_S = 0.1, 0.02
#: Against an earlier window: what has grown by so much is a cause even where it is the engine's own pace.
GROWN = 1.5


def answer(window: Window, earlier: Window | None = None) -> Answer:
    """Work through the stages and name the causes; with an earlier window, what has grown since weighs more."""
    walk = tuple(_stages(window))
    before = {each.stage: each.seconds for each in _stages(earlier)} if _asked(earlier) else {}
    total = window.gateway.mean("sluice_request_seconds")
    causes = [(_weight(each, total, before), each) for each in walk]
    found = tuple(each for weight, each in sorted(causes, key=lambda pair: -pair[0]) if weight > 0)
    return Answer(window.gateway.grew("sluice_requests_total"), total, walk, found)


def _asked(window: Window | None) -> TypeGuard[Window]:
    return window is not None and window.gateway.grew("sluice_requests_total") > 0


def _stages(window: Window) -> Iterator[Finding]:
    for stage in STAGES:
        yield stage(window)


def _weight(found: Finding, total: float, before: dict[str, float]) -> float:
    if found.blocking:
        return 1e9 + found.seconds
    if found.seconds < max(LEAST_S, SHARE * total):
        return 0.0
    then = before.get(found.stage)
    if found.cause == "pace":
        return found.seconds - then if then is not None and found.seconds > GROWN * then else 0.0
    return found.seconds - (then or 0.0) if then is None or found.seconds > GROWN * then else found.seconds / GROWN


def told(found: Answer, before: Iterable[Finding] = ()) -> Iterator[str]:
    """Tell it to people, a line for each stage and then the causes."""
    then = {each.stage: each.seconds for each in before}
    yield f"{found.requests:g} requests ended, {found.seconds:.3g} s each"
    for each in found.walk:
        was = f", {then[each.stage]:.3g} s before" if each.stage in then else ""
        yield f"  {each.stage:<13} {each.seconds:9.3f} s{was}  {each.evidence}"
    for each in found.causes:
        yield f"cause: {each.cause} ({each.stage}): {each.evidence}"
        yield f"  next: {each.next}"
    if not found.causes:
        yield "cause: none: no stage stands out; it is the model's own pace, or there is no load"
