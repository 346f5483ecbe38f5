"""Asking both, over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.compare.asking import Side, run
from gateway.compare.cases import Case, read
from gateway.compare.targets import Target
from tests.fakes.script import CLOSE, RESET, SILENCE, Script, answers, paced, says, streams, writes
from tests.fakes.vllm import FakeVLLM


@pytest.fixture
def engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "cases.yaml"
    path.write_text("cases: [{name: a, user: hi, checks: [{contains: hello}, {judge: It is kind.}]}]")
    return read(path)[0]


MakeSide = Callable[..., Side]


@pytest.fixture
async def side() -> AsyncIterator[MakeSide]:
    """Make a side; its connections are closed when the test ends."""
    sides: list[Side] = []

    def make(engine: FakeVLLM, *, timeout_s: float = 5.0, model: str = "smollm2") -> Side:
        sides.append(Side(Target("t", engine.url, model), timeout_s))
        return sides[-1]

    yield make
    for each in sides:
        await each.close()


async def test_an_answer_has_its_text_times_and_tokens(side: MakeSide, engine: FakeVLLM, case: Case) -> None:
    engine.always(says(*paced("hello ", 3, 0.05)))
    heard = await side(engine).answer(case, None)
    assert (heard.text, heard.wrong, heard.failed) == ("hello hello hello ", (), False)
    assert heard.first_s is not None
    assert heard.seconds > heard.first_s + 0.1
    assert heard.completion_tokens == 3


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (answers({"error": {"message": "no room\nat all"}}, 503), "503: no room"),
        (answers(b"<html>", 502), "502: no answer of OpenAI's form"),
        (streams({"error": {"message": "died", "code": 500}}), "died"),
        (says("hel", RESET, "lo"), ""),
        (says("hel", CLOSE, "lo"), ""),
        (says("hel", SILENCE, "lo"), "no answer within 0.5 s"),
        (streams(b"data: [1]\n\n"), "an event that is none of a chat"),
    ],
)
async def test_whatever_goes_wrong_is_an_answer_that_failed(
    side: MakeSide, engine: FakeVLLM, case: Case, script: Script, told: str
) -> None:
    engine.always(script)
    heard = await side(engine, timeout_s=0.5).answer(case, None)
    assert heard.failed
    assert told in heard.wrong[0]


async def test_a_judge_is_asked_by_a_criterion_and_has_to_say_yes(side: MakeSide, engine: FakeVLLM, case: Case) -> None:
    engine.always(says("hello"))
    with FakeVLLM() as second:
        judge = side(second)
        second.always(says("Yes."))
        assert (await side(engine).answer(case, judge)).wrong == ()
        asked = second.requests()[0].body
        assert isinstance(asked, dict)
        assert "Criterion: It is kind." in asked["messages"][0]["content"]
        second.always(says("No"))
        assert (await side(engine).answer(case, judge)).wrong == ("judge: It is kind.: 'no'",)


@pytest.mark.parametrize(("script", "told"), [(answers(b"", 502), "502"), (says("Hm."), "neither yes nor no: 'hm.'")])
async def test_a_judge_that_does_not_judge_makes_no_answer_wrong_it_makes_none(
    side: MakeSide, engine: FakeVLLM, case: Case, script: Script, told: str
) -> None:
    engine.always(says("hello"))
    with FakeVLLM() as second:
        second.always(script)
        heard = await side(engine).answer(case, side(second))
        assert heard.failed
        assert told in heard.wrong[0]


@pytest.mark.parametrize("usage", [[1], {"prompt_tokens": "many"}, 3])
async def test_usage_that_counts_nothing_counts_nothing(
    side: MakeSide, engine: FakeVLLM, case: Case, usage: object
) -> None:
    engine.always(streams({"choices": [{"delta": {"content": "hello"}}], "usage": usage}))
    heard = await side(engine).answer(case, None)
    assert (heard.text, heard.prompt_tokens, heard.completion_tokens) == ("hello", 0, 0)


async def test_both_are_asked_everything_as_often_as_said_and_no_more_at_once(
    side: MakeSide, engine: FakeVLLM, case: Case
) -> None:
    engine.always(says("hello", 0.02, "!"))
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, engine.running)
            await asyncio.sleep(0.001)

    watching = asyncio.get_running_loop().create_task(watch())
    one, other = await run((side(engine), side(engine)), [case], None, repeats=4, at_once=2)
    watching.cancel()
    assert [len(each["a"]) for each in (one, other)] == [4, 4]
    assert all(not each.wrong for each in one["a"])
    assert len(engine.requests()) == 10  # with the two that do not count
    assert most <= 2


async def test_the_only_model_need_not_be_named(side: MakeSide) -> None:
    with FakeVLLM(models=("m",)) as one, FakeVLLM(models=("m", "n")) as two:
        assert await side(one, model="").only_model() == "m"
        with pytest.raises(ValueError, match="say which model"):
            await side(two, model="").only_model()
        assert await side(two).only_model() == "smollm2"


async def test_a_kept_connection_that_was_closed_meanwhile_is_no_failure(
    side: MakeSide, engine: FakeVLLM, case: Case
) -> None:
    engine.script(says("hello"), writes(RESET))
    engine.always(says("hello"))
    asking = side(engine)
    assert not (await asking.answer(case, None)).failed
    assert (await asking.answer(case, None)).wrong == ()
    assert len(engine.requests()) == 3
