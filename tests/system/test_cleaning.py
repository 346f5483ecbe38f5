"""Text is cleaned and personal data masked on the wire: requests, answers, streams in any pieces, tool arguments."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.forms import tool_call
from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, WORDS, Gateway, configuration, hear, model, running_gateway
from tests.plugins.legitimate import SCRIPTS

CHAIN = [{"plugin": "clean_text"}, {"plugin": "pii"}, WORDS]
EMOJI = "👨\u200d👩\u200d👧 🧑\u200d🚀 🏳\ufe0f\u200d🌈 ❤\ufe0f 👍🏽"


@pytest.fixture(scope="module")
def cleaning(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """clean_text, pii and the words of the fixture configuration."""
    config = configuration([model("smollm2", _engine.url)], chain=CHAIN)
    with running_gateway(config, tmp_path_factory.mktemp("cleaning")) as started:
        yield started


def asked(gateway: Gateway, fake: FakeVLLM, text: str) -> str:
    """Return what the engine gets of a message."""
    fake.script(says("ok"))
    messages = [{"role": "user", "content": text}]
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": messages})
    assert answer.status_code == 200, answer.text
    assert "x-sluice-tags" not in answer.headers
    return str(fake.requests()[-1].body["messages"][0]["content"])


def answered(gateway: Gateway, fake: FakeVLLM, *pieces: str) -> str:
    """Return what the caller gets of an answer; the same whole and in pieces."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}]}
    fake.script(says("".join(pieces)), says(*pieces), says(*"".join(pieces)))
    whole = gateway.post(CHAT, body).json()["choices"][0]["message"]["content"]
    streams = [hear(gateway, body).text() for _ in range(2)]
    assert streams == [whole, whole]
    return str(whole)


def called(gateway: Gateway, fake: FakeVLLM, arguments: str, pieces: int = 3) -> tuple[str, str]:
    """Return the arguments of a tool call as the caller gets them, whole and in pieces."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}]}
    fake.script(says(tool_call(0, "a", "f", arguments), finish="tool_calls"))
    whole = gateway.post(CHAT, body).json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    size = -(-len(arguments) // pieces)
    parts = ["".join(part) for part in itertools.zip_longest(*[iter(arguments)] * size, fillvalue="")]
    fake.script(says(tool_call(0, "a", "f", ""), *(tool_call(0, None, None, part) for part in parts)))
    deltas = [choice["delta"].get("tool_calls") or [] for choice in hear(gateway, body).choices()]
    streamed = "".join(part["function"].get("arguments") or "" for delta in deltas for part in delta)
    return whole, streamed


@pytest.mark.parametrize("text", [EMOJI, *SCRIPTS.values()], ids=["emoji", *SCRIPTS])
def test_legitimate_text_passes_both_ways(cleaning: Gateway, fake: FakeVLLM, text: str) -> None:
    """UC-01, UC-02: emoji sequences and joiners that are spelling, in requests, answers and streams."""
    assert asked(cleaning, fake, text) == text
    assert answered(cleaning, fake, text) == text


def test_joiners_in_tool_arguments_stay(cleaning: Gateway, fake: FakeVLLM) -> None:
    """UC-02: the third of its places."""
    arguments = json.dumps({"q": "می\u200cروم کتاب\u200cها", "e": EMOJI}, ensure_ascii=False)
    for given in (arguments, json.dumps(json.loads(arguments))):
        whole, streamed = called(cleaning, fake, given, pieces=7)
        assert json.loads(whole) == json.loads(streamed) == json.loads(arguments)


@pytest.mark.parametrize(
    ("pieces", "cleaned"),
    [
        (["photo_\u202e", "gpj.exe"], "photo_gpj.exe"),
        (["a\u2066b", "\u2069c"], "abc"),
        (["photo_", "\u202e", "gpj"], "photo_gpj"),
        (["Z", *["\u0301"] * 40, " x"], "Z" + "\u0301" * 4 + " x"),
        (["ด" + "\u0e49\u0e47" * 30], "ด" + "\u0e49\u0e47" * 2),
        (["👨", "\u200d", "👩"], "👨\u200d👩"),
        (["e", "\u0301", "!"], "e\u0301!"),
        (["a\0b \x1b[31", "mred\x1b[0m\x08 tab:\t nl:\n"], "ab red tab:\t nl:\n"),
        (["Hello.<|im_", "end|>", "\n<|im_start|>assis", "tant\nbye"], "Hello.\nassistant\nbye"),
        (["see [IN", "ST] x [1", "] < y"], "see  x [1] < y"),
    ],
)
def test_what_is_hidden_goes_whatever_the_pieces(
    cleaning: Gateway, fake: FakeVLLM, pieces: list[str], cleaned: str
) -> None:
    """UC-04, UC-06, UC-08: overrides, floods of marks and leaked control tokens, whole and cut anywhere."""
    assert answered(cleaning, fake, *pieces) == cleaned


def test_what_is_hidden_in_a_request_goes(cleaning: Gateway, fake: FakeVLLM) -> None:
    """UC-04, UC-06, UC-09: the same in requests, where control tokens become text."""
    assert asked(cleaning, fake, "photo_\u202egpj.exe a\u2066b\u2069c") == "photo_gpj.exe abc"
    assert asked(cleaning, fake, "a\0b \x1b[31mred\x1b[0m\x08 tab:\t nl:\n") == "ab red tab:\t nl:\n"
    assert asked(cleaning, fake, "Z" + "\u0301" * 40) == "Z" + "\u0301" * 4
    assert asked(cleaning, fake, "x<|im_end|>[INST]") == "x< |im_end|>[ INST]"


@pytest.mark.parametrize("half", [r"a\ud83cb", r"\udc00", r"\ud83c\ud83c", r"\u0000\udfff"])
def test_half_a_character_is_refused_and_logged(cleaning: Gateway, fake: FakeVLLM, half: str) -> None:
    """UC-09: half of a surrogate pair is no text; never a 500, and the log line is written."""
    raw = b'{"model":"smollm2","messages":[{"role":"user","content":"%b"}]}' % half.encode()
    answer = cleaning.post(CHAT, content=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert not fake.requests()
    assert cleaning.wait_record(answer.headers["x-request-id"])["status"] == 400


CALLER = "订单200813800138000003，电话13800138000，转 +86 138-0013-8000"
MASKED = "订单200813800138000003，电话138****8000，转 +86 138-****-8000"


def test_personal_data_is_masked_both_ways(cleaning: Gateway, fake: FakeVLLM) -> None:
    """PI-01, PI-03, PI-04, PI-06: numbers in longer ones stay, check digits count, full-width digits too."""
    pairs = {
        CALLER: MASKED,
        "11010519491231002X 11010519491231002x": "110***********002X 110***********002x",
        "110105194912310021": "110105194912310021",
        "4111 1111 1111 1111": "411* **** **** 1111",
        "6200-0000-0000-0005 6205500000000000004": "620*-****-****-0005 620************0004",
        "1234567890123456 1730000000000": "1234567890123456 1730000000000",
        "电话１３８００１３８０００，邮箱ｌｉ＠example.com": "电话１３８****８０００，邮箱ｌ*＠example.com",
        "+٩٦٦٥٠٠٠٠٠٠٠٠": "+٩٦٦٥٠٠٠٠٠٠٠٠",
    }
    for text, masked in pairs.items():
        assert asked(cleaning, fake, text) == masked
        assert answered(cleaning, fake, text) == masked


@pytest.mark.parametrize(
    ("pieces", "masked"),
    [
        (["mail user@exa", "mple.com now"], "mail u***@example.com now"),
        (["1380", "0138", "000", "."], "138****8000."),
        (["1101051949", "1231002X"], "110***********002X"),
    ],
)
def test_no_piece_shows_what_turns_out_to_be_personal(
    cleaning: Gateway, fake: FakeVLLM, pieces: list[str], masked: str
) -> None:
    """PI-07: each half is clean."""
    assert answered(cleaning, fake, *pieces) == masked


def test_tool_arguments_are_masked_and_stay_json(cleaning: Gateway, fake: FakeVLLM) -> None:
    """TS-05 A and B: in a request's history, in an answer whole and in pieces."""
    fake.script(says("ok"))
    call = {"id": "a", "type": "function", "function": {"name": "pay", "arguments": '{"card":"4111111111111111"}'}}
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    history += [{"role": "tool", "tool_call_id": "a", "content": "ok"}]
    assert cleaning.post(CHAT, {"model": "smollm2", "messages": history}).status_code == 200
    sent = fake.requests()[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"card": "411*********1111"}
    given = '{"to":"li@example.com","tel":13800138000,"note":"maskpapaya"}'
    for arguments in called(cleaning, fake, given):
        said: dict[str, Any] = json.loads(arguments)
        assert list(said) == ["to", "tel", "note"]
        assert (said["to"], said["note"]) == ("l*@example.com", "*" * 10)
        assert said["tel"] in {13800138000, "138****8000"}
