"""Keys: the scheme in any case, the key exactly, whatever bytes it is made of."""

from __future__ import annotations

from hashlib import sha256

from gateway.admission.keys import Keyring, Principal

SECRET = "sk-1-é"
RING = Keyring([Principal("team", sha256(SECRET.encode()).hexdigest().upper(), models=frozenset({"m"}))])


def test_a_key_is_found_whatever_the_case_of_the_scheme() -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        found = RING.find(f"{scheme} {SECRET}".encode())
        assert found is not None
        assert found.name == "team"
        assert RING.find(f"{scheme} {SECRET}".encode()) is found, "also from memory"


def test_anything_else_is_nobody() -> None:
    for value in (
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic " + SECRET.encode(),
        SECRET.encode(),
        b"Bearer sk-1-e",
        b"Bearer caf\xe9",
        b"Bearer \xe2\x80\x9csk-1\xe2\x80\x9d",
        f"Bearer {SECRET}x".encode(),
        f"Bearer {SECRET.upper()}".encode(),
    ):
        assert RING.find(value) is None, value


def test_a_key_names_its_models_and_an_operator_is_one_by_role() -> None:
    found = RING.find_key(SECRET.encode())
    assert found is not None
    assert found.may_use("m")
    assert not found.may_use("n")
    assert not found.operator
    assert Principal("ops", role="operator").operator
    assert Principal("all").may_use("anything")
