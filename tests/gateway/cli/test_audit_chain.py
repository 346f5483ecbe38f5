"""Whatever is done to a log without its writer, the first line that shows it is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.audit_chain import Broken, Head, KeyMissing, Line, Verifier, heads
from plugins.audit_log.journal import Journal
from plugins.audit_log.seal import Seal, begun

SECRET = "a secret of sixteen"
PLAIN = [b'{"time":"2026-11-29T00:00:0%d","n":%d}\n' % (number, number) for number in range(8)]


def chained(*, secret: str | None = None) -> tuple[list[bytes], Head]:
    linked, head = Seal(secret).linked(PLAIN, begun())
    return [line[:-1] for line in linked], Head(*head)


def verified(
    *files: Sequence[bytes], secrets: Sequence[str] = (), head: Head | None = None, first: int = 1
) -> Verifier:
    heads = [("f0", head)] if head else []
    verifier = Verifier([secret.encode() for secret in secrets], heads, first=first)
    for name, lines in enumerate(files):
        for number, raw in enumerate(lines, 1):
            verifier.take(Line(f"f{name}", number, raw))
    verifier.end()
    return verifier


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_log_as_it_was_written_holds(secret: str | None) -> None:
    lines, head = chained(secret=secret)
    (run,) = verified(lines[:3], lines[3:], secrets=[secret] if secret else [], head=head).runs.values()
    assert (run.first, run.seq, run.hash.decode()) == (1, 8, head.hash)


def test_files_from_the_middle_hold_where_older_lines_are_known_to_be_gone() -> None:
    lines, head = chained()
    assert verified(lines[4:], head=head, first=5).runs[head.chain].first == 5
    assert verified(lines[4:], head=msgspec.structs.replace(head, first=5)).runs[head.chain].first == 5
    assert verified(lines[4:], first=5).runs[head.chain].first == 5
    with pytest.raises(Broken, match=r"f0:1: line 5 is missing before it, of chain .*; .* say --first 6"):
        verified(lines[5:], first=5)


def _changed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[3].replace(b'"n":3', b'"n":9'), *lines[4:]]


def _exchanged(lines: list[bytes]) -> list[bytes]:
    (other,), _ = Seal().linked([b'{"n":9}\n'], begun())
    chain = lines[0].partition(b'"chain":"')[2][:8].decode()
    (other,), _ = Seal().linked([b'{"n":9}\n'], begun()._replace(chain=chain, seq=3))
    return [*lines[:3], other[:-1], *lines[4:]]


FORGERIES: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
    (_changed, "f0:4: was changed"),
    (_exchanged, "f0:4: does not follow the line before it"),
    (lambda lines: [*lines[:3], *lines[4:]], "f0:4: line 4 is missing before it"),
    (lambda lines: [*lines[:2], *lines[5:]], "f0:3: lines 3 to 5 are missing before it"),
    (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "f0:4: line 4 is missing before it"),
    (lambda lines: [*lines[:4], lines[2], *lines[4:]], "f0:5: is out of place: line 3 of the chain after line 4"),
    (lambda lines: [*lines[:4], b'{"n":9}', *lines[4:]], "f0:5: is no whole line"),
    (lambda lines: [*lines[:4], lines[4][:40]], "f0:5: is no whole line"),
    (lambda lines: [*lines[:4], b"", *lines[4:]], "f0:5: is no whole line"),
    (lambda lines: lines[1:], "f0:1: line 1 is missing before it"),
    (lambda lines: lines[4:], "f0:1: lines 1 to 4 are missing before it"),
    (lambda lines: lines[:6], "f0: lines 7 to 8 are missing at its end"),
    (lambda lines: [lines[0], *chained()[0][1:]], "f0:2: line 1 is missing before it"),
    (lambda _: chained()[0], "f0: its chain .* is not in it"),
    (lambda _: [], "f0: its chain .* is not in it"),  # emptied
]


@pytest.mark.parametrize(("forge", "said"), FORGERIES)
def test_what_is_changed_removed_inserted_moved_or_cut_off_is_named(
    forge: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    lines, head = chained()
    with pytest.raises(Broken, match=said):
        verified(forge(lines), head=head)


def test_lines_cut_off_before_a_file_was_put_aside_are_missed() -> None:
    lines, head = chained()
    with pytest.raises(Broken, match="f1:1: lines 4 to 5 are missing before it"):
        verified(lines[:3], lines[5:], head=head)


def test_who_does_not_have_the_secret_cannot_write_a_chain() -> None:
    lines, head = chained(secret=SECRET)
    with pytest.raises(Broken, match="f0:1: was changed or made with another secret"):
        verified(chained(secret="another of sixteen")[0], secrets=[SECRET])
    with pytest.raises(Broken, match="f0:1: has a hash that anybody can make"):
        verified(chained()[0], secrets=[SECRET])
    with pytest.raises(KeyMissing, match="f0:1: is keyed"):
        verified(lines)
    verified(lines, secrets=["the one before this", SECRET], head=head)  # secrets may be changed


@given(st.data())
def test_no_change_of_a_byte_passes(data: st.DataObject) -> None:
    lines, head = chained()
    at = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.integers(0, len(lines[at]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != lines[at][place]))
    lines[at] = lines[at][:place] + bytes([byte]) + lines[at][place + 1 :]
    with pytest.raises((Broken, KeyMissing)):
        verified(lines, head=head)


@given(st.lists(st.integers(0, 7), max_size=9).filter(lambda order: order != list(range(8))))
def test_no_other_choice_or_order_of_lines_passes(order: list[int]) -> None:
    lines, head = chained()
    try:
        run = verified([lines[at] for at in order], head=head).runs.get(head.chain)
    except Broken:
        return
    assert run is None


def test_what_is_remembered_beside_a_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    journal = Journal(log, rotate_bytes=1 << 20)
    journal.open()
    journal.append(PLAIN)
    journal.close()
    (_, head), *more = heads([str(log), str(tmp_path / "none")])
    assert (head.seq, more) == (8, [])
    (tmp_path / "audit.jsonl.lock").write_bytes(b"{}")
    assert list(heads([str(log)])) == []
