"""Word lists in service: actions, scopes, shadow, versions, and what caller and operator get to know of a hit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import (
    CHAT,
    OPERATOR,
    TEAM,
    Gateway,
    RawCaller,
    configuration,
    hear,
    key,
    model,
    running_gateway,
    until,
)
from tests.system.conftest import StartGateway

CHINESE, CRM = "sk-test-chinese", "sk-test-crm"
FILES = {
    "block.txt": "# hard\nforbiddenzebra\tblock\tanimals\n赌博\tblock\tgambling\n"
    "softkiwi\ttag\tsoft-en\n软猕猴\ttag\t软性\n",
    "tenant.txt": "tenantword\n",
    "model.txt": "modelword\n",
    "out.txt": "outword\tmask\n",
    "replace.yaml": "- {word: secretname, replacement: '<\"the project\">'}\n- {word: 代号, action: replace}\n",
}
LISTS = [
    "block.txt",
    {"path": "tenant.txt", "keys": ["chinese"]},
    {"path": "model.txt", "models": ["other"]},
    {"path": "out.txt", "directions": ["answer"]},
    {"path": "replace.yaml", "replacement": "（略）"},
]


def written(folder: Path) -> dict[str, Any]:
    """Write the lists and return the plugin's options."""
    for name, content in FILES.items():
        (folder / name).write_text(content, "utf-8")
    return {"lists": LISTS}


@pytest.fixture(scope="module")
def words(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with every kind of list, one model in shadow mode, an audit log, and texts for blocked callers."""
    folder = tmp_path_factory.mktemp("words")
    options = written(folder)
    config = configuration(
        [model(name, _engine.url) for name in ("smollm2", "other", "shadowed")],
        keys=[
            key("team", TEAM),
            key("ops", OPERATOR, role="operator"),
            key("chinese", CHINESE, language="zh"),
            key("crm", CRM),
        ],
        chain=[
            {"plugin": "envelope", "options": {"profile": "code_data"}, "keys": ["crm"]},
            {"plugin": "audit_log", "options": {"path": "audit.jsonl"}},
            {"plugin": "sensitive_words", "options": options, "models": ["smollm2", "other"]},
            {"plugin": "sensitive_words", "options": options, "models": ["shadowed"], "mode": "shadow"},
        ],
    )
    config["messages"] = {"tags": {"gambling": {"zh": "涉赌内容不予处理", "en": "No gambling."}}}
    with running_gateway(config, folder) as started:
        yield started


def ask(gateway: Gateway, text: str, secret: str = TEAM, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    body = {"model": "smollm2", "messages": [{"role": "user", "content": text}]} | more
    return gateway.post(CHAT, body, secret, headers=headers)


def audit(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """Return the audit log's line of a request."""
    path = gateway.path.with_name("audit.jsonl")
    found: list[dict[str, Any]] = []

    def there() -> bool:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        with contextlib.suppress(ValueError):
            found[:] = [line for line in map(json.loads, lines) if line.get("request_id") == request_id]
        return bool(found)

    until(there, 10, "no such line in the audit log")
    return found[0]


# -- actions and scopes ------------------------------------------------------------------------------------------------


def test_a_replacement_takes_a_words_place_in_what_the_engine_reads(fake: FakeVLLM, words: Gateway) -> None:
    assert ask(words, "about SecretName and 代号, 代号").status_code == 200
    assert fake.requests()[-1].body["messages"][0]["content"] == 'about <"the project"> and （略）, （略）'


@pytest.mark.parametrize("pieces", [["about secretname!"], list("about secretname!"), ["about secret", "name", "!"]])
def test_a_replacement_takes_a_words_place_in_an_answer_however_it_is_cut(
    fake: FakeVLLM, words: Gateway, pieces: list[str]
) -> None:
    fake.always(says(*pieces))
    heard = hear(words, {})
    assert (heard.text(), heard.finishes()) == ('about <"the project">!', ["stop"])
    whole = ask(words, "hi").json()["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == ('about <"the project">!', "stop")


def test_a_replacement_in_tool_arguments_leaves_valid_json(fake: FakeVLLM, words: Gateway) -> None:
    arguments = '{"q": "secretname", "n": 1}'
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    assert words.post(CHAT, {"model": "smollm2", "messages": messages}).status_code == 200
    sent = fake.requests()[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"q": '<"the project">', "n": 1}


def test_lists_count_for_their_keys_models_and_directions_alone(fake: FakeVLLM, words: Gateway) -> None:
    statuses = {
        (text, secret, name): ask(words, f"a {text}", secret, model=name).status_code
        for text in ("tenantword", "modelword", "outword")
        for secret, name in ((TEAM, "smollm2"), (CHINESE, "smollm2"), (TEAM, "other"))
    }
    assert {case for case, status in statuses.items() if status != 200} == {
        ("tenantword", CHINESE, "smollm2"),
        ("modelword", TEAM, "other"),
    }
    assert fake.requests()[-1].body["messages"][0]["content"] == "a outword"
    fake.always(says("an out", "word"))
    assert hear(words, {}).text() == "an *******"
    fake.always(says("a tenant", "word"))
    assert hear(words, {}).finishes() == ["stop"]
    assert hear(words, {}, secret=CHINESE).finishes() == ["content_filter"]


# -- what the caller sees ----------------------------------------------------------------------------------------------


def test_a_blocked_caller_reads_it_in_its_language_and_by_the_tag(words: Gateway) -> None:
    """EV-13: generic, never the word, the place at most."""

    def said(text: str, secret: str = TEAM, **headers: str) -> str:
        answer = ask(words, text, secret, headers=headers)
        assert answer.status_code == 400
        seen = f"{answer.text} {answer.headers}"
        assert not [word for word in ("forbiddenzebra", "赌博", "block.txt", 'gambling"') if word in seen]
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("content_filter", "messages[0].content")
        return str(error["message"])

    generic = "The request was blocked by the content filter."
    assert said("forbiddenzebra") == generic
    assert said("forbiddenzebra", **{"accept-language": "zh-CN,zh;q=0.9"}) == "请求被内容过滤拦截"
    assert said("forbiddenzebra", CHINESE) == "请求被内容过滤拦截"
    assert said("forbiddenzebra", CHINESE, **{"accept-language": "en"}) == generic
    assert said("赌博") == "No gambling."
    assert said("赌博", CHINESE) == "涉赌内容不予处理"


def test_every_route_tells_a_block_in_its_own_shape_and_the_callers_language(words: Gateway) -> None:
    asked: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "赌博"},
        "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "赌博"}]},
        "/v1/responses": {"input": "赌博"},
        "/v1/embeddings": {"input": ["fine", "赌博"]},
    }
    for path, body in asked.items():
        answer = words.post(path, {"model": "smollm2"} | body, CHINESE)
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "涉赌内容不予处理"), path


def test_the_envelopes_message_is_the_configured_one_too(words: Gateway) -> None:
    told = ask(words, "forbiddenzebra", CRM).json()
    assert (told["code"], told["msg"]) == (400, "检测到敏感内容")
    assert ask(words, "赌博", CRM, headers={"accept-language": "zh"}).json()["msg"] == "涉赌内容不予处理"


def test_soft_tags_are_ascii_in_the_header_and_inside_the_stream(fake: FakeVLLM, words: Gateway) -> None:
    """EV-16."""
    answer = ask(words, "i like 软猕猴")
    assert (answer.status_code, answer.headers["x-sluice-tags"]) == (200, quote("软性"))
    assert fake.requests()[-1].body["messages"][0]["content"] == "i like 软猕猴"
    fake.always(says("i ", "like ", "soft", "kiwi"))
    heard = hear(words, {})
    assert (heard.text(), heard.finishes(), heard.done) == ("i like softkiwi", ["stop"], True)
    assert heard.events[-1]["sluice"]["tags"] == ["soft-en"]
    assert words.wait_record(heard.headers["x-request-id"])["tags"] == ["soft-en"]
    with RawCaller(words.port) as caller:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}]}
        raw = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\ncontent-length: {len(raw)}\r\n"
        caller.send(head.encode() + "x-title: 你好\r\nconnection: close\r\n\r\n".encode() + raw)
        assert caller.rest().startswith(b"HTTP/1.1 200 ")


# -- what the operator sees --------------------------------------------------------------------------------------------


def test_the_log_and_the_audit_log_name_the_rule_and_the_lists_version(words: Gateway) -> None:
    request_id = ask(words, "a forbiddenzebra").headers["x-request-id"]
    line = words.wait_record(request_id)
    assert (line["plugin"], line["rule"], line["outcome"]) == ("sensitive_words", "block.txt:2", "content_filter")
    listed = words.wait_log(lambda each: each["event"] == "list" and each["list"] == "block.txt")
    assert (listed["entries"], listed["config_version"]) == (4, line["config_version"])
    assert words.metric("sluice_word_list_entries", plugin="sensitive_words", list="block.txt") == 4
    number = words.metric("sluice_word_list_version", plugin="sensitive_words", list="block.txt")
    assert number == int(listed["version"], 16)
    kept = audit(words, request_id)
    assert kept["lists"]["sensitive_words/block.txt"] == listed["version"]
    assert [(hit["rule"], hit["action"], hit["tag"]) for hit in kept["hits"]] == [("block.txt:2", "block", "animals")]
    assert "zebra" not in json.dumps([line, kept])


def test_blocks_and_soft_hits_count_under_their_tags(words: Gateway) -> None:
    def counted() -> list[float]:
        return [
            words.metric("sluice_blocks_total", plugin="sensitive_words", direction="request", tag="gambling"),
            words.metric(
                "sluice_rule_hits_total", plugin="sensitive_words", action="tag", tag="soft-en", mode="enforce"
            ),
        ]

    before = counted()
    ask(words, "赌博")
    ask(words, "softkiwi")
    until(lambda: counted() == [each + 1 for each in before], 5, "they were not counted")


def test_shadow_mode_shows_everywhere_what_would_have_happened_and_changes_nothing(
    fake: FakeVLLM, words: Gateway
) -> None:
    fake.always(says("the secret", "name of 赌", "博"))
    answer = ask(words, "forbiddenzebra, softkiwi and secretname", model="shadowed")
    assert answer.status_code == 200
    assert "x-sluice-tags" not in answer.headers
    assert fake.requests()[-1].body["messages"][0]["content"] == "forbiddenzebra, softkiwi and secretname"
    heard = hear(words, {"model": "shadowed"})
    assert (heard.text(), heard.finishes()) == ("the secretname of 赌博", ["stop"])
    whole, streamed = answer.headers["x-request-id"], heard.headers["x-request-id"]
    asked = ["block block.txt:2", "tag block.txt:4", "replace replace.yaml:1"]
    answered = ["replace replace.yaml:1", "block block.txt:3"]
    line = words.wait_record(whole)
    assert line["shadow"] == [f"sensitive_words-2: {each}" for each in dict.fromkeys(asked + answered)]
    assert not {"rule", "tags"} & line.keys()
    assert words.wait_record(streamed)["shadow"] == [f"sensitive_words-2: {each}" for each in answered]
    hits = [
        (hit["direction"], f"{hit['action']} {hit['rule']}", hit["shadow"]) for hit in audit(words, streamed)["hits"]
    ]
    assert hits == [("answer", each, True) for each in answered]
    assert words.metric("sluice_rule_hits_total", plugin="sensitive_words-2", action="block", mode="shadow") >= 3
    assert words.metric("sluice_blocks_total", plugin="sensitive_words-2") == 0


# -- lists -------------------------------------------------------------------------------------------------------------


def test_blank_entries_match_nothing_and_are_told_once(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """CF-01."""
    (tmp_path / "block.txt").write_text("forbiddenzebra\n\n   \n\u200b\n赌博,\n", "utf-8")
    options = {"lists": ["block.txt"], "words": ["", "赌博", "\ufeff \u3164", "黄片"]}
    chain = [{"plugin": "sensitive_words", "options": options}]
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=chain), folder=tmp_path)
    assert [ask(gateway, text).status_code for text in ("hello", "forbiddenzebra", "赌博", "黄片")] == [
        200,
        400,
        400,
        400,
    ]
    said = [line["said"] for line in gateway.records() if line["event"] == "word_list"]
    assert [each.removeprefix(f"{tmp_path}/") for each in said] == [
        "block.txt: line 2, 3, 4: blank or without a letter: skipped",
        "block.txt: line 5: punctuation at an edge: stripped",
        "words: entry 1, 3: blank or without a letter: skipped",
    ]


def test_a_swapped_list_has_a_new_version_and_a_wrong_one_leaves_the_last_good(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """As Kubernetes swaps it: ..data is a link to a folder of the version, and is renamed over."""

    def version(name: str, content: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "block.txt").write_text(content, "utf-8")
        (tmp_path / "..new").symlink_to(name)
        (tmp_path / "..new").rename(tmp_path / "..data")

    version("..v1", "zebra\n")
    (tmp_path / "block.txt").symlink_to("..data/block.txt")
    chain = [{"plugin": "sensitive_words", "options": {"lists": [str(tmp_path / "block.txt")]}}]
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=chain))
    first = gateway.wait_log(lambda line: line["event"] == "list")
    assert (first["entries"], first["config_version"]) == (1, 1)
    version("..v2", "lion\ntiger\n")
    second = gateway.wait_log(lambda line: line["event"] == "list" and line["config_version"] == 2, 10)
    assert (second["entries"], second["version"] != first["version"]) == (2, True)
    assert [ask(gateway, f"a {word}").status_code for word in ("zebra", "lion")] == [200, 400]
    assert gateway.metric("sluice_word_list_version") == int(second["version"], 16)
    version("..v3", "ok\nbear\tbolck\nwolf\ta\tb\tc\n")
    refused = gateway.wait_log(lambda line: line["event"] == "reload_refused", 10)
    assert [fault.partition("block.txt: ")[2].partition(":")[0] for fault in refused["faults"]] == ["line 2", "line 3"]
    assert [ask(gateway, f"a {word}").status_code for word in ("lion", "bear")] == [400, 200]
    assert gateway.metric("sluice_word_list_entries") == 2
    version("..v4", "bear\n")
    until(lambda: ask(gateway, "a bear").status_code == 400, 10, "the mended list never came into force")


def test_a_text_made_against_the_lists_does_not_hold_up_the_others(fake: FakeVLLM, words: Gateway) -> None:
    """SE-11: a verdict within a second a megabyte, and small requests go on meanwhile."""
    hostile = ["1" * 200_000, "a@" * 50_000, "-" * 100_000 + "x", "（" * 100_000, "赌" * 333_333, "forbidden" * 111_111]
    quick: list[float] = []
    for text in hostile:
        with contextlib.ExitStack() as stack:
            caller = stack.enter_context(RawCaller(words.port, timeout=20))
            caller.post(CHAT, {"model": "smollm2", "messages": [{"role": "user", "content": text}]}, connection="close")
            quick += [ask(words, "hi").elapsed.total_seconds() for _ in range(4)]
            assert caller.rest().startswith(b"HTTP/1.1 200 ")
    line = max((each for each in words.records() if each.get("event") == "request"), key=lambda each: each["total_ms"])
    assert line["total_ms"] < 5_000, "a machine under load; a second is the promise, and megabytes are sent"
    assert sorted(quick)[len(quick) // 2] < 0.2


# -- questions ---------------------------------------------------------------------------------------------------------


def test_an_operator_can_ask_any_worker_which_rule_fires(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    chain = [{"plugin": "sensitive_words", "options": {"words": ["forbiddenzebra"]}}]
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=chain, workers=2), within=30)
    body = {"text": "say ＦorbiddenZEBRA"}
    for _ in range(6):
        told = gateway.post("/admin/words/test", body, OPERATOR).json()
        assert [(hit["rule"], hit["start"], hit["end"]) for hit in told["hits"]] == [("words:1", 4, 18)]
        assert told["hits"][0]["folds"][0] == {"at": 4, "character": "Ｆ", "read_as": "f", "why": "form"}
    assert gateway.post("/admin/words/test", {"text": "fine"}, OPERATOR).json()["hits"] == []
    answers = [gateway.post("/admin/words/test", body, secret) for secret in (TEAM, None, "sk-wrong")]
    assert [answer.status_code for answer in answers] == [403, 401, 401]
    assert all("zebra" not in answer.text.lower() for answer in answers)
    wrong = gateway.post("/admin/words/test", {"txet": "x"}, OPERATOR)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_request")
    assert "zebra" not in "\n".join(gateway.log).lower(), "what is asked is in no log"
