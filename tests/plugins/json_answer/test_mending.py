"""Spelling is mended, values are not touched, and what was cut off stays so."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.json_answer.mending import Broken, mend

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4))
objects = st.dictionaries(st.text(), values, max_size=4)
spelled = st.builds(
    json.dumps,
    objects,
    ensure_ascii=st.booleans(),
    indent=st.sampled_from([None, 2]),
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
)


@given(spelled)
def test_what_is_json_keeps_its_spelling(text: str) -> None:
    assert mend(text, 0) == (text, len(text))


@given(spelled, st.data())
def test_what_is_cut_off_is_never_completed(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(Broken) as caught:
        mend(text[:cut], 0)
    assert caught.value.cut_off


@given(objects)
def test_python_s_own_spelling_is_the_same_value(value: dict[str, Any]) -> None:
    try:
        mended, end = mend(repr(value), 0)
    except Broken:
        return  # where there is doubt nothing is taken: strings with escapes of Python's alone
    assert end == len(repr(value))
    assert json.loads(mended).keys() == value.keys() or "\\x" in repr(value) or "\\U" in repr(value)


@given(st.text(st.sampled_from("{}[]\"',: \n\\ab1“”：，/*tN"), max_size=40))
def test_what_comes_out_is_always_json(text: str) -> None:
    try:
        mended, _ = mend("{" + text, 0)
    except Broken:
        return
    assert isinstance(json.loads(mended, parse_constant=pytest.fail), dict)


@pytest.mark.parametrize(
    ("nearly", "exactly"),
    [
        ('{"a":[1,2,],}', '{"a":[1,2]}'),
        ("{'a': 'it's', 'b': True, c: None}", '{"a": "it\'s", "b": true, "c": null}'),
        ('{"a":"x\ny\tz\x01"}', r'{"a":"x\ny\tz\u0001"}'),
        (r'{"a":"C:\dir\x", "b":"it\'s"}', r'{"a":"C:\\dir\\x", "b":"it' + "'" + 's"}'),
        ('{"a":NaN,"b":-Infinity}', '{"a":null,"b":null}'),
        ("{“a”：“b”，'c':1}", '{"a":"b","c":1}'),
        ('{"a":1\n"b":2}', '{"a":1\n,"b":2}'),
        ('{"a":"he said "hi" there"}', r'{"a":"he said \"hi\" there"}'),
        ('{"a":1 /* x */, // y\n "b":2}', '{"a":1 , \n "b":2}'),
        ('{"n":12345678901234567890,"e":1e10,}', '{"n":12345678901234567890,"e":1e10}'),
        (r'{"a":"\u8d4c",}', r'{"a":"\u8d4c"}'),
        ('{"tel":138****8000}', '{"tel":"138****8000"}'),
        ('{\u00a0"a":\u3000[]}', '{ "a": []}'),
    ],
)
def test_what_is_safe_to_mend_is_mended(nearly: str, exactly: str) -> None:
    assert mend(nearly, 0) == (exactly, len(nearly))


@pytest.mark.parametrize(
    "doubtful",
    [
        '{"notes":"sent to the "team", waiting"}',
        '{"q":"他说"好"，走了"}',
        '["a "b", c"]',
        '{"a":"x": "y"}',
        '{"a":"x" "b":"y"}',
        '{"a":1 "b":2}',
        '{"a": hello}',
        '{"a": 01}',
        '{"a": 1,000}',
        '{"a":1,,"b":2}',
        '{"a":}',
        '{"a":[1}',
        '{"a":"x\\\ny"}',
        "{1:2}",
    ],
)
def test_where_there_is_doubt_nothing_is_mended(doubtful: str) -> None:
    with pytest.raises(Broken) as caught:
        mend(doubtful, 0)
    assert not caught.value.cut_off


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":"' + 'x" ' * 100_000,
        '{"a":' + '"x" y ' * 50_000,
        "[" + "/*" * 100_000,
        '{"a":"' + "\\" * 100_001,
        "[" + "1," * 100_000,
    ],
)
def test_it_gives_up_quickly(bomb: str) -> None:
    began = process_time()
    with pytest.raises(Broken):
        mend(bomb, 0)
    assert process_time() - began < 1
