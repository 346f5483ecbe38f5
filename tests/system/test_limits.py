"""What a key allows: requests and tokens a minute, requests in flight, models, and the operator's pages."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

import pytest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, OPERATOR, TEAM, Gateway, configuration, key, model, running_gateway
from tests.system.conftest import StartGateway

BODY = {"model": "smollm2", "messages": HI, "max_tokens": 5}


def statuses(gateway: Gateway, count: int, secret: str = TEAM) -> list[int]:
    return [gateway.post(CHAT, BODY, secret).status_code for _ in range(count)]


@pytest.fixture(scope="module")
def limited(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway, a key for each limit."""
    keys = [
        key("rpm", "sk-rpm", rpm=3),
        key("tpm", "sk-tpm", tpm=60),
        key("flight", "sk-flight", max_in_flight=2),
        key("clumsy", "sk-clumsy", max_in_flight=2),
        key("free", "sk-free"),
        key("only", "sk-only", models=["other"]),
        key("ops", OPERATOR, role="operator"),
    ]
    models = [model("smollm2", _engine.url, max_output_tokens=5), model("other", _engine.url)]
    config = configuration(models, keys=keys, metrics="operator")
    with running_gateway(config, tmp_path_factory.mktemp("limited")) as started:
        yield started


def test_requests_a_minute(fake: FakeVLLM, limited: Gateway) -> None:
    assert statuses(limited, 5, "sk-rpm") == [200, 200, 200, 429, 429]
    answer = limited.post(CHAT, BODY, "sk-rpm")
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert statuses(limited, 2, "sk-free") == [200, 200]  # a key's limit is its own
    assert len(fake.requests()) == 5


def test_tokens_a_minute(fake: FakeVLLM, limited: Gateway) -> None:
    fake.always(says("a", "b"))  # twelve tokens of prompt and two of answer by the engine's count
    answers = statuses(limited, 12, "sk-tpm")
    assert answers[0] == 200
    assert answers[-1] == 429
    assert 3 <= answers.count(200) <= 6
    assert sorted(answers) == answers
    refusal = limited.post(CHAT, BODY, "sk-tpm")
    assert refusal.json()["error"]["code"] == "rate_limit_exceeded"
    assert int(refusal.headers["retry-after"]) >= 1


def test_requests_in_flight(fake: FakeVLLM, limited: Gateway) -> None:
    gate = fake.gate()
    fake.always(says("a", gate, "b"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        held = [pool.submit(limited.post, CHAT, BODY, "sk-flight") for _ in range(2)]
        fake.wait_for(2)
        refusal = limited.post(CHAT, BODY, "sk-flight")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(refusal.headers["retry-after"]) >= 1
        gate.set()
        assert [answer.result().status_code for answer in held] == [200, 200]
    assert statuses(limited, 1, "sk-flight") == [200]


def test_a_refused_or_failed_request_holds_no_slot(fake: FakeVLLM, limited: Gateway) -> None:
    for _ in range(5):
        bad = {"model": "smollm2", "messages": [{"role": "user", "content": "forbiddenzebra"}]}
        assert limited.post(CHAT, bad, "sk-clumsy").status_code == 400
        assert limited.post(CHAT, {"model": "nope", "messages": HI}, "sk-clumsy").status_code == 404
        assert limited.post(CHAT, content=b"{", secret="sk-clumsy").status_code == 400
    assert statuses(limited, 2, "sk-clumsy") == [200, 200]
    limited.wait_metric("sluice_in_flight", 0)


def test_models_of_a_key(fake: FakeVLLM, limited: Gateway) -> None:
    answer = limited.post(CHAT, BODY, "sk-only")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    assert limited.post(CHAT, BODY | {"model": "other"}, "sk-only").status_code == 200


def test_the_operators_pages(fake: FakeVLLM, limited: Gateway) -> None:
    assert limited.get("/metrics", None).status_code == 401
    assert limited.get("/metrics", "sk-free").status_code == 403
    assert limited.get("/metrics", OPERATOR).status_code == 200
    assert limited.get("/livez", None).status_code == 200


def test_without_keys_everybody_on_loopback_may_ask(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], keys=[]))
    assert gateway.post(CHAT, BODY, None).status_code == 200
    assert gateway.post(CHAT, BODY, "sk-whatever").status_code == 200
