"""Engines join and leave while requests run, and keep their state as long as they stay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.upstream import resolve, roster
from gateway.upstream.place import Place
from gateway.upstream.roster import Roster, Serving, state
from gateway.upstream.want import Preference
from tests.gateway.upstream.playing import Seen, ask, until


class Calls:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class Names:
    """A resolver without a DNS server."""

    def __init__(self, **names: Collection[str]) -> None:
        self.names = names

    async def __call__(self, host: str, _: int) -> Collection[str]:
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]


A, B = Place("a", "http://10.0.0.1:8000"), Place("b", "http://10.0.0.2:8000")


def serving(*places: Place) -> dict[str, Serving]:
    return {"m": Serving(places)}


@contextlib.asynccontextmanager
async def running(subject: Roster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(roster, "LOOK_S", 0.01)
    monkeypatch.setattr(resolve, "EVERY_S", 0.01)
    task = asyncio.get_running_loop().create_task(subject.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await subject.close()


def test_an_engine_outlives_a_reload_that_changes_its_weight_and_not_one_that_changes_its_address() -> None:
    subject = Roster(Calls())
    fleet = subject.serve(serving(A, B))["m"]
    one, two = fleet
    one.failures = 2
    preference = Preference(frozenset({"k"}))
    changed = subject.serve(
        serving(replace(A, weight=5, preference=preference), replace(B, url="http://10.0.0.3:8000"))
    )
    assert changed["m"] is fleet
    assert fleet[0] is one
    assert (one.weight, one.preference, one.failures) == (5, preference, 2)
    assert fleet[1] is not two
    assert two not in subject.engines


def test_who_leaves_gets_no_more_requests_and_what_is_under_way_goes_on() -> None:
    subject = Roster(Calls())
    fleet = subject.serve(serving(A, B))["m"]
    one = fleet[0]
    connections = one.pool
    subject.serve(serving(B))
    assert [engine.name for engine in fleet] == ["b"]
    assert not connections._closed


async def test_each_address_of_a_name_is_an_engine_with_its_part_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    names, calls = Names(vllm=["10.0.0.1"]), Calls()
    subject = Roster(calls, look_up=names)
    fleet = subject.serve(serving(Place("v", "http://vllm:8000", weight=6)))["m"]
    (before,) = fleet
    async with running(subject, monkeypatch):
        await until(lambda: before.pool.address == "10.0.0.1")
        assert list(fleet) == [before]  # what was learnt of it is kept
        names.names["vllm"] = ["10.0.0.2", "10.0.0.1", "10.0.0.3"]
        await until(lambda: len(fleet) == 3)
        assert [(each.name, each.pool.address, each.weight) for each in fleet] == [
            ("v", "10.0.0.1", 2),
            ("v/1", "10.0.0.2", 2),
            ("v/2", "10.0.0.3", 2),
        ]
        assert fleet[0] is before
        assert fleet[1].head("/x", "r", 0, {}).count(b"host: vllm:8000") == 1
        told = calls.count
        names.names["vllm"] = ["10.0.0.3", "10.0.0.9"]  # two pods end, one comes
        await until(lambda: len(fleet) == 2)
        assert [(each.name, each.pool.address) for each in fleet] == [("v/2", "10.0.0.3"), ("v", "10.0.0.9")]
        assert before not in subject.engines
        assert calls.count == told + 1
        del names.names["vllm"]  # the name server is away
        await asyncio.sleep(0.05)
        assert len(fleet) == 2


async def test_a_pod_that_is_ending_gets_nothing_new_and_its_answer_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[bytes] = []
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said.append(b"%s" % writer.get_extra_info("sockname")[0].encode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await go_on.wait()
        writer.write(b"cd")
        writer.close()

    first = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = first.sockets[0].getsockname()[1]
    second = await asyncio.start_server(serve, "127.0.0.2", port)
    names = Names(pods=["127.0.0.1"])
    subject = Roster(Calls(), look_up=names)
    fleet = subject.serve(serving(Place("v", f"http://pods:{port}")))["m"]
    async with running(subject, monkeypatch):
        await until(lambda: fleet[0].pool.address == "127.0.0.1")
        sink = Seen()
        await ask(fleet[0].pool, sink)
        await until(lambda: sink.body == b"ab")
        names.names["pods"] = ["127.0.0.2"]
        await until(lambda: fleet[0].pool.address == "127.0.0.2")
        later = Seen()
        await ask(fleet[0].pool, later)
        await until(lambda: later.body == b"ab")
        go_on.set()
        await asyncio.gather(sink.ended.wait(), later.ended.wait())
    assert (sink.body, later.body, said) == (b"abcd", b"abcd", [b"127.0.0.1", b"127.0.0.2"])
    for server in (first, second):
        server.close()


async def test_behind_tls_a_name_is_one_engine_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(api=["10.0.0.1", "10.0.0.2"])
    subject = Roster(Calls(), look_up=names)
    place = Place("s", "https://api:443")
    fleet = subject.serve(serving(place))["m"]
    async with running(subject, monkeypatch):
        await asyncio.sleep(0.05)
        assert [engine.pool.address for engine in fleet] == [None]
        subject.serve(serving(replace(place, each_address=True)))
        await until(lambda: len(fleet) == 2)
        subject.serve(serving(replace(A, each_address=True)))
        await asyncio.sleep(0.05)
        assert [engine.pool.address for engine in fleet] == [None]


def test_orders_hold_over_a_reload_until_the_configuration_says_something_else() -> None:
    calls = Calls()
    subject = Roster(calls)
    fleet = subject.serve(serving(A, B))["m"]
    subject.order("a", weight=0.0)
    subject.order("a", draining=True)
    assert (fleet[0].weight, fleet[0].draining, calls.count) == (0, True, 2)
    subject.serve(serving(A, B))
    assert (fleet[0].weight, fleet[0].draining) == (0, True)
    subject.serve(serving(replace(A, weight=3), B))
    assert (fleet[0].weight, fleet[0].draining) == (3, False)
    subject.order("b", removed=True)
    assert [engine.name for engine in fleet] == ["a"]
    subject.order("b", removed=False)
    assert [engine.name for engine in fleet] == ["a", "b"]
    with pytest.raises(LookupError, match="no engine 'c'"):
        subject.order("c", weight=1.0)


def test_an_engine_that_is_added_is_like_the_first_of_its_model() -> None:
    subject = Roster(Calls())
    first = replace(A, served_model="theirs", api_key="sk-engine", preference=Preference(frozenset({"k"})))
    fleet = subject.serve(serving(first))["m"]
    subject.add("m", "green", "http://10.0.0.9:8000", 0.0)
    subject.serve(serving(first))
    green = fleet[1]
    assert (green.name, green.served_model, green.weight, green.preference) == ("green", "theirs", 0, None)
    assert green.key_header()
    subject.order("green", weight=1.0)
    assert green.weight == 1
    subject.order("green", removed=True)
    assert len(fleet) == 1
    subject.add("m", "green", "http://10.0.0.9:8000", 2.0)
    assert fleet[1].weight == 2
    for model, name, url in (("m", "a", "http://h:1"), ("m", "green", "http://h:1"), ("m", "x", "ftp://h")):
        with pytest.raises(ValueError, match="engine"):
            subject.add(model, name, url, 1.0)
    with pytest.raises(LookupError, match="no model 'n'"):
        subject.add("n", "x", "http://h:1", 1.0)


async def test_what_one_worker_is_told_all_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "orders.json"
    one, two = Roster(Calls(), orders=file), Roster(Calls(), orders=file)
    fleets = [each.serve(serving(A, B))["m"] for each in (one, two)]
    async with running(two, monkeypatch):
        one.order("a", draining=True)
        await until(lambda: fleets[1][0].draining)
        two.order("b", weight=7.0)
        one.order("a", draining=False)
        await until(lambda: not fleets[1][0].draining)
        assert fleets[0][1].weight == fleets[1][1].weight == 7
    late = Roster(Calls(), orders=file)  # a worker that takes a dead one's place
    assert late.serve(serving(A, B))["m"][1].weight == 7


def test_an_operator_sees_where_an_engine_is_and_how() -> None:
    subject = Roster(Calls())
    (engine,) = subject.serve(serving(A))["m"]
    states = [state(engine, 100.0)]
    for change in (
        lambda: engine.probed(up=True),
        lambda: engine.busy(100.0),
        lambda: engine.failed(100.0),
        lambda: setattr(engine, "stalled", True),
        lambda: setattr(engine, "warm", False),
        lambda: setattr(engine, "draining", True),
        lambda: engine.probed(up=False, trouble="no connection"),
    ):
        change()
        states.append(state(engine, 100.5))
    assert states == ["unknown", "up", "busy", "failing", "stuck", "cold", "draining", "down"]
    (row,) = subject.told(100.5)
    assert (row["model"], row["name"], row["url"], row["trouble"]) == ("m", "a", A.url, "no connection")
