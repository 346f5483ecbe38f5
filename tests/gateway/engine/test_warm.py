from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator

import pytest

from gateway.engine.progress import Progress
from gateway.engine.warm import alive, warm
from gateway.upstream.client import Origin, Pool
from tests.fakes.script import CLOSE, Reply
from tests.fakes.vllm import FakeVLLM


@pytest.fixture
def engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture
async def pool(engine: FakeVLLM) -> AsyncIterator[Pool]:
    pool = Pool(Origin.parse(engine.url))
    yield pool
    await pool.close()


async def test_alive_is_what_the_health_check_says(engine: FakeVLLM, pool: Pool) -> None:
    assert await alive(pool) is True
    engine.healthy = False
    assert await alive(pool) is False
    nowhere = Pool(Origin.parse("http://127.0.0.1:9"))
    assert await alive(nowhere) is False
    await nowhere.close()


async def test_nobody_pays_for_a_first_answer_stream_or_logprobs(engine: FakeVLLM, pool: Pool) -> None:
    told = io.StringIO()
    await warm(pool, "smollm2", "secret", Progress(told))
    asked = [request.body for request in engine.requests()]
    assert [body["model"] for body in asked] == ["smollm2"] * 3
    assert [bool(body.get("stream")) for body in asked] == [False, True, True]
    assert asked[2]["logprobs"] is True
    assert all(body["max_tokens"] <= 2 for body in asked)
    assert {dict(request.headers)["authorization"] for request in engine.requests()} == {"Bearer secret"}
    assert told.getvalue().startswith("engine: warming up (a short answer)")


async def test_what_a_model_cannot_do_is_no_failure(engine: FakeVLLM, pool: Pool) -> None:
    told = io.StringIO()
    engine.always(lambda _: Reply((b"{}",), 400))
    await warm(pool, "smollm2", None, Progress(told))
    assert "could not" not in told.getvalue()
    engine.always(lambda _: Reply((CLOSE,), framing="raw"))
    await warm(pool, "smollm2", None, Progress(told))
    assert told.getvalue().count("could not warm up") == 3
