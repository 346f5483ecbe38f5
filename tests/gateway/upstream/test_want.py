"""Whose requests an engine is for."""

from __future__ import annotations

from gateway.upstream.want import ANY, Preference, Want


def test_a_preference_is_met_by_key_by_header_or_by_importance() -> None:
    preference = Preference(frozenset({"beta"}), {b"x-canary": b"1"}, -10)
    assert not preference.meets(ANY)
    assert preference.meets(Want(key="beta"))
    assert preference.meets(Want(headers={b"x-canary": b"1"}))
    assert preference.meets(Want(priority=-11))
    assert not preference.meets(Want(key="alpha", headers={b"x-canary": b"true"}, priority=-9))


def test_an_empty_preference_is_met_by_nobody() -> None:
    assert not Preference().meets(Want(key="", headers={b"x": b"y"}, priority=-100))
