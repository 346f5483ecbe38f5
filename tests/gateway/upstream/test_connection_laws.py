"""However an answer is cut, it reads as h11 reads it; spoilt ones are failed, or read as h11 reads them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import h11
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.client import Headers
from tests.gateway.upstream.playing import Bench


@dataclass(frozen=True)
class Read:
    """What was read: by h11, or by us."""

    status: int
    headers: Headers
    body: bytes
    reusable: bool


def by_h11(wire: bytes, method: str = "POST") -> Read | None:
    """Read an answer, and the end of the connection, as h11 does; None where h11 finds it broken."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    status, headers, body = 0, [], b""
    reusable = True
    client.receive_data(wire)
    try:
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                reusable = False
                client.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                idle = client.their_state is h11.DONE and client.our_state is h11.DONE
                more = client.trailing_data[0].strip(b"\r\n")  # RFC 9112 2.2 lets empty lines stand before a message
                return Read(status, headers, body, reusable and idle and not more)
            elif isinstance(event, h11.ConnectionClosed):
                return None
    except h11.RemoteProtocolError:
        return None


def by_us(wire: bytes, cuts: list[int], method: str = "POST") -> Read | None:
    """Read the same with our connection, cut at ``cuts``; None where it failed."""
    bench = Bench(method)
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    bench.hear(*(wire[start:end] for start, end in itertools.pairwise(edges)))
    reusable = bool(bench.shelf.kept) and not bench.line.closing
    seen = bench.hear(eof=True)
    assert len(seen.endings) == 1
    return Read(seen.status, seen.headers, seen.body, reusable) if seen.whole else None


NAMES = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~", min_size=1, max_size=20
)
VALUES = st.text(st.characters(codec="latin-1", exclude_categories=["Cc", "Zs"]) | st.just(" "), max_size=30)
FRAMING = {"content-length", "transfer-encoding", "connection", "content-encoding", "upgrade"}
OWN = st.lists(st.tuples(NAMES.filter(lambda name: name.lower() not in FRAMING), VALUES), max_size=6)
SPACES = st.sampled_from([" ", "", "\t", "  "])


@st.composite
def heads(draw: st.DrawFn, status: int, *framing: tuple[str, str]) -> bytes:
    """Write status line and fields with every liberty that RFC 9112 leaves."""
    fields = draw(st.permutations([*draw(OWN), *framing]))
    reason = draw(st.sampled_from([" OK", " ", " Not Found", " \u00e9\u00e9"]))
    lines = [f"HTTP/1.1 {status}{reason}"]
    for name, value in fields:
        spelled = draw(st.sampled_from([name, name.upper(), name.title()]))
        after = "" if name == "transfer-encoding" else draw(SPACES)
        lines.append(f"{spelled}:{draw(SPACES)}{value.strip()}{after}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    """Write a body in chunks of any size, with extensions and trailers."""
    wire = b""
    while body:
        size = draw(st.integers(1, len(body)))
        written = draw(st.sampled_from([f"{size:x}", f"{size:X}", f"{size:04x}"]))
        extension = draw(st.sampled_from(["", ";a=b", ";q", ';n="v"']))
        wire += f"{written}{extension}\r\n".encode() + body[:size] + b"\r\n"
        body = body[size:]
    trailers = draw(st.sampled_from([b"", b"", b"x-trailer: 1\r\n", b"a: b\r\nc: d\r\n"]))
    return wire + b"0\r\n" + trailers + b"\r\n"


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Write a legal answer to a POST: interim answers, then a final one with any of the three framings."""
    interim = b"".join(draw(heads(status)) for status in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=2)))
    close = draw(st.sampled_from([(), (("connection", "close"),), (("connection", "keep-alive"),)]))
    body = draw(st.binary(max_size=300))
    framing = draw(st.sampled_from(["counted", "chunked", "until close", "none"]))
    if framing == "none":
        return interim + draw(heads(draw(st.sampled_from([204, 304])), *close))
    status = draw(st.integers(200, 599).filter(lambda status: status not in {204, 304}))
    if framing == "counted":
        return interim + draw(heads(status, ("content-length", str(len(body))), *close)) + body
    if framing == "chunked":
        return interim + draw(heads(status, ("transfer-encoding", "chunked"), *close)) + draw(chunks(body))
    return interim + draw(heads(status, *close)) + body


CUTS = st.lists(st.integers(0, 2000), max_size=12)


@given(answers(), CUTS)
def test_any_legal_answer_however_cut_reads_as_h11_reads_it(wire: bytes, cuts: list[int]) -> None:
    expected = by_h11(wire)
    assert expected is not None
    assert by_us(wire, cuts) == expected


@given(answers())
def test_a_trickle_of_single_bytes_reads_as_h11_reads_it(wire: bytes) -> None:
    assert by_us(wire, list(range(len(wire)))) == by_h11(wire)


@given(answers(), CUTS, st.data())
def test_a_spoilt_answer_is_failed_or_read_as_h11_reads_it(wire: bytes, cuts: list[int], data: st.DataObject) -> None:
    spoilt = bytearray(wire)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(spoilt) - 1))
        kind = data.draw(st.sampled_from(["change", "drop", "add"]))
        if kind == "change":
            spoilt[place] = data.draw(st.integers(0, 255) | st.sampled_from(b"\r\n :0"))
        elif kind == "drop":
            del spoilt[place : place + data.draw(st.integers(1, 8))]
        else:
            spoilt[place:place] = data.draw(st.sampled_from([b"\r\n", b"\n", b"0", b" ", b"content-length: 1\r\n"]))
        if not spoilt:
            return
    ours, reference = by_us(bytes(spoilt), cuts), by_h11(bytes(spoilt))
    if ours and reference:  # what both take they understand alike; what they forgive differs
        assert (ours.status, ours.body) == (reference.status, reference.body)
        # h11 keeps no connection of HTTP/1.0; keep-alive is what RFC 9112 9.3 lets such an engine say.
        assert reference.reusable or not ours.reusable or spoilt.startswith(b"HTTP/1.0")


@given(answers(), st.data())
def test_an_answer_cut_off_anywhere_fails_unless_its_end_is_the_end_of_the_connection(
    wire: bytes, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(wire) - 1))
    bench = Bench()
    seen = bench.hear(wire[:length], eof=True)
    reference = by_h11(wire[:length])
    assert len(seen.endings) == 1
    if reference is None:
        assert seen.failure.kind == "broke_off"
        assert seen.failure.answer_begun == (length > 0)
    else:
        assert seen.whole
    assert not bench.shelf.kept or reference is not None
