"""What an engine writes is read whatever numbers are in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.numbers import decoded

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(values)
def test_what_can_be_held_is_read_as_it_is_beside_what_cannot(value: Any) -> None:
    raw = msgspec.json.encode(value)
    assert decoded(raw) == value
    assert decoded(b"[1e400,%b]" % raw) == [None, value]


@pytest.mark.parametrize("number", [b"1e400", b"-1e999", b"9" * 5000, b"-1.5e310"])
def test_what_no_reader_holds_is_null(number: bytes) -> None:
    assert decoded(b'{"a":%b,"b":1.5}' % number) == {"a": None, "b": 1.5}
    assert decoded(msgspec.Raw(number)) is None


@pytest.mark.parametrize("rubbish", [b"{", b"[1e400", b"", b"nul"])
def test_what_is_no_json_is_a_value_error(rubbish: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(rubbish)
