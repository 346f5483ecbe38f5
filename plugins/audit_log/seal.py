"""The chain of hashes through a log: each line names the hash of the one before it and its own, so a change shows.

A line ends with ``,"chain":ID,"seq":N,"prev":HASH,"hash":HASH}``. Its own hash is the SHA-256 of every byte before
``,"hash":``. With a secret it is the HMAC-SHA-256, under the name ``hmac``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import NamedTuple

NOTHING = "0" * 64  # the hash before the first line

_last = re.compile(
    rb',"chain":"([0-9a-f]{8})","seq":(\d{1,18}),"prev":"[0-9a-f]{64}","(?:hash|hmac)":"([0-9a-f]{64})"}\Z'
)


class Head(NamedTuple):
    """Where a chain has come to: its id, the number of its last line, and that line's hash."""

    chain: str
    seq: int
    hash: str


class Seal:
    """Hashes texts and lines: by SHA-256, or with a secret by HMAC-SHA-256, which nobody without it can redo."""

    def __init__(self, secret: str | None = None) -> None:
        self._secret = None if secret is None else secret.encode()
        self.name = "hash" if secret is None else "hmac"

    def digest(self, data: bytes) -> str:
        """Return the hash in 64 hexadecimal digits."""
        if self._secret is None:
            return hashlib.sha256(data).hexdigest()
        return hmac.digest(self._secret, data, "sha256").hex()

    def linked(self, lines: Iterable[bytes], head: Head) -> tuple[list[bytes], Head]:
        """Tie JSON lines to the chain that has come to ``head``; return them with where it has come to then."""
        chain, seq, last = head
        linked = []
        for line in lines:
            seq += 1
            body = b'%b,"chain":"%b","seq":%d,"prev":"%b"' % (line[:-2], chain.encode(), seq, last.encode())
            last = self.digest(body)
            linked.append(b'%b,"%b":"%b"}\n' % (body, self.name.encode(), last.encode()))
        return linked, Head(chain, seq, last)


def begun() -> Head:
    """Return the head of a new chain."""
    return Head(secrets.token_hex(4), 0, NOTHING)


def head_of(line: bytes) -> Head | None:
    """Return where the chain has come to with a line, None for a line of no chain."""
    found = _last.search(line.rstrip(b"\n"))
    return Head(found[1].decode(), int(found[2]), found[3].decode()) if found else None
