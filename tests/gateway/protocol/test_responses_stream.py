"""A streamed response: vLLM's own events, untouched where nothing changed, consistent in all that repeats them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import EngineError, EngineTimeout
from gateway.protocol.responses_events import as_stream
from gateway.protocol.responses_stream import ResponsesEditor
from gateway.protocol.responses_whole import WholeResponse
from tests.fakes.responses import RESPONSE, USAGE, Engine, Word, frame


def editor(*, watch: bool = True, model: str = "m", **more: Any) -> ResponsesEditor:
    return ResponsesEditor(lambda *_: Word() if watch else None, model=model, **more)


def play(edit: ResponsesEditor, data: bytes, cuts: Sequence[int] = (), extra: dict[str, Any] | None = None) -> bytes:
    out = b""
    for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True):
        out += edit.feed(data[a:b])
    if not edit.done and not edit.abort and edit.failure is None:
        edit.end()
    return out + (edit.close(extra) if edit.failure is None else b"")


def events(out: bytes) -> list[dict[str, Any]]:
    told = []
    for part in out.split(b"\n\n")[:-1]:
        name, _, data = part.partition(b"\n")
        body = json.loads(data.removeprefix(b"data: "))
        assert name == f"event: {body['type']}".encode()
        told.append(body)
    return told


def texts(out: bytes) -> dict[str, list[str]]:
    """What a client makes of it: the deltas of each item, the text of each way in which it is repeated."""
    told = events(out)
    deltas: dict[int, str] = {}
    found: dict[str, list[str]] = {"done": [], "part": [], "item": [], "whole": []}
    for event in told:
        if event["type"].endswith(".delta"):
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
        elif event["type"].endswith("_text.done"):
            found["done"].append(event["text"])
        elif event["type"] == "response.content_part.done":
            found["part"].append(event["part"]["text"])
        elif event["type"] == "response.output_item.done":
            found["item"] += said(event["item"])
    for item in told[-1].get("response", {}).get("output", []):
        found["whole"] += said(item)
    return {"delta": [text for _, text in sorted(deltas.items())], **found}


def said(item: dict[str, Any]) -> list[str]:
    return [part["text"] for part in item.get("content") or ()] + [
        item[field] for field in ("arguments", "input", "code") if field in item
    ]


def numbers(out: bytes) -> list[int]:
    return [event["sequence_number"] for event in events(out)]


def consistent(out: bytes) -> None:
    assert numbers(out) == list(range(len(events(out))))
    told = texts(out)
    assert told["item"] == told["whole"]
    assert [text for text in told["delta"] if text] == [text for text in told["item"] if text]


def test_a_clean_stream_leaves_byte_for_byte_as_it_came() -> None:
    data = Engine().text("我", "想", kind="reasoning").text("The", " capital\u2028").call('{"to": ', '"li"}').end()
    assert play(editor(), data) == data
    assert play(editor(watch=False), data) == data


def test_the_editor_counts_and_knows_how_it_ended() -> None:
    edit = editor()
    play(edit, Engine().text("The", " end").end("incomplete"))
    assert edit.usage is not None
    assert (edit.usage.prompt_tokens, edit.usage.completion_tokens) == (37, 8)
    assert (edit.finish_reasons, edit.complete, edit.done, edit.abort, edit.failure) == (
        ["length"],
        True,
        True,
        False,
        None,
    )
    assert (edit.chars, edit.chunks) == (7, 2)


STREAMS: dict[str, Callable[[], bytes]] = {
    "masked": lambda: Engine().text("eat pa", "pa", "ya 你", "好").end(),
    "masked with logprobs": lambda: Engine().text("eat pa", "pa", "ya", " now", logprobs=True).end(),
    "blocked": lambda: Engine().text("a papaya").text("say ze", "bra", " no").end(),
    "reasoning blocked": lambda: Engine().text("ze", "bra", kind="reasoning").text("hi").end(),
    "arguments": lambda: Engine().call('{"to":"pap', 'aya","n":', "12}").call('{"q":"ze', 'b"}').end(),
    "arguments blocked": lambda: Engine().text("fine").call('{"q":"ze', 'bra"}').end(),
    "over two items": lambda: Engine().text("eat pa").text("paya ze", "b").end(),
}


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_cut_of_the_bytes_gives_the_same_answer(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert play(editor(), stream, cuts) == play(editor(), stream)


@pytest.mark.parametrize("name", STREAMS)
def test_numbers_have_no_gap_and_every_repetition_says_what_was_shown(name: str) -> None:
    consistent(play(editor(), STREAMS[name]()))


def test_a_word_split_over_deltas_is_masked_in_everything_that_repeats_it() -> None:
    out = play(editor(), Engine().text("eat pa", "pa", "ya now").end())
    assert set(map(tuple, texts(out).values())) == {("eat ****** now",)}
    assert b"pap" not in out


def test_logprobs_repeat_nothing_that_was_masked() -> None:
    out = play(editor(), Engine().text("eat ", "pa", "paya", " now", logprobs=True).end())
    consistent(out)
    assert b"pa" not in out.replace(b"part", b"").replace(b"parallel", b"")
    tokens = [entry["token"] for e in events(out) if e["type"].endswith(".delta") for entry in e["logprobs"]]
    assert tokens == ["eat ", "**", "****", " now"]
    done = next(e for e in events(out) if e["type"] == "response.content_part.done")["part"]["logprobs"]
    assert [entry["token"] for entry in done] == tokens
    assert json.dumps(list(b"papaya"))[1:-1] not in out.decode()


def test_held_text_comes_before_the_end_of_its_part() -> None:
    out = play(editor(), Engine().text("see the pap").end())
    consistent(out)
    assert texts(out)["delta"] == ["see the pap"]
    kinds = [event["type"] for event in events(out)]
    assert (
        kinds.index("response.output_text.done") == len(kinds) - 1 - kinds[::-1].index("response.output_text.delta") + 1
    )


def test_a_block_ends_part_item_and_response() -> None:
    edit = editor()
    out = play(edit, Engine().text("say ze", "bra", "more zebra text").text("x").end(), extra={"tags": ["a"]})
    told = events(out)
    assert edit.abort
    assert edit.finish_reasons == ["content_filter"]
    assert [event["type"] for event in told[-4:]] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    assert told[-4]["text"] == told[-3]["part"]["text"] == "say "
    assert told[-2]["item"]["status"] == "incomplete"
    response = told[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert response["output"] == [told[-2]["item"]]
    assert response["id"] == RESPONSE["id"]
    assert response["usage"]["output_tokens"] > 0
    assert response["sluice"] == {"tags": ["a"], "usage": "estimate"}
    assert b"zebra" not in out
    assert edit.merged() == response


def test_a_call_that_was_cut_is_not_called_done() -> None:
    out = play(editor(), Engine().text("fine").call('{"to":"li","q":"a ze', 'bra"}').end())
    consistent(out)
    assert not any(event["type"] == "response.function_call_arguments.done" for event in events(out))
    item = events(out)[-1]["response"]["output"][1]
    assert (item["arguments"], item["status"]) == ('{"to":"li","q":"a ', "incomplete")


def test_arguments_stay_json_and_a_masked_number_becomes_a_string() -> None:
    out = play(editor(), Engine().call('{"pa":"eat pap', 'aya\\n","n":138', "}").end())
    consistent(out)
    assert json.loads(texts(out)["whole"][0]) == {"pa": "eat ******\n", "n": 138}


@pytest.mark.parametrize("kind", ["custom_tool_call", "code_interpreter_call", "mcp_call"])
def test_other_calls_are_text_too(kind: str) -> None:
    out = play(editor(), Engine().call('"eat pa', 'paya"', kind=kind).end())
    consistent(out)
    assert texts(out)["whole"] == ['"eat ******"']
    assert editor_ends(Engine().call("ze", "bra", kind=kind).end()) == ["content_filter"]


def editor_ends(data: bytes) -> list[str]:
    edit = editor()
    play(edit, data)
    return edit.finish_reasons


def test_reasoning_and_content_are_separate_texts() -> None:
    assert editor_ends(Engine().text("ze", kind="reasoning").text("bra").end()) == ["stop"]
    assert editor_ends(Engine().text("ze", "bra", kind="reasoning").end()) == ["content_filter"]


def test_adjacent_messages_are_read_as_one_text() -> None:
    assert editor_ends(Engine().text("ze").text("bra").end()) == ["content_filter"]
    out = play(editor(), Engine().text("eat pa").text("paya").end())
    consistent(out)
    assert texts(out)["whole"] == ["eat ", "******"]


def test_a_call_between_two_messages_parts_them() -> None:
    data = Engine().text("ze").call("{}").text("bra").end()
    assert texts(play(editor(), data))["whole"] == ["ze", "{}", "bra"]


def test_what_opens_the_stream_waits_for_the_engine_to_begin() -> None:
    engine, edit = Engine(), editor()
    assert edit.feed(engine.bytes()) == b""
    assert edit.events == 0
    opened = len(engine.events)
    engine.text("hi")
    assert edit.feed(frame(engine.events[opened])) == b"".join(map(frame, engine.events[: opened + 1]))
    assert edit.events == 1


def test_the_model_is_called_what_the_caller_called_it_and_its_own_fields_come_back() -> None:
    data = Engine(instructions="ours and yours", metadata={"model": "m"}).text("hi").end()
    out = play(editor(model="gpt", echo={"instructions": "yours"}), data)
    told = [event["response"] for event in events(out) if "response" in event]
    assert {response["model"] for response in told} == {"gpt"}
    assert {response["instructions"] for response in told} == {"yours"}
    assert told[-1]["metadata"] == {"model": "m"}
    assert numbers(out) == list(range(len(numbers(out))))


def test_raw_messages_never_pass() -> None:
    data = Engine().text("hi").end(output_messages=[{"message": "<think>zebra</think>hi", "tokens": [1]}])
    out = play(editor(), data)
    assert b"zebra" not in out
    assert events(out)[-1]["response"]["output_messages"] is None


def test_an_end_that_repeats_what_was_never_told_is_filtered() -> None:
    engine = Engine()
    engine.items.append({"id": "w_1", "type": "web_search_call", "status": "completed", "action": {"query": "papaya?"}})
    out = play(editor(), engine.end())
    assert events(out)[-1]["response"]["output"][0]["action"]["query"] == "******?"
    engine = Engine().text("fine")
    engine.items.append({"id": "x", "type": "message", "content": [{"type": "output_text", "text": "a zebra"}]})
    edit = editor()
    out = play(edit, engine.end())
    assert b"zebra" not in out
    assert events(out)[-1]["type"] == "response.incomplete"
    assert texts(out)["whole"] == ["fine", "a "]
    assert edit.finish_reasons == ["content_filter"]


def test_an_engine_without_deltas_is_filtered_at_its_ends() -> None:
    engine = Engine().text("eat papaya")
    engine.events = [event for event in engine.events if not event["type"].endswith(".delta")]
    for number, event in enumerate(engine.events):
        event["sequence_number"] = number
    consistent(play(editor(), engine.end()))
    assert editor_ends(Engine().text("zebra").end()) == ["content_filter"]


def test_an_unknown_event_passes_only_where_nobody_watches_or_it_holds_no_text() -> None:
    engine = Engine().text("hi")
    engine.tell("response.web_search_call.searching", output_index=0, item_id="w")
    engine.tell("response.song.delta", delta=["zebra"], output_index=0)
    engine.tell("response.output_text.annotation.added", annotation={"title": "zebra"}, output_index=0)
    data = engine.end()
    assert play(editor(watch=False), data) == data
    out = play(editor(), data)
    assert b"zebra" not in out
    assert b"web_search_call.searching" in out
    assert numbers(out) == list(range(len(numbers(out))))


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "x"}},
        },
        {"type": "error", "code": "server_error", "message": "x", "param": None, "sequence_number": 3},
        {"type": "response.completed", "response": {**RESPONSE, "status": "cancelled"}},
        {
            "type": "response.completed",
            "response": {**RESPONSE, "status": "completed", "usage": {**USAGE, "output_tokens": 0}},
        },
        {"type": "response.completed", "response": {"output": 1}},
        {"type": "response.output_text.delta", "delta": 5},
        {"type": "response.output_item.added", "item": "x"},
        {"type": "response.content_part.added", "part": 1},
        {"type": "chat.completion.chunk"},
    ],
)
def test_a_failure_in_the_stream_is_one(event: dict[str, Any]) -> None:
    edit = editor()
    edit.feed(Engine().bytes() + frame(event))
    assert isinstance(edit.failure, EngineError)
    assert edit.events == 0


def test_an_engines_own_verdict_keeps_its_status() -> None:
    edit = editor()
    edit.feed(b'data: {"error": {"message": "data_parallel_rank 5", "type": "BadRequestError", "code": 400}}\n\n')
    assert edit.failure is not None
    assert edit.failure.status == 400


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\n", b"event: x\ndata: {"])
def test_a_stream_without_an_end_is_a_failure(tail: bytes) -> None:
    edit = editor()
    edit.feed(Engine().text("hi").bytes() + tail)
    edit.end()
    assert isinstance(edit.failure, EngineError)


def test_a_failure_after_the_beginning_is_told_as_response_failed() -> None:
    edit = editor(model="gpt")
    engine = Engine().text("eat papaya")
    out = edit.feed(engine.bytes()) + edit.broken(EngineTimeout("late"))
    last = events(out)[-1]
    assert (last["type"], last["sequence_number"]) == ("response.failed", len(engine.events))
    response = last["response"]
    assert (response["id"], response["model"], response["status"]) == (RESPONSE["id"], "gpt", "failed")
    assert response["error"] == {"code": "engine_timeout", "message": "late"}
    assert response["output"][0]["content"][0]["text"] == "eat ******"
    assert events(editor().broken(EngineTimeout("late")))[0]["response"]["output"] == []


def test_a_stream_asked_for_again_is_filtered_from_its_beginning_and_shown_from_the_place() -> None:
    data = Engine().text("eat pa", "pa", "ya").end()
    whole = events(play(editor(), data))
    assert events(play(editor(after=5), data)) == whole[6:]


def test_extra_goes_into_the_response_of_the_last_event() -> None:
    data = Engine().text("hi").end()
    out = play(editor(), data, extra={"tags": ["x"]})
    assert out.startswith(b"".join(data.split(b"event: response.completed")[:1]))
    assert events(out)[-1]["response"]["sluice"] == {"tags": ["x"]}


words = st.lists(st.sampled_from(["pa", "papaya", "ze", "bra", "zeb", " a", "é", '"', "\\"]), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["message", "reasoning"]), words), min_size=1, max_size=4))
def test_the_streamed_answer_equals_the_whole_one(items: list[tuple[str, list[str]]]) -> None:
    engine = Engine()
    for kind, pieces in items:
        engine.text(*pieces, kind=kind)
    data = engine.end()
    out = play(editor(), data)
    consistent(out)
    whole = WholeResponse(json.dumps(engine.events[-1]["response"]).encode())
    whole.filter(lambda *_: Word())
    response = json.loads(whole.close("m", None))
    assert texts(out)["whole"] == [text for item in response["output"] for text in said(item)]
    assert events(out)[-1]["response"]["status"] == response["status"]
    assert [item["status"] for item in events(out)[-1]["response"]["output"]] == [
        i["status"] for i in response["output"]
    ]


def test_a_whole_answer_is_told_as_a_stream() -> None:
    engine = (
        Engine()
        .text("hm", kind="reasoning")
        .text("hi", logprobs=True)
        .call('{"a":1}')
        .call("x", kind="custom_tool_call")
    )
    engine.end()
    response = engine.events[-1]["response"]
    out = as_stream({**response, "sluice": {"tags": ["x"]}})
    consistent(out)
    assert events(out)[-1]["response"] == {**response, "sluice": {"tags": ["x"]}}
    assert play(editor(), as_stream(response)) == as_stream(response)
