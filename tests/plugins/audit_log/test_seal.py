"""A chain ties each line to the one before it, by a rule that anybody can check with what the page says."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from plugins.audit_log.seal import NOTHING, Head, Seal, begun, head_of

LINES = [b'{"a":1}\n', b'{"b":"\xe8\xb5\x8c"}\n', b'{"c":[]}\n']


@pytest.mark.parametrize("secret", [None, "a secret of sixteen"])
def test_each_line_holds_the_hash_of_the_one_before_and_its_own(secret: str | None) -> None:
    head = begun()
    linked, end = Seal(secret).linked(LINES, head)
    last = NOTHING
    for number, (line, before) in enumerate(zip(linked, LINES, strict=True), 1):
        told = json.loads(line)
        body, _, _ = line.partition(b',"hash":' if secret is None else b',"hmac":')
        own = (
            hashlib.sha256(body).hexdigest()
            if secret is None
            else hmac.new(secret.encode(), body, "sha256").hexdigest()
        )
        assert body.startswith(before[:-2])
        assert (told["chain"], told["seq"], told["prev"]) == (head.chain, number, last)
        assert told["hash" if secret is None else "hmac"] == own
        assert head_of(line) == Head(head.chain, number, own)
        last = own
    assert end == Head(head.chain, 3, last)


def test_a_chain_goes_on_where_it_was() -> None:
    head = begun()
    together, end = Seal().linked(LINES, head)
    first, middle = Seal().linked(LINES[:1], head)
    rest, end_of_rest = Seal().linked(LINES[1:], middle)
    assert (first + rest, end_of_rest) == (together, end)


def test_what_is_in_no_chain_has_no_head() -> None:
    (line,), _ = Seal().linked([b'{"a":1}\n'], begun())
    assert head_of(b'{"a":1}\n') is None
    assert head_of(line[:-3]) is None
    assert head_of(b"") is None
