"""A streamed answer: untouched bytes stay untouched, edited text stays inside its chunk, ends end properly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import EngineError
from gateway.protocol import stream as stream_module
from gateway.protocol.stream import StreamEditor


class Word:
    """Masks "papaya", blocks "zebra"; holds back while either may come."""

    def __init__(self) -> None:
        self.pending, self.fed, self.told = "", 0, 0
        self.blocked: str | None = None

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        self.fed += len(text)
        self.pending += text
        return self._take(end=False)

    def finish(self) -> tuple[str, Sequence[tuple[int, int, str]]]:
        return self._take(end=True)

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        raise AssertionError(f"nothing in a stream is whole: {text}")

    def _take(self, *, end: bool) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown, edits = "", []
        while self.pending and self.blocked is None:
            if self.pending.startswith("papaya"):
                edits.append((self.told, self.told + 6, "******"))
                shown, self.pending, self.told = shown + "******", self.pending[6:], self.told + 6
            elif self.pending.startswith("zebra"):
                self.blocked = "zebra"
            elif not end and any(word.startswith(self.pending) for word in ("papaya", "zebra")):
                break
            else:
                shown, self.pending, self.told = shown + self.pending[0], self.pending[1:], self.told + 1
        return shown, edits


def editor(
    *, choices: int = 1, usage: bool = False, watch: bool = True, model: str = "m", merge: bool = False
) -> StreamEditor:
    return StreamEditor(
        lambda *_: Word() if watch else None, model=model, choices=choices, want_usage=usage, merge=merge
    )


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **more}
    body = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def usage_chunk() -> bytes:
    used = {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}
    return b"data: " + json.dumps({"id": "c-1", "model": "m", "choices": [], "usage": used}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def say(*texts: str, **more: Any) -> bytes:
    return b"".join(
        [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}, **more) for text in texts)]
    )


def play(edit: StreamEditor, data: bytes, cuts: Sequence[int] = (), extra: dict[str, Any] | None = None) -> bytes:
    out = b""
    for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True):
        out += edit.feed(data[a:b])
    if edit.done or edit.abort:
        out += edit.close(extra)
    return out


def events(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame[6:]) for frame in out.split(b"\n\n") if frame.startswith(b"data: {")]


def text_of(out: bytes, index: int = 0, kind: str = "content") -> str:
    return "".join(c["delta"].get(kind) or "" for e in events(out) for c in e["choices"] if c["index"] == index)


def ends_of(out: bytes, index: int = 0) -> list[str]:
    return [c["finish_reason"] for e in events(out) for c in e["choices"] if c["index"] == index and c["finish_reason"]]


def test_a_clean_stream_leaves_byte_for_byte_as_it_came() -> None:
    data = say("你", "好\u2028", "🌍") + chunk({"content": "!"}, "stop", stop_reason=None, unknown={"x": 1}) + DONE
    assert play(editor(), data) == data


@given(st.data())
def test_any_cut_of_the_bytes_gives_the_same_answer(data: st.DataObject) -> None:
    stream = say("a pa", "pay", "a b 你", "好 ze") + chunk({"content": "br"}, "stop") + usage_chunk() + DONE
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    assert play(editor(usage=True), stream, cuts) == play(editor(usage=True), stream)


def test_a_word_split_over_chunks_is_masked_and_the_rest_flows() -> None:
    out = play(editor(), say("eat pa", "pa", "ya now") + chunk({}, "stop") + DONE)
    assert text_of(out) == "eat ****** now"
    assert b"papa" not in out
    assert out.endswith(DONE)


def test_held_text_is_released_before_the_finish_reason() -> None:
    out = play(editor(), say("see the pap") + chunk({}, "stop") + DONE)
    assert text_of(out) == "see the pap"
    assert events(out)[-1]["choices"][0]["finish_reason"] == "stop"
    assert not events(out)[-1]["choices"][0]["delta"].get("content")


def test_the_finish_chunk_may_carry_the_last_text_and_what_was_held() -> None:
    out = play(editor(), say("pap") + chunk({"content": "a!"}, "stop") + DONE)
    assert text_of(out) == "papa!"


def test_a_block_ends_the_choice_with_the_text_before_it_and_nothing_of_it() -> None:
    edit = editor(usage=True)
    out = play(edit, say("say ze", "bra", "more zebra text") + chunk({"content": "x"}, "stop") + usage_chunk() + DONE)
    assert text_of(out) == "say "
    assert ends_of(out) == ["content_filter"]
    assert edit.abort
    assert events(out)[-1]["usage"]["completion_tokens"] > 0
    assert events(out)[-1]["sluice"]["usage"] == "estimate"
    assert out.endswith(DONE)


def test_choices_are_independent() -> None:
    stream = b"".join(
        [
            chunk({"content": "ze"}),
            chunk({"content": "hello "}, index=1),
            chunk({"content": "bra"}),
            chunk({"content": "world"}, index=1),
            chunk({"content": ""}, "stop"),
            chunk({"content": ""}, "stop", index=1),
            DONE,
        ]
    )
    out = play(editor(choices=2), stream)
    assert (text_of(out, 0), ends_of(out, 0)) == ("", ["content_filter"])
    assert (text_of(out, 1), ends_of(out, 1)) == ("hello world", ["stop"])


def test_reasoning_and_content_are_separate_texts() -> None:
    stream = chunk({"reasoning": "ze"}) + chunk({"content": "bra"}, "stop") + DONE
    assert play(editor(), stream).count(b"content_filter") == 0
    blocked = play(editor(), chunk({"reasoning": "ze"}) + chunk({"reasoning": "bra"}) + DONE)
    assert ends_of(blocked) == ["content_filter"]


def tool(arguments: str | None, index: int = 0, **more: Any) -> bytes:
    function = {**more.pop("function", {}), **({"arguments": arguments} if arguments is not None else {})}
    return chunk({"tool_calls": [{"index": index, **more, "function": function}]})


def test_tool_arguments_are_filtered_value_by_value_and_stay_json() -> None:
    stream = b"".join(
        [
            tool("", id="a", function={"name": "f"}),
            tool('{"x": "pap'),
            tool('aya", "pap'),
            tool('aya": 1}'),
            chunk({}, "tool_calls"),
            DONE,
        ]
    )
    out = play(editor(), stream)
    joined = "".join(
        call["function"].get("arguments") or ""
        for event in events(out)
        for c in event["choices"]
        for call in c["delta"].get("tool_calls", ())
    )
    assert json.loads(joined) == {"x": "******", "papaya": 1}
    assert ends_of(out) == ["tool_calls"]


def test_an_escaped_pair_cut_between_deltas_keeps_its_bytes() -> None:
    stream = tool('{"m":"\\ud83d') + tool('\\ude00"}') + chunk({}, "tool_calls") + DONE
    out = play(editor(), stream)
    joined = "".join(
        call["function"]["arguments"]
        for event in events(out)
        for c in event["choices"]
        for call in c["delta"].get("tool_calls", ())
    )
    assert joined == '{"m":"\\ud83d\\ude00"}'


def logprobs(*tokens: str) -> dict[str, Any]:
    return {
        "content": [
            {"token": t, "logprob": -0.5, "bytes": list(t.encode()), "top_logprobs": [{"token": t}]} for t in tokens
        ]
    }


def test_logprobs_never_tell_what_the_text_does_not() -> None:
    stream = b"".join(
        [
            chunk({"content": "eat pa"}, logprobs=logprobs("eat", " ", "pa")),
            chunk({"content": "paya"}, logprobs=logprobs("paya")),
            chunk({"content": " now"}, logprobs=logprobs(" now")),
            chunk({"content": " ze"}, logprobs=logprobs(" ze")),
            chunk({"content": "bra"}, logprobs=logprobs("bra")),
            DONE,
        ]
    )
    out = play(editor(), stream)
    tokens = [
        e["token"] for event in events(out) for c in event["choices"] for e in (c["logprobs"] or {}).get("content", ())
    ]
    assert tokens == ["eat", " ", "**", "****", " now"]
    assert b'"pa"' not in out
    assert b'"bra"' not in out


def test_logprobs_of_text_that_was_only_held_come_with_it() -> None:
    stream = (
        chunk({"content": "pa"}, logprobs=logprobs("pa"))
        + chunk({"content": "x"}, "stop", logprobs=logprobs("x"))
        + DONE
    )
    out = play(editor(), stream)
    assert text_of(out) == "pax"
    tokens = [
        e["token"] for event in events(out) for c in event["choices"] for e in (c["logprobs"] or {}).get("content", ())
    ]
    assert tokens == ["pa", "x"]


pieces = st.lists(
    st.one_of(
        st.sampled_from(["pa", "pay", "papaya ", "ze", "zeb", "zebra", "a b", "你好", '\n"', "", "p"]).map(
            lambda t: chunk({"content": t})
        ),
        st.sampled_from(["pa", "ya", "x"]).map(lambda t: chunk({"content": t}, logprobs=logprobs(t))),
        st.just(chunk({"role": "assistant", "content": ""})),
        st.just(chunk({"reasoning": "pa"})),
        st.sampled_from(["b", "pa"]).map(lambda t: chunk({"content": t}, index=1)),
    ),
    max_size=12,
)


@given(pieces, st.sampled_from(["m", "alias"]))
def test_chunks_of_a_known_form_are_told_as_if_each_had_been_read(said: list[bytes], model: str) -> None:
    data = b"".join([*said, chunk({"content": "pa"}, "stop"), chunk({}, "stop", index=1), usage_chunk(), DONE])
    quick = editor(choices=2, usage=True, model=model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "FORMS", 0)
        slow = editor(choices=2, usage=True, model=model)
    assert events(play(quick, data)) == events(play(slow, data))
    told = ("events", "chars", "chunks", "finish_reasons", "complete", "abort", "done")
    assert [getattr(quick, name) for name in told] == [getattr(slow, name) for name in told]


def with_a_choice() -> bytes:
    """The last chunk as `transformers serve` writes it: usage beside a choice."""
    body = json.loads(chunk({}, "stop")[6:])
    used = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    return b"data: " + json.dumps(body | {"usage": used}).encode() + b"\n\n"


def test_usage_beside_a_choice_is_dropped_where_nobody_asked_for_it() -> None:
    (*_, last) = events(play(edit := editor(), say("hi") + with_a_choice() + DONE))
    assert last["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in last
    assert edit.usage is not None
    assert edit.usage.completion_tokens == 7


def test_usage_beside_a_choice_is_told_as_the_engine_counted_it() -> None:
    (*_, last) = events(play(editor(usage=True), say("hi") + with_a_choice() + DONE))
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    assert "sluice" not in last


def test_usage_that_was_not_asked_for_is_dropped_but_known() -> None:
    edit = editor()
    data = say("hi") + chunk({}, "stop")
    assert play(edit, data + usage_chunk() + DONE) == data + DONE
    assert edit.usage is not None
    assert edit.usage.completion_tokens == 2


def test_what_is_said_about_the_whole_goes_into_the_last_chunk() -> None:
    stream = say("hi") + chunk({}, "stop") + usage_chunk() + DONE
    assert events(play(editor(usage=True), stream, extra={"tags": ["soft"]}))[-1]["sluice"] == {"tags": ["soft"]}
    last = events(play(editor(), stream, extra={"tags": ["soft"]}))[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["sluice"] == {"tags": ["soft"]}


def test_the_callers_name_of_the_model_stands_in_every_chunk() -> None:
    out = play(editor(model="alias-名", watch=False), say('"model":"m"') + chunk({}, "stop") + DONE)
    assert {event["model"] for event in events(out)} == {"alias-名"}
    assert text_of(out) == '"model":"m"'


def test_a_stream_without_an_end_is_a_failure_and_gets_no_end() -> None:
    for stream in (say("hi"), say("hi") + DONE, say("hi") + chunk({"content": ""}, "abort") + DONE):
        edit = editor()
        out = edit.feed(stream)
        edit.end()
        assert isinstance(edit.failure, EngineError)
        assert b"DONE" not in out
        assert not ends_of(out)


def test_an_error_event_is_the_engines_failure_and_its_done_means_nothing() -> None:
    edit = editor()
    edit.feed(b'data: {"error": {"message": "boom", "type": "BadRequestError", "param": null, "code": 400}}\n\n' + DONE)
    assert edit.failure is not None
    assert edit.failure.status == 400
    assert not edit.complete


def test_rubbish_is_a_failure() -> None:
    for payload in (b"data: {\n\n", b"data: []\n\n", b'data: {"choices": 3}\n\n', b"data: {}\n\n", b"data: nope\n\n"):
        edit = editor()
        edit.feed(payload)
        assert isinstance(edit.failure, EngineError), payload


def test_a_stream_can_be_put_together_as_it_was_shown() -> None:
    edit = editor(merge=True)
    play(
        edit,
        say("eat papaya")
        + tool('{"a"', id="t", function={"name": "f"})
        + tool(":1}")
        + chunk({}, "stop")
        + usage_chunk()
        + DONE,
    )
    whole = edit.merged()
    message = whole["choices"][0]["message"]
    assert message["content"] == "eat ******"
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] == 2


def test_what_an_engine_says_after_a_choices_end_is_not_shown() -> None:
    out = play(
        editor(), say("ze") + chunk({}, "stop") + chunk({"content": "bra"}) + chunk({"content": "x"}, "stop") + DONE
    )
    assert (text_of(out), ends_of(out)) == ("ze", ["stop"])


def test_a_calls_name_may_end_the_answer_and_is_not_shown_then() -> None:
    out = play(editor(), say("hi") + tool("", id="a", function={"name": "zebra"}) + chunk({}, "tool_calls") + DONE)
    assert (text_of(out), ends_of(out)) == ("hi", ["content_filter"])
    assert b"zebra" not in out


@given(st.data())
def test_a_calls_name_is_judged_as_clients_put_its_pieces_together(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, 6), min_size=1)))
    pieces = ["x-zebra"[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    named = b"".join(tool("", function={"name": piece}) for piece in pieces)
    out = play(editor(), named + tool('{"a":1}') + chunk({}, "tool_calls") + DONE)
    assert ends_of(out) == ["content_filter"]
    told = [call["function"]["name"] for e in events(out) for c in e["choices"] for call in c["delta"]["tool_calls"]]
    assert "zebra" not in "".join(told)
    clean = tool("", function={"name": "pa"}) + tool("", function={"name": "paya"}) + chunk({}, "tool_calls") + DONE
    assert play(editor(), clean) == clean


def test_a_message_in_a_stream_is_no_field_of_its_form_and_filtered() -> None:
    def whole(text: str) -> bytes:
        return chunk({}, "stop", message={"role": "assistant", "content": text}).replace(b'"delta":{},', b"") + DONE

    assert b"******" in play(editor(), whole("a papaya"))
    out = play(editor(), whole("a zebra"))
    assert b"zebra" not in out
    assert ends_of(out) == ["content_filter"]


def test_an_estimate_counts_the_prompt_too() -> None:
    edit = editor(usage=True)
    edit.prompt_estimate = 7
    assert events(play(edit, say("say zebra")))[-1]["usage"]["prompt_tokens"] == 7
