"""Texts of a body: an edit gets back to its place."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.text import Joined, Json, Key, Name, Number, Text, Value


def edits_of(text: str, data: st.DataObject) -> list[tuple[int, int, str]]:
    bounds = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [
        (start, end, data.draw(st.text("xyz", max_size=4)))
        for start, end in zip(bounds[::2], bounds[1::2], strict=False)
    ]


def applied(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=5), st.data())
def test_an_edit_across_parts_reads_as_one_edit(parts: list[str], data: st.DataObject) -> None:
    body = [{"text": part} for part in parts]
    text = Joined([(part, "text") for part in body], "content[0]")
    edits = edits_of(text.text, data)
    expected = applied(text.text, edits)
    text.edit(edits)
    assert text.text == "".join(part["text"] for part in body) == expected


def test_a_mask_of_the_same_length_keeps_every_part_its_length() -> None:
    body = [{"text": "so forbidden"}, {"text": "zebra it is"}]
    Joined([(part, "text") for part in body], "content[0]").edit([(3, 17, "*" * 14)])
    assert [part["text"] for part in body] == ["so *********", "***** it is"]


def test_replacing_a_joined_text_replaces_all_of_it() -> None:
    body = ["ab", "", "cd"]
    text = Joined([(body, 0), (body, 1), (body, 2)], "content[0]")
    text.replace("x")
    assert (text.text, "".join(body)) == ("x", "x")


def test_several_edits_one_after_the_other_hit_the_text_as_it_is_by_then() -> None:
    body = {"content": "one two"}
    text = Text(body, "content", "content")
    text.edit([(0, 3, "1")])
    text.edit([(2, 5, "2")])
    assert body == {"content": "1 2"}


def test_a_text_never_shows_itself_in_a_log() -> None:
    assert repr(Text({"content": "secret"}, "content", "messages[0].content")) == "<Text messages[0].content>"


def test_a_renamed_member_keeps_its_value_and_two_alike_are_both_kept() -> None:
    body = {"a": 1, "b": 2, "c": 3}
    for ordinal, name in enumerate(("a", "b")):
        Key(body, name, "x", ordinal).replace("*")
    assert sorted(body.values()) == [1, 2, 3]
    assert "*" in body


def test_a_value_is_edited_under_its_new_name() -> None:
    body = {"a": "b"}
    key, value = Key(body, "a", "x", 0), Text(body, "a", "x.a")
    key.value = value
    key.replace("c")
    value.replace("d")
    assert body == {"c": "d"}


def test_values_in_json_are_edited_and_the_rest_keeps_its_spelling() -> None:
    body = {"arguments": '{ "tel":13800138000, "n": "a\\u0062\\/c" ,"m":"\\ud83d\\ude00"}'}
    whole = Json(body, "arguments")
    tel, note = (Value(whole, index, "arguments") for index in (1, 3))
    assert (tel.text, note.text) == ("13800138000", "ab/c")
    tel.edit([(3, 7, "****")])
    note.edit([(1, 2, '"')])
    assert body["arguments"] == '{ "tel":"138****8000", "n": "a\\"\\/c" ,"m":"\\ud83d\\ude00"}'
    tel.replace("0")
    assert json.loads(body["arguments"]) == {"tel": "0", "n": 'a"/c', "m": "😀"}


def test_an_edited_number_becomes_a_string_unless_it_has_to_be_one() -> None:
    body = {"a": 2**70, "b": 0.5}
    Number(body, "a", "a", fixed=False).edit([(0, 2, "**")])
    fixed = Number(body, "b", "b", fixed=True)
    fixed.replace("x")
    assert body == {"a": "**80591620717411303424", "b": 0.5}
    assert fixed.text == "0.5"


def test_two_names_that_a_mask_makes_alike_lose_no_value() -> None:
    body = {"a": '{"li@a.b": 1, "lo@a.b": 2, "x": 3}'}
    whole = Json(body, "a")
    for index in (0, 2):
        Name(whole, index, "a").edit([(1, 2, "*")])
    Name(whole, 4, "a").edit([])
    assert body["a"] == '{"l*@a.b": 1, "l*@a.b_2": 2, "x": 3}'
