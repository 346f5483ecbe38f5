"""A streamed message in Anthropic's form: vLLM's own events, untouched where nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import EngineError, EngineTimeout, Refused
from gateway.protocol.filtering import Blocked
from gateway.protocol.messages_stream import MessagesEditor
from gateway.protocol.messages_whole import WholeMessage, as_stream
from tests.fakes.responses import Word, frame


def start(model: str = "m", **usage: int) -> bytes:
    message: dict[str, Any] = {"id": "chatcmpl-83f9", "type": "message", "role": "assistant", "content": [],
               "model": model,
               "stop_reason": None, "stop_sequence": None,
               "usage": {"input_tokens": 37, "output_tokens": 0, **usage}}  # fmt: skip
    return frame({"type": "message_start", "message": message})


def block(index: int, *pieces: str, kind: str = "text") -> bytes:
    forms: dict[str, tuple[dict[str, Any], str, str]] = {
        "text": ({"type": "text", "text": ""}, "text_delta", "text"),
        "thinking": ({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking"),
        "tool_use": (
            {"type": "tool_use", "id": "call_1", "name": "mail", "input": {}},
            "input_json_delta",
            "partial_json",
        ),
    }
    form, name, field = forms[kind]
    told = [frame({"type": "content_block_start", "content_block": form, "index": index})]
    told += [
        frame({"type": "content_block_delta", "delta": {"type": name, field: piece}, "index": index})
        for piece in pieces
    ]
    if kind == "thinking":
        signature = {"type": "signature_delta", "signature": "5f1a"}
        told.append(frame({"type": "content_block_delta", "delta": signature, "index": index}))
    return b"".join([*told, frame({"type": "content_block_stop", "index": index})])


def stop(reason: str | None = "end_turn", output: int = 8) -> bytes:
    usage = {"input_tokens": 37, "output_tokens": output}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return frame({"type": "message_delta", "delta": delta, "usage": usage}) + frame({"type": "message_stop"})


def editor(*, watch: bool = True, model: str = "m", merge: bool = True) -> MessagesEditor:
    return MessagesEditor(lambda *_: Word() if watch else None, model=model, merge=merge)


def play(edit: MessagesEditor, data: bytes, cuts: Sequence[int] = (), extra: dict[str, Any] | None = None) -> bytes:
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


def texts(out: bytes) -> list[str]:
    """The text of each block, as a client puts it together; every block is begun before it speaks, and ended."""
    blocks: dict[int, str] = {}
    ended: set[int] = set()
    for event in events(out):
        if event["type"] == "content_block_start":
            form = event["content_block"]
            blocks[event["index"]] = form.get("text", "") + form.get("thinking", "")
        elif event["type"] == "content_block_delta":
            assert event["index"] not in ended
            delta = event["delta"]
            blocks[event["index"]] += delta.get("text", "") + delta.get("thinking", "") + delta.get("partial_json", "")
        elif event["type"] == "content_block_stop":
            ended.add(event["index"])
    assert ended == blocks.keys()
    return [text for _, text in sorted(blocks.items())]


def reason(out: bytes) -> str:
    told = events(out)
    assert [event["type"] for event in told[-2:]] == ["message_delta", "message_stop"]
    return str(told[-2]["delta"]["stop_reason"])


def test_a_clean_stream_leaves_byte_for_byte_as_it_came() -> None:
    data = start() + block(0, "我", "想", kind="thinking") + block(1, "The", " capital\u2028") + frame({"type": "ping"})
    data += block(2, '{"to": ', '"li"}', kind="tool_use") + stop("tool_use")
    assert play(editor(), data) == data
    assert play(editor(watch=False), data) == data


def test_the_editor_counts_and_knows_how_it_ended() -> None:
    edit = editor()
    play(edit, start(cache_read_input_tokens=5) + block(0, "The", " end") + stop("max_tokens"))
    assert edit.usage is not None
    assert (edit.usage.prompt_tokens, edit.usage.completion_tokens) == (37, 8)
    assert (edit.finish_reasons, edit.complete, edit.done, edit.abort, edit.failure) == (
        ["length"],
        True,
        True,
        False,
        None,
    )
    assert (edit.events, edit.chars, edit.chunks) == (7, 7, 2)
    early = editor()
    early.feed(start(cache_read_input_tokens=5))
    assert early.usage is not None
    assert early.usage.prompt_tokens == 42


STREAMS: dict[str, Callable[[], bytes]] = {
    "masked": lambda: start() + block(0, "eat pa", "pa", "ya 你", "好") + stop(),
    "blocked": lambda: start() + block(0, "hm", kind="thinking") + block(1, "say ze", "bra", " no") + stop(),
    "thinking": lambda: start() + block(0, "eat pap", kind="thinking") + block(1, "aya") + stop(),
    "input": lambda: start() + block(0, '{"to":"pap', 'aya","n":', "12}", kind="tool_use") + stop("tool_use"),
    "input blocked": lambda: start() + block(0, '{"q":"ze', 'bra"}', kind="tool_use") + stop("tool_use"),
    "over two blocks": lambda: start() + block(0, "eat pa") + block(1, "paya ze", "b") + stop(),
}


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_cut_of_the_bytes_gives_the_same_answer(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert play(editor(), stream, cuts) == play(editor(), stream)


@pytest.mark.parametrize("name", STREAMS)
def test_the_whole_put_together_is_what_was_shown(name: str) -> None:
    edit = editor()
    out = play(edit, STREAMS[name]())
    merged = edit.merged()
    if "input" not in name:
        assert [part.get("text", part.get("thinking")) for part in merged["content"]] == texts(out)
    elif edit.abort:
        assert merged["content"][0]["input"] == {}
    else:
        assert merged["content"][0]["input"] == json.loads(texts(out)[0])
    assert merged["stop_reason"] == reason(out)
    assert (merged["id"], merged["type"], merged["role"]) == ("chatcmpl-83f9", "message", "assistant")


def test_a_word_split_over_deltas_is_masked_and_the_rest_flows() -> None:
    out = play(editor(), STREAMS["masked"]())
    assert texts(out) == ["eat ****** 你好"]
    assert b"pap" not in out


def test_held_text_comes_before_the_end_of_its_block() -> None:
    assert texts(play(editor(), start() + block(0, "see the pap") + stop())) == ["see the pap"]
    out = play(editor(), start() + block(0, "see the pap", kind="thinking") + block(1, "hi") + stop())
    assert texts(out) == ["see the pap", "hi"]
    deltas = [event["delta"]["type"] for event in events(out) if event["type"] == "content_block_delta"]
    assert deltas == ["thinking_delta", "thinking_delta", "signature_delta", "text_delta"]


def test_a_block_ends_the_message_as_a_refusal() -> None:
    edit = editor()
    out = play(edit, start() + block(0, "say ze", "bra", "more zebra") + block(1, "x") + stop(), extra={"tags": ["a"]})
    assert edit.abort
    assert edit.finish_reasons == ["content_filter"]
    assert texts(out) == ["say "]
    assert reason(out) == "refusal"
    ended = events(out)[-2]
    assert ended["usage"]["input_tokens"] == 37
    assert ended["usage"]["output_tokens"] > 0
    assert ended["sluice"] == {"tags": ["a"], "usage": "estimate"}
    assert b"zebra" not in out


def test_a_block_in_an_input_shows_nothing_of_the_hit() -> None:
    out = play(editor(), start() + block(0, '{"to":"li","q":"a ze', 'bra"}', kind="tool_use") + stop("tool_use"))
    assert texts(out) == ['{"to":"li","q":"a ']
    assert reason(out) == "refusal"


class Ends(Word):
    """Ends an answer for a reason of its own, as a stop phrase does."""

    why = "stop"

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown = super().feed(text)
        if self.blocked is not None:
            self.blocked = Blocked("rule", finish_reason=self.why)
        return shown


@pytest.mark.parametrize(
    ("why", "told"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_a_filter_may_end_a_message_for_a_reason_of_its_own(why: str, told: str) -> None:
    def ending(*_: Any) -> Ends:
        made = Ends()
        made.why = why
        return made

    edit = MessagesEditor(ending, model="m", merge=True)
    out = play(edit, start() + block(0, "say ze", "bra", "more") + stop())
    assert (texts(out), reason(out), edit.finish_reasons) == (["say "], told, [why])
    assert edit.merged()["stop_reason"] == told
    content = [{"type": "text", "text": "say zebra"}]
    whole = WholeMessage(json.dumps({"content": content, "stop_reason": "end_turn", "model": "m"}).encode())
    whole.filter(ending)
    assert json.loads(whole.close("m", None))["stop_reason"] == told
    assert whole.finish_reasons == [why]


def test_an_input_stays_json() -> None:
    out = play(editor(), start() + block(0, '{"pa":"pap', 'aya\\n","n":1', "}", kind="tool_use") + stop("tool_use"))
    assert json.loads(texts(out)[0]) == {"pa": "******\n", "n": 1}


def test_thinking_and_text_are_separate_and_adjacent_blocks_of_text_are_one() -> None:
    assert reason(play(editor(), start() + block(0, "ze", kind="thinking") + block(1, "bra") + stop())) == "end_turn"
    assert reason(play(editor(), start() + block(0, "ze", "bra", kind="thinking") + stop())) == "refusal"
    assert reason(play(editor(), start() + block(0, "ze") + block(1, "bra") + stop())) == "refusal"
    out = play(editor(), start() + block(0, "eat pa") + block(1, "paya") + stop())
    assert texts(out) == ["eat ", "******"]
    calls = start() + block(0, "ze") + block(1, "{}", kind="tool_use") + block(2, "bra") + stop("tool_use")
    assert texts(play(editor(), calls)) == ["ze", "{}", "bra"]


def test_two_calls_are_two_inputs() -> None:
    data = start() + block(0, '{"a":"ze', kind="tool_use") + block(1, 'bra"}', kind="tool_use") + stop("tool_use")
    assert reason(play(editor(), data)) == "tool_use"


def test_the_model_is_called_what_the_caller_called_it() -> None:
    out = play(editor(model="claude"), start() + block(0, "hi") + stop())
    assert events(out)[0]["message"]["model"] == "claude"
    assert out.endswith(block(0, "hi") + stop())


@pytest.mark.parametrize(
    "content", [{"type": "text", "text": "a papaya"}, {"type": "server_tool_use", "query": "a papaya"}]
)
def test_what_a_block_begins_with_is_text_too(content: dict[str, Any]) -> None:
    data = frame({"type": "content_block_start", "content_block": content, "index": 0})
    data += frame({"type": "content_block_stop", "index": 0})
    assert b"a ******" in play(editor(), start() + data + stop())
    blocked = play(editor(), start() + data.replace(b"papaya", b"zebra") + stop())
    assert b"zebra" not in blocked
    assert reason(blocked) == "refusal"


def test_an_input_that_comes_at_once_is_filtered() -> None:
    content = {"type": "tool_use", "id": "a", "name": "f", "input": {"to": "papaya", "n": 2**60}}
    data = frame({"type": "content_block_start", "content_block": content, "index": 0})
    data += frame({"type": "content_block_stop", "index": 0})
    shown = events(play(editor(), start() + data + stop()))[1]["content_block"]
    assert shown["input"] == {"to": "******", "n": 2**60}
    blocked = play(editor(), start() + data.replace(b"papaya", b"zebra") + stop())
    assert events(blocked)[1]["content_block"]["input"] == {}
    assert reason(blocked) == "refusal"


def test_an_engine_that_announces_no_block_is_filtered_all_the_same() -> None:
    told = [{"type": "text_delta", "text": "ze"}, {"type": "text_delta", "text": "bra"}]
    data = b"".join(frame({"type": "content_block_delta", "delta": delta, "index": 0}) for delta in told)
    edit = editor()
    assert b"ze" not in play(edit, start() + data + stop()).replace(b'"usage"', b"")
    assert edit.finish_reasons == ["content_filter"]


def test_an_unknown_event_or_delta_passes_only_where_nobody_watches() -> None:
    data = start() + frame({"type": "song", "text": "zebra"})
    data += block(0, "hi").replace(b"event: content_block_stop", frame(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"a": "zebra"}}}
    ) + b"event: content_block_stop") + stop()  # fmt: skip
    assert play(editor(watch=False), data) == data
    out = play(editor(), data)
    assert b"zebra" not in out
    assert texts(out) == ["hi"]


@pytest.mark.parametrize(
    "data",
    [
        frame({"type": "error", "error": {"type": "internal_error", "message": "x"}}),
        frame({"type": "message_start", "message": 1}),
        frame({"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}}),
        frame({"type": "content_block_start", "content_block": "x"}),
        b"data: {}\n\n",
        b"data: [DONE]\n\n",
        start() + block(0, "hi") + stop(None),
        start() + stop("end_turn", 0),
        start() + block(0, "hi") + frame({"type": "message_stop"}),
        start() + b"event: x\ndata: {",
    ],
)
def test_a_stream_that_is_none_is_a_failure(data: bytes) -> None:
    edit = editor()
    edit.feed(data)
    edit.end()
    assert isinstance(edit.failure, EngineError)


def test_an_error_that_vllm_itself_misread_keeps_its_status() -> None:
    message = (
        "2 validation errors for ChatCompletionStreamResponse\nmodel\n  Field required [type=missing, input_value="
        "{'error': {'message': 'Gr...am': None, 'code': 400}}, input_type=dict]"
    )
    edit = editor()
    edit.feed(frame({"type": "error", "error": {"type": "internal_error", "message": message}}))
    assert isinstance(edit.failure, Refused)
    assert edit.failure.status == 400
    assert "Gr..." not in edit.failure.message
    assert edit.events == 0


def test_a_failure_after_the_beginning_is_told_in_anthropics_shape() -> None:
    edit = editor()
    out = edit.feed(start() + block(0, "hi")) + edit.broken(EngineTimeout("late"))
    assert events(out)[-1] == {"type": "error", "error": {"type": "timeout_error", "message": "late"}}


def test_extra_goes_into_the_message_delta() -> None:
    out = play(editor(), start() + block(0, "hi") + stop(), extra={"tags": ["x"]})
    assert out.startswith(start() + block(0, "hi"))
    assert events(out)[-2]["sluice"] == {"tags": ["x"]}
    assert events(out)[-2]["usage"]["output_tokens"] == 8


words = st.lists(st.sampled_from(["pa", "papaya", "ze", "bra", "zeb", " a", "é", '"', "\\"]), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.sampled_from(["text", "thinking"]), words), min_size=1, max_size=4))
def test_the_streamed_answer_equals_the_whole_one(blocks: list[tuple[str, list[str]]]) -> None:
    data = start() + b"".join(block(at, *pieces, kind=kind) for at, (kind, pieces) in enumerate(blocks)) + stop()
    out = play(editor(), data)
    content = [{"type": kind, kind: "".join(pieces)} for kind, pieces in blocks]
    whole = WholeMessage(json.dumps({"content": content, "stop_reason": "end_turn", "model": "m"}).encode())
    whole.filter(lambda *_: Word())
    message = json.loads(whole.close("m", None))
    assert texts(out) == [part[part["type"]] for part in message["content"]]
    assert reason(out) == message["stop_reason"]


def test_a_whole_answer_is_told_as_a_stream() -> None:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "5f"}, {"type": "text", "text": "hi"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}],
        "usage": {"input_tokens": 3, "output_tokens": 4}, "sluice": {"tags": ["x"]},
    }  # fmt: skip
    out = as_stream(message)
    assert texts(out) == ["hm", "hi", '{"a":1}']
    assert reason(out) == "tool_use"
    assert events(out)[-2]["sluice"] == {"tags": ["x"]}
    edit = editor()
    assert play(edit, out) == out
    assert edit.merged()["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "5f"}, {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]  # fmt: skip


TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("messages_*.sse"))  # what vLLM 0.32 sent


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_what_vllm_sent_passes_as_it_came(transcript: Path) -> None:
    edit = editor(model="smollm2")
    assert play(edit, transcript.read_bytes()) == transcript.read_bytes()
    assert edit.merged()["usage"]["output_tokens"] in {8, 40}
