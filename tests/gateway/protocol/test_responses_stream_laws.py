"""Laws of a streamed response: the pipeline's own channels, any answer, any pieces; and OpenAI's models read it all."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import openai.types.responses as models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channel import ChannelFilter, Stage
from gateway.errors import EngineTimeout
from gateway.protocol.responses_stream import ResponsesEditor
from gateway.protocol.responses_whole import WholeResponse
from gateway.record import Record, Run
from gateway.sdk import Blocked, Edit
from tests.fakes.responses import Engine


class Words:
    """A plugin's filter: masks "papaya", blocks at "zebra"."""

    def __init__(self) -> None:
        self.pending, self.told = "", 0

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        self.pending += text
        return self._take(end=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        return self._take(end=True)

    def _take(self, *, end: bool) -> tuple[str, Sequence[Edit]]:
        shown, edits = "", list[Edit]()
        while self.pending:
            if self.pending.startswith("zebra"):
                raise Blocked("rule", shown=shown, edits=edits)
            if self.pending.startswith("papaya"):
                edits.append(Edit(self.told, self.told + 6, "******"))
                shown, self.pending, self.told = shown + "******", self.pending[6:], self.told + 6
            elif not end and any(word.startswith(self.pending) for word in ("papaya", "zebra")):
                break
            else:
                shown, self.pending, self.told = shown + self.pending[0], self.pending[1:], self.told + 1
        return shown, edits


def channel(*_: Any) -> ChannelFilter:
    return ChannelFilter(lambda: [Stage("a", Words(), Run()), Stage("b", Words(), Run())], Record())


def play(data: bytes, extra: dict[str, Any] | None = None) -> tuple[ResponsesEditor, list[dict[str, Any]]]:
    edit = ResponsesEditor(channel, model="m")
    out = edit.feed(data) + edit.close(extra)
    return edit, told(out)


def told(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.partition(b"\ndata: ")[2]) for frame in out.split(b"\n\n")[:-1]]


def texts(item: dict[str, Any]) -> list[str]:
    return [part["text"] for part in item.get("content") or ()] + ([item["arguments"]] if "arguments" in item else [])


def tokens(value: Any) -> Iterator[str]:
    """Yield the tokens of every list of logprobs, joined."""
    if isinstance(value, dict):
        if isinstance(value.get("logprobs"), list):
            yield "".join(entry["token"] for entry in value["logprobs"])
        for member in value.values():
            yield from tokens(member)
    elif isinstance(value, list):
        for member in value:
            yield from tokens(member)


pieces = st.lists(
    st.sampled_from(["pa", "papaya", "ze", "bra", "zeb", " a", "é", '"', "\\", "p", "aya"]), min_size=1, max_size=6
)
item = st.tuples(st.sampled_from(["message", "reasoning", "call"]), pieces)


def answer(items: list[tuple[str, list[str]]], *, logprobs: bool = True) -> Engine:
    engine = Engine()
    for kind, said in items:
        if kind == "call":
            raw = json.dumps({"k": "".join(said), "n": 1})
            engine.call(raw[:7], raw[7:9], raw[9:])
        else:
            engine.text(*said, kind=kind, logprobs=logprobs)
    return engine


@given(st.lists(item, min_size=1, max_size=4), st.booleans())
def test_any_answer_is_told_without_a_gap_a_contradiction_or_a_leak(
    items: list[tuple[str, list[str]]],
    logprobs: bool,
) -> None:
    engine = answer(items, logprobs=logprobs)
    edit, events = play(engine.end())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    shown: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            shown[event["output_index"]] = shown.get(event["output_index"], "") + event["delta"]
    response = events[-1]["response"]
    assert ["".join(texts(entry)) for entry in response["output"]] == [
        shown.get(at, "") for at in range(len(response["output"]))
    ]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == response["output"]
    raw = json.dumps(events)
    assert not any(word in text for word in ("papaya", "zebra") for text in (raw, *tokens(events)))
    deltas = "".join(
        text for event in events if event["type"] == "response.output_text.delta" for text in tokens(event)
    )
    assert "papaya" not in deltas
    assert "zebra" not in deltas
    whole = WholeResponse(json.dumps(engine.events[-1]["response"]).encode())
    whole.filter(channel)
    once = json.loads(whole.close("m", None))
    assert [texts(entry) for entry in response["output"]] == [texts(entry) for entry in once["output"]]
    assert (response["status"], edit.finish_reasons) == (once["status"], whole.finish_reasons)


MODELS = {
    name: model
    for model in vars(models).values()
    if getattr(model, "__name__", "").endswith("Event") and "type" in getattr(model, "model_fields", {})
    for name in typing.get_args(model.model_fields["type"].annotation)
}


@pytest.mark.parametrize(
    "items",
    [
        [("message", ["say ze", "bra"])],
        [("message", ["fine"]), ("call", ["zebra"])],
        [("reasoning", ["ze"]), ("message", ["pap", "aya"])],
        [("reasoning", ["zebra"])],
        [("message", ["eat pap"]), ("message", ["aya"])],
    ],
)
def test_openais_own_models_read_every_event(items: list[tuple[str, list[str]]]) -> None:
    for event in play(answer(items).end(), {"tags": ["x"]})[1]:
        MODELS[event["type"]].model_validate(event)


def test_openais_own_models_read_a_failure_but_for_its_code() -> None:
    begun = ResponsesEditor(channel, model="m")
    begun.feed(answer([("message", ["a"])]).bytes())
    for edit in (begun, ResponsesEditor(channel, model="m")):
        event = told(edit.broken(EngineTimeout("late")))[0]
        event["response"]["error"]["code"] = "server_error"  # OpenAI's list has none of ours
        MODELS["response.failed"].model_validate(event)


def test_each_call_has_its_own_number() -> None:
    asked: list[tuple[int, str, int]] = []
    edit = ResponsesEditor(lambda *channel: asked.append(channel), model="m")
    edit.feed(Engine().text("a").call("{}").text("b").call("{}").end())
    assert list(dict.fromkeys(asked)) == [(0, "content", 0), (0, "arguments", 0), (0, "arguments", 1)]


class Ends(Words):
    """Ends an answer for a reason of its own, as a stop phrase does."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def _take(self, *, end: bool) -> tuple[str, Sequence[Edit]]:
        try:
            return super()._take(end=end)
        except Blocked as blocked:
            raise Blocked("rule", shown=blocked.shown, edits=blocked.edits, finish_reason=self.why) from None


@pytest.mark.parametrize(
    ("why", "status", "details", "item"),
    [("stop", "completed", None, "completed"), ("length", "incomplete", {"reason": "max_output_tokens"}, "incomplete")],
)
def test_a_filter_may_end_an_answer_for_a_reason_of_its_own(
    why: str, status: str, details: dict[str, str] | None, item: str
) -> None:
    def ending(*_: Any) -> ChannelFilter:
        return ChannelFilter(lambda: [Stage("a", Ends(why), Run())], Record())

    engine = answer([("message", ["say ze", "bra", "more"])], logprobs=False)
    edit = ResponsesEditor(ending, model="m")
    events = told(edit.feed(engine.end()) + edit.close(None))
    response = events[-1]["response"]
    assert events[-1]["type"] == f"response.{status}"
    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert (response["output"][0]["status"], texts(response["output"][0])) == (item, ["say "])
    assert edit.finish_reasons == [why]
    whole = WholeResponse(json.dumps(engine.events[-1]["response"]).encode())
    whole.filter(ending)
    once = json.loads(whole.close("m", None))
    assert (once["status"], once["incomplete_details"], whole.finish_reasons) == (status, details, [why])
    assert once["output"][0]["status"] == item


@pytest.mark.parametrize(("kept", "alternatives"), [(-1, None), (0, 0), (1, 1)])
def test_the_caller_sees_as_many_logprobs_as_it_asked_for(kept: int, alternatives: int | None) -> None:
    data = answer([("message", ["a", "b"])]).end()
    edit = ResponsesEditor(channel, model="m", show_logprobs=kept)
    events = told(edit.feed(data) + edit.close(None))
    entries = [entry for event in events if event["type"].endswith("_text.delta") for entry in event["logprobs"]]
    part = events[-1]["response"]["output"][0]["content"][0]
    assert [len(entry["top_logprobs"]) for entry in entries] == ([] if alternatives is None else [alternatives] * 2)
    assert [len(entry["top_logprobs"]) for entry in part["logprobs"]] == (
        [] if alternatives is None else [alternatives] * 2
    )
    assert all(entry["top_logprobs"] for entry in edit.merged()["output"][0]["content"][0]["logprobs"])
    whole = WholeResponse(json.dumps(edit.merged()).encode())
    assert json.loads(whole.close("m", None, kept))["output"][0]["content"][0]["logprobs"] == part["logprobs"]


TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("responses_*.sse"))  # what vLLM 0.32 sent


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_vllm_sent_passes_as_it_came_and_is_masked_throughout(transcript: Path) -> None:
    data = transcript.read_bytes()
    edit = ResponsesEditor(channel, model="smollm2")
    assert edit.feed(data) + edit.close(None) == data
    assert edit.usage is not None
    assert edit.usage.completion_tokens
    edit = ResponsesEditor(channel, model="gpt")
    swaps = ((b"France", b"papaya"), (b"lj", b"papayaj"), (b'"delta":"l"', b'"delta":"papaya"'))
    for word, other in swaps:  # the engine says another word
        data = data.replace(word, other)
    assert b"papaya" in data
    out = edit.feed(data) + edit.close(None)
    assert b"papaya" not in out
    assert b"******" in out
    assert [event["sequence_number"] for event in told(out)] == list(range(len(told(out))))
    assert told(out)[-1]["response"]["model"] == "gpt"
