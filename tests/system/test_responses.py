"""/v1/responses over sockets, through OpenAI's own client: whole, streamed, blocked, broken, kept and stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.responses import Engine, frame
from tests.fakes.script import CLOSE, SSE, Reply, Script, answers, delayed, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import HI, OPERATOR, TEAM, Gateway, configuration, hear, key, model, running_gateway, until
from tests.system.conftest import StartGateway

RESPONSES = "/v1/responses"
OTHER = "sk-test-other"


def ask(gateway: Gateway, **fields: Any) -> httpx.Response:
    return gateway.post(RESPONSES, {"model": "smollm2", "input": "hi", **fields})


def kept(made: dict[str, Any]) -> Script:
    """Answer about a response that was made."""
    return answers(made)


def test_a_whole_response_is_byte_for_byte_the_engines(fake: FakeVLLM, gateway: Gateway) -> None:
    raw = json.dumps(
        {"id": "resp_1", "model": "smollm2", "status": "completed", "output": [], "vendor": 2**70}
    ).encode()
    fake.script(answers(raw))
    answer = ask(gateway)
    assert (answer.status_code, answer.content) == (200, raw)
    (asked,) = fake.requests(RESPONSES)
    assert asked.body["max_output_tokens"] == 1024


def test_openais_client_hears_a_response_whole_and_streamed(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(says({"reasoning": "hm"}, "Hello ", "maskpapaya", " and more"))
    with gateway.client() as client:
        whole = client.responses.create(model="gpt-4o-mini", input="hi")
        assert (whole.output_text, whole.model, whole.status) == (
            "Hello ********** and more",
            "gpt-4o-mini",
            "completed",
        )
        with client.responses.stream(model="gpt-4o-mini", input="hi") as stream:
            events = list(stream)
            final = stream.get_final_response()
    assert (final.output_text, final.model) == (whole.output_text, whole.model)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.usage is not None
    assert final.usage.output_tokens == 8


def test_a_block_in_mid_stream_ends_the_response_incomplete_and_the_engine(fake: FakeVLLM, gateway: Gateway) -> None:
    gate = fake.gate()
    fake.script(says("it is ", "forbidden", "zebra", " ", gate, "never"))
    heard = hear(gateway, {"input": "hi"}, RESPONSES)
    last = heard.raw.decode().rstrip().rpartition("data: ")[2]
    response = json.loads(last)["response"]
    assert json.loads(last)["type"] == "response.incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert response["output"][0]["content"][0]["text"] == "it is "
    assert response["sluice"]["usage"] == "estimate"
    assert b"zebra" not in heard.raw
    assert b"[DONE]" not in heard.raw
    (asked,) = fake.requests(RESPONSES)
    assert asked.left.wait(5)
    record = gateway.wait_record(heard.headers["x-request-id"])
    assert (record["outcome"], record["route"]) == ("content_filter", RESPONSES)


def test_an_engine_that_breaks_off_fails_the_response_in_its_own_form(
    fake: FakeVLLM, gateway: Gateway, fragile: str
) -> None:
    fake.script(says("Hel", "lo", CLOSE, "x"))
    heard = hear(gateway, {"input": "hi", "model": fragile}, RESPONSES)
    assert heard.status == 200
    last = json.loads(heard.raw.decode().rstrip().rpartition("data: ")[2])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "engine_error"
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert b"Hel" in heard.raw


def test_what_fails_before_the_engine_has_begun_is_a_status(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    opening = b"".join(frame(event) for event in Engine().events)
    fake.script(lambda _: Reply((opening, CLOSE), headers=SSE, framing="chunked"))
    answer = ask(gateway, model=fragile, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")


def test_a_failure_after_heartbeats_is_told_as_an_event(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    slow = start_gateway(configuration([model("smollm2", fake.url)], heartbeat_s=0.1))
    fake.script(delayed(answers({"error": {"message": "no", "code": 400}}, 400), 0.35))
    heard = hear(slow, {"input": "hi"}, RESPONSES)
    assert heard.raw.startswith(b": ")
    assert json.loads(heard.raw.decode().rpartition("data: ")[2])["type"] == "response.failed"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"background": 1}, "background"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"previous_response_id": 7}, "previous_response_id"),
        ({"chat_template": "x"}, "chat_template"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/"}]}]},
         "input[0].content[0].image_url"),
    ],
)  # fmt: skip
def test_what_no_engine_is_asked_is_named(fake: FakeVLLM, gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    answer = ask(gateway, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not fake.requests(RESPONSES)


def test_a_clamped_response_says_so(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = ask(gateway, max_output_tokens=99_999)
    assert answer.headers["x-sluice-tags"] == "max_tokens_clamped"
    assert fake.requests(RESPONSES)[0].body["max_output_tokens"] == 1024


# ---- kept ----


@pytest.fixture(scope="module")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, tuple[FakeVLLM, FakeVLLM]]]:
    keys = [key("team", TEAM), key("other", OTHER), key("ops", OPERATOR, role="operator")]
    with FakeVLLM() as first, FakeVLLM() as second:
        config = configuration([model("smollm2", first.url, second.url)], keys=keys)
        with running_gateway(config, tmp_path_factory.mktemp("pair")) as gateway:
            yield gateway, (first, second)


@pytest.fixture
def pair(_pair: Any) -> Any:
    """Two engines behind one model, and callers of two keys."""
    for fake in _pair[1]:
        fake.reset()
    return _pair


def made(fakes: tuple[FakeVLLM, ...]) -> FakeVLLM:
    return next(fake for fake in fakes if fake.requests(RESPONSES))


def test_a_response_stays_with_the_engine_that_made_it(pair: Any) -> None:
    """LB-04."""
    gateway, fakes = pair
    with gateway.client() as client:
        first = client.responses.create(model="smollm2", input="hi", store=True)
        keeper = made(fakes)
        (other,) = set(fakes) - {keeper}
        for _ in range(5):
            client.responses.create(model="smollm2", input="and?", previous_response_id=first.id)
        path = f"{RESPONSES}/{first.id}"
        keeper.always(kept(json.loads(first.model_dump_json())), route=path)
        keeper.always(kept({**json.loads(first.model_dump_json()), "status": "cancelled"}), route=f"{path}/cancel")
        assert client.responses.retrieve(first.id).output_text == "Hello from a fake engine."
        assert client.responses.cancel(first.id).status == "cancelled"
        assert gateway.get(f"{path}/").status_code == 200
    assert len(keeper.requests(RESPONSES)) == 6
    assert keeper.requests(RESPONSES)[-1].body["previous_response_id"] == first.id
    assert not [each for each in other.everything() if each.route.startswith(RESPONSES)]


@pytest.mark.parametrize("known", ["resp_1", "resp_" + "0" * 48, "resp_%2e%2e", "x" * 300])
def test_an_unknown_id_is_a_404_with_an_error_object(pair: Any, known: str) -> None:
    """LB-04."""
    gateway, fakes = pair
    for answer in (
        gateway.get(f"{RESPONSES}/{known}"),
        gateway.post(f"{RESPONSES}/{known}/cancel", content=b""),
        ask(gateway, previous_response_id=known),
    ):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
    assert not [each for fake in fakes for each in fake.everything() if each.route.startswith(RESPONSES)]


def test_another_keys_response_does_not_exist(pair: Any) -> None:
    gateway, fakes = pair
    mine = ask(gateway, input="my canary", store=True).json()["id"]
    before = len([each for fake in fakes for each in fake.requests(RESPONSES)])
    theirs = {"model": "smollm2", "input": "what was it?", "previous_response_id": mine}
    for answer in (gateway.post(RESPONSES, theirs, OTHER), gateway.get(f"{RESPONSES}/{mine}", OTHER)):
        assert answer.status_code == 404
    assert gateway.post(f"{RESPONSES}/{mine}/cancel", content=b"", secret=OTHER).status_code == 404
    assert len([each for fake in fakes for each in fake.everything() if each.route.startswith(RESPONSES)]) == before


def test_an_engine_that_has_forgotten_is_heard(pair: Any) -> None:
    gateway, fakes = pair
    mine = ask(gateway).json()["id"]
    error = {"message": f"Response with id '{mine}' not found.", "type": "x", "param": "response_id", "code": 404}
    made(fakes).always(answers({"error": error}, 404), route=f"{RESPONSES}/{mine}")
    answer = gateway.get(f"{RESPONSES}/{mine}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "response_id")


def test_without_its_engine_a_response_is_a_clear_503_and_nothing_is_answered_without_context(
    start_gateway: StartGateway,
) -> None:
    """LB-04."""
    with FakeVLLM() as second:
        with FakeVLLM() as first:
            gateway = start_gateway(configuration([model("smollm2", first.url, second.url)]))
            until(lambda: ask(gateway).status_code == 200 and bool(first.requests(RESPONSES)))
            mine = first.requests(RESPONSES)[0].body["request_id"]
        before = len(second.requests(RESPONSES))
        for answer in (ask(gateway, previous_response_id=mine), gateway.get(f"{RESPONSES}/{mine}")):
            assert answer.status_code in {502, 503}
        assert len(second.requests(RESPONSES)) == before


def test_a_kept_response_passes_the_filters_again_and_tells_no_instructions(pair: Any) -> None:
    gateway, fakes = pair
    mine = ask(gateway).json()["id"]
    body = Engine(id=mine, instructions="be secret", model="smollm2")
    body.text("a maskpapaya then ", "forbiddenzebra")
    body.end()
    made(fakes).always(answers(body.events[-1]["response"]), route=f"{RESPONSES}/{mine}")
    told = gateway.get(f"{RESPONSES}/{mine}").json()
    assert told["output"][0]["content"][0]["text"] == "a ********** then "
    assert (told["instructions"], told["status"]) == (None, "incomplete")
    until(lambda: bool(made(fakes).requests(f"{RESPONSES}/{mine}/cancel")))


def test_a_kept_stream_goes_on_after_what_was_seen(pair: Any) -> None:
    gateway, fakes = pair
    mine = ask(gateway).json()["id"]
    told = Engine(id=mine, background=True)
    told.text("one ", "maskpapaya", " three")
    raw = told.end()
    made(fakes).always(lambda _: Reply((raw,), headers=SSE, framing="chunked"), route=f"{RESPONSES}/{mine}")
    answer = gateway.get(f"{RESPONSES}/{mine}?stream=true&starting_after=4")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[0]["sequence_number"] == 5
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "one ********** three"
    (asked,) = made(fakes).requests(f"{RESPONSES}/{mine}")
    assert asked.target.endswith("?stream=true")
    for query, param in (("stream=x", "stream"), ("stream=true&starting_after=-1", "starting_after")):
        wrong = gateway.get(f"{RESPONSES}/{mine}?{query}")
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, param)


def test_a_background_job_that_is_blocked_is_stopped(fake: FakeVLLM, gateway: Gateway) -> None:
    gate = fake.gate()
    fake.script(says("it is ", "forbidden", "zebra", " ", gate, "never"))
    heard = hear(gateway, {"input": "hi", "background": True}, RESPONSES)
    assert b"response.incomplete" in heard.raw
    mine = fake.requests(RESPONSES)[0].body["request_id"]
    until(lambda: bool(fake.requests(f"{RESPONSES}/{mine}/cancel")))


def test_a_response_that_has_only_begun_is_no_last_word(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(answers(Engine(status="queued", background=True).response))
    answer = ask(gateway, background=True, max_output_tokens=50)
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert gateway.wait_record(answer.headers["x-request-id"])["completion_tokens"] == 50


# ---- plugins ----


def test_a_system_prompt_is_not_told_to_the_caller(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    chain = [{"plugin": "system_prompt", "options": {"text": "You are Sluice's own."}}]
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=chain))
    for stream in (False, True):
        answer = ask(gateway, stream=stream, instructions="Be brief.")
        assert "Sluice's own" not in answer.text
        assert '"instructions":"Be brief."' in answer.text


def test_a_profile_speaks_of_choices_only(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    chain = [{"plugin": "envelope", "options": {"profile": "code_data"}}]
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=chain))
    assert gateway.post("/b/code_data/v1/responses", {"model": "smollm2", "input": "hi"}).status_code == 404
    assert gateway.post("/b/code_data/v1/chat/completions", {"model": "smollm2", "messages": HI}).status_code == 200
