"""The list of models and one of them by its id, slashes and all."""

from __future__ import annotations

import openai
import pytest

from tests.fakes.vllm import FakeVLLM
from tests.harness import TEAM, Gateway, configuration, key, model
from tests.system.conftest import StartGateway


@pytest.mark.parametrize("path", ["/v1/models/org%2Fm-1", "/v1/models/org/m-1", "/v1/models/org%2fm-1"])
def test_a_model_whose_id_has_a_slash_can_be_retrieved(fake: FakeVLLM, gateway: Gateway, path: str) -> None:
    """AC-06."""
    answer = gateway.get(path)
    assert answer.status_code == 200
    assert {"id": "org/m-1", "object": "model"}.items() <= answer.json().items()


def test_the_sdk_retrieves_models(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        for name in ("smollm2", "org/m-1"):
            assert client.models.retrieve(name).id == name
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("nope")
    assert caught.value.response.json()["error"]["code"] == "model_not_found"


def test_the_list_holds_what_clients_may_put_into_model(fake: FakeVLLM, gateway: Gateway) -> None:
    listed = gateway.get("/v1/models").json()
    assert listed["object"] == "list"
    ids = [card["id"] for card in listed["data"]]
    assert {"smollm2", "org/m-1"} <= set(ids)
    assert len(ids) == len(set(ids))
    for card in listed["data"]:
        assert card["object"] == "model"
        assert isinstance(card["created"], int)
        assert isinstance(card["owned_by"], str)


def test_an_alias_can_be_retrieved(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        assert client.models.retrieve("gpt-4o-mini").id in {"gpt-4o-mini", "smollm2"}


def test_a_key_sees_the_models_that_it_may_use(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    models = [model("smollm2", fake.url), model("hidden", fake.url)]
    gateway = start_gateway(configuration(models, keys=[key("team", TEAM, models=["smollm2"])]))
    assert [card["id"] for card in gateway.get("/v1/models").json()["data"]] == ["smollm2"]
    assert gateway.get("/v1/models/hidden").status_code in {403, 404}


def test_the_list_answers_while_an_engine_is_down(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    models = [model("smollm2", fake.url), model("down", "http://127.0.0.1:9")]
    gateway = start_gateway(configuration(models))
    assert {card["id"] for card in gateway.get("/v1/models").json()["data"]} >= {"smollm2"}
    assert "127.0.0.1" not in gateway.get("/v1/models").text
