"""Checks the chain of hashes through audit logs, by the rule on docs/plugins/audit_log.md and by nothing else."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

NOTHING = b"0" * 64  # the hash before the first line

_links = re.compile(
    rb',"chain":"([0-9a-f]{8})","seq":(\d{1,18}),"prev":"([0-9a-f]{64})"(?=,"(hash|hmac)":"([0-9a-f]{64})"}\Z)'
)


class Head(msgspec.Struct, frozen=True):
    """Where a chain has come to, as the file beside the log remembers it, and with which line what is kept begins."""

    chain: str
    seq: int
    hash: str
    first: int = 1


class Line(NamedTuple):
    """A line without its end, and where it stands."""

    file: str
    number: int
    raw: bytes


class Broken(Exception):
    """The chain does not hold: where, and why."""


class KeyMissing(Exception):
    """The chain is keyed, and no secret was named."""


class Run(NamedTuple):
    """What of one chain was seen: from its line ``first`` to its line ``seq``, whose hash is ``hash``."""

    first: int
    seq: int
    hash: bytes


class Verifier:
    """Takes line after line of the logs, in order. ``secrets``: those with which the hashes may have been made.

    ``heads``: what is remembered for files, by their names; ``first``: the line with which any chain may begin.
    """

    def __init__(
        self, secrets: Sequence[bytes] = (), heads: Iterable[tuple[str, Head]] = (), *, first: int = 1
    ) -> None:
        self._secrets, self._heads = secrets, list(heads)
        self._first = {head.chain: max(first, head.first) for _, head in self._heads}
        self._any_first = first
        self.runs: dict[str, Run] = {}

    def take(self, line: Line) -> None:
        """Check the next line. Raises Broken, and KeyMissing."""
        found = _links.search(line.raw)
        if found is None:
            raise Broken(_at(line, "is no whole line of an audit log, or was written over"))
        chain, seq, prev, name, own = found.groups()
        self._fits(line, line.raw[: found.end()], name, own)
        before = self.runs.get(chain.decode())
        number = int(seq)
        if before is None:
            self._begins(line, chain.decode(), number, prev)
        elif number > before.seq + 1:
            raise Broken(_at(line, f"{_lines(before.seq + 1, number - 1)} missing before it"))
        elif number <= before.seq:
            raise Broken(_at(line, f"is out of place: line {number} of the chain after line {before.seq}"))
        elif prev != before.hash:
            raise Broken(_at(line, "does not follow the line before it, which was exchanged"))
        self.runs[chain.decode()] = Run(before.first if before else number, number, own)

    def _fits(self, line: Line, body: bytes, name: bytes, own: bytes) -> None:
        if name == b"hash":
            if self._secrets:
                raise Broken(_at(line, "has a hash that anybody can make, not one of the secret"))
            fits = hashlib.sha256(body).hexdigest().encode() == own
        elif self._secrets:
            fits = any(hmac.digest(secret, body, "sha256").hex().encode() == own for secret in self._secrets)
        else:
            raise KeyMissing(_at(line, "is keyed: name the variable that holds the secret with --secret-env"))
        if not fits:
            raise Broken(_at(line, f"was changed{' or made with another secret' if self._secrets else ''}"))

    def _begins(self, line: Line, chain: str, number: int, prev: bytes) -> None:
        if number == 1 and prev != NOTHING:
            raise Broken(_at(line, "is the first of its chain, and names one before it"))
        first = self._first.get(chain, self._any_first)
        if number > 1 and line.number > 1:
            raise Broken(_at(line, f"{_lines(1, number - 1)} missing before it, of chain {chain}"))
        if number > first:
            elsewhere = f"where they are kept elsewhere, say --first {number}"
            raise Broken(_at(line, f"{_lines(first, number - 1)} missing before it, of chain {chain}; {elsewhere}"))

    def end(self) -> None:
        """Compare where the chains have come to with what is remembered. Raises Broken."""
        for file, head in self._heads:
            run = self.runs.get(head.chain)
            if run is not None and run.seq < head.seq:
                raise Broken(f"{file}: {_lines(run.seq + 1, head.seq)} missing at its end")
            if run is not None and run.seq == head.seq and run.hash != head.hash.encode():
                raise Broken(f"{file}: its last line was exchanged")
            if run is None and (self.runs or head.seq):
                raise Broken(f"{file}: its chain {head.chain} is not in it")


def heads(files: Iterable[str]) -> Iterator[tuple[str, Head]]:
    """Read what is remembered beside files; to be called before they are read, for they may be growing."""
    for file in files:
        try:
            yield file, msgspec.json.decode(Path(f"{file}.lock").read_bytes(), type=Head)
        except (OSError, msgspec.DecodeError):
            continue


def _at(line: Line, fault: str) -> str:
    return f"{line.file}:{line.number}: {fault}"


def _lines(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first} to {last} are"
