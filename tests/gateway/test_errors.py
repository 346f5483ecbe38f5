"""Every failure has one status, one code and one shape; the tree drawn in the module is the tree that there is."""

from __future__ import annotations

import re

import pytest

from gateway import errors
from gateway.errors import EngineTimeout, Failure, NoEngineAvailable, RateLimited, Refused


def drawn() -> dict[str, tuple[int, str]]:
    rows = re.findall(r"── (\w+) +(\d+) (\w+)", errors.__doc__ or "")
    return {name: (int(status), code) for name, status, code in rows}


def all_failures() -> list[type[Failure]]:
    found: list[type[Failure]] = []
    waiting = [Failure]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    return found


def test_the_tree_in_the_module_s_docstring_is_the_tree() -> None:
    there = {kind.__name__: (kind.status, kind.code) for kind in all_failures() if kind is not Refused}
    assert drawn() == there


@pytest.mark.parametrize("kind", all_failures(), ids=lambda kind: kind.__name__)
def test_every_failure_has_openai_s_shape(kind: type[Failure]) -> None:
    body = kind("It went wrong.", param="model").body()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] == "It went wrong."
    assert body["error"]["param"] == "model"
    assert body["error"]["type"].endswith("_error")


@pytest.mark.parametrize("kind", [RateLimited, NoEngineAvailable])
@pytest.mark.parametrize(("given", "told"), [(None, b"1"), (0, b"1"), (7, b"7")])
def test_429_and_503_always_say_when_to_try_again(kind: type[Failure], given: int | None, told: bytes) -> None:
    assert kind("Later.", retry_after=given).headers() == [(b"retry-after", told)]


def test_a_time_out_is_not_to_be_tried_again() -> None:
    assert EngineTimeout("Too slow.").headers() == [(b"x-should-retry", b"false")]


def test_a_refusal_brings_its_own_status_and_words_and_keeps_rule_and_tag_from_the_caller() -> None:
    refusal = Refused("No.", status=422, code="own", error_type="OwnError", param="a.b", rule="list:3", tag="soft")
    assert refusal.status == 422
    assert refusal.body() == {"error": {"message": "No.", "type": "OwnError", "param": "a.b", "code": "own"}}
    assert refusal.headers() == []
