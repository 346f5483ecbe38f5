#!/usr/bin/env python3
"""A load client for OpenAI-compatible chat completions, cheap enough not to be what is measured.

    load.py --url http://127.0.0.1:8080 -c 32 --seconds 5                     whole answers
    load.py --url ... -c 32 --seconds 5 --stream --tokens 100                 streams
    load.py --url ... --rate 200 --seconds 10                                 open loop: Poisson arrivals
    load.py --url ... -c 500 --stream --hold                                  open streams, held until stdin ends

Closed loop (the default): each of -c connections sends its next request when the last answer is
complete, for --seconds or --requests; what is under way at the end is waited for and counted. Open
loop: requests arrive at random at --rate a second whatever the answers do, and their times count
from the moment they were due. Connections are kept; one that the server closed is opened again.

Prints one JSON object: requests, requests_s, errors, and in ms p50, p99 and max of
    latency   from sending a request to the end of its answer
    ttft      to the first event with text in it (streams)
    gap       between two events of one stream (events that arrive together: 0)
    stream    from the first to the last event of a stream
An error is a status other than 200, a cut connection, an error event, a stream without [DONE].
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import re
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop
from texts import prompts

HAS_TEXT = re.compile(rb'"(?:content|text)": ?"[^"]')
now = time.perf_counter


class Results:
    def __init__(self) -> None:
        self.latency, self.ttft, self.gap, self.stream = array("d"), array("d"), array("d"), array("d")
        self.together = 0  # gaps of zero
        self.events = self.bytes = self.errors = self.reconnects = 0
        self.statuses: Counter[int] = Counter()

    def summary(self, seconds: float, unfinished: int) -> dict[str, Any]:
        return {
            "requests": len(self.latency),
            "requests_s": round(len(self.latency) / seconds, 2),
            "seconds": round(seconds, 3),
            "errors": self.errors,
            "unfinished": unfinished,
            "reconnects": self.reconnects,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "events": self.events,
            "bytes": self.bytes,
            "latency_ms": figures(self.latency),
            "ttft_ms": figures(self.ttft),
            "gap_ms": figures(self.gap, self.together),
            "stream_ms": figures(self.stream),
        }


def figures(values: array[float], zeros: int = 0) -> dict[str, float] | None:
    """p50, p99 and max in ms of the values and so many zeros."""
    count = len(values) + zeros
    if not count:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        index = min(count - 1, int(count * share)) - zeros
        return round(ordered[index] * 1000, 3) if index >= 0 else 0.0

    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


class Connection(asyncio.Protocol):
    """One connection that sends a request, measures the answer, and says when it is done."""

    def __init__(self, run: Run, done: Callable[[Connection], None]) -> None:
        self.run, self.results, self.streaming, self.done = run, run.results, run.args.stream, done
        self.busy = self.lost = False
        self.served = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes, due: float) -> None:
        self.busy, self.due, self.request = True, due, request
        self.events, self.tail, self.failed = 0, b"", False
        self.first_at = self.last_at = 0.0
        self.text_seen = self.heard = False
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.at = now()  # one clock reading for all that arrived together
        self.fresh = self.heard = True
        self.results.bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        if not self.text_seen and HAS_TEXT.search(piece):
            self.text_seen = True
            self.results.ttft.append(self.at - self.due)
        if not self.streaming:
            return
        ends = piece.count(b"\n\n") + piece.count(b"\n\r\n") + (piece[:1] == b"\n" and self.tail[-1:] == b"\n")
        if ends:
            if not self.events:
                self.first_at = self.at
                self.results.together += ends - 1
            elif self.fresh:
                self.results.gap.append(self.at - self.last_at)
                self.results.together += ends - 1
            else:
                self.results.together += ends
            self.fresh = False
            self.events += ends
            self.last_at = self.at
        if b'data: {"error"' in piece:
            self.failed = True
        self.tail = piece[-32:] if len(piece) >= 32 else (self.tail + piece)[-32:]

    def on_message_complete(self) -> None:
        results = self.results
        results.statuses[self.status] += 1
        complete = b"[DONE]" in self.tail if self.streaming else self.text_seen
        if self.status != 200 or self.failed or not complete:
            results.errors += 1
        results.latency.append(self.at - self.due)
        results.events += self.events
        if self.events > 1:
            results.stream.append(self.last_at - self.first_at)
        self.busy = False
        self.served += 1
        if not self.parser.should_keep_alive():
            self.transport.close()
            self.lost = True
        self.done(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.busy and self.served and not self.heard:
            self.served = 0  # closed while idle, as the request was on its way: again, on a new connection
            self.run.loop.create_task(self._again())
        elif self.busy:
            self.busy = False
            self.results.errors += 1
            self.done(self)

    async def _again(self) -> None:
        self.results.reconnects += 1
        try:
            await self.run.loop.create_connection(lambda: self, *self.run.address)
        except OSError:
            self.busy = False
            self.results.errors += 1
            self.done(self)
            return
        self.lost = False
        self.send(self.request, self.due)


class Run:
    """One run: the connections, the requests and the clock."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.results = Results()
        address = urlsplit(args.url)
        self.address = (address.hostname or "127.0.0.1", address.port or 80)
        self.requests = itertools.cycle(build_requests(args, address.netloc))
        self.loop = asyncio.get_running_loop()
        self.finished = self.loop.create_future()
        self.issued = self.active = 0
        self.free: list[Connection] = []
        self.end = float("inf")

    async def connect(self, done: Callable[[Connection], None]) -> Connection:
        made: Connection
        _, made = await self.loop.create_connection(lambda: Connection(self, done), *self.address)
        return made

    async def closed_loop(self) -> None:
        args = self.args
        connections = [await self.connect(self._next) for _ in range(args.concurrency)]
        self.start = now()
        self.end = self.start + args.seconds
        self.active = len(connections)
        for number, connection in enumerate(connections):
            self.loop.call_later(args.ramp * number / len(connections), self._next, connection)
        await self._wait()

    def _next(self, connection: Connection) -> None:
        """A connection is ready for its next request."""
        if now() >= self.end or (self.args.requests and self.issued >= self.args.requests):
            self._retire(connection)
        elif connection.lost:
            self.results.reconnects += 1
            self.loop.create_task(self._replace(connection))
        else:
            self.issued += 1
            connection.send(next(self.requests), now())

    async def _replace(self, lost: Connection) -> None:
        try:
            self._next(await self.connect(self._next))
        except OSError:
            self.results.errors += 1
            self.loop.call_later(0.1, self._next, lost)  # down for a moment, or for good: --seconds ends it

    def _retire(self, connection: Connection) -> None:
        connection.transport.close()
        self.active -= 1
        if not self.active and not self.finished.done():
            self.finished.set_result(None)

    async def open_loop(self) -> None:
        rng = random.Random(5)
        self.start = now()
        self.end = self.start + self.args.seconds
        due = self.start
        while True:
            due += rng.expovariate(self.args.rate)
            if due >= self.end:
                break
            if due > now():
                await asyncio.sleep(due - now())
            self.active += 1
            self.issued += 1
            while self.free and self.free[-1].lost:
                self.free.pop()
            if self.free:
                self.free.pop().send(next(self.requests), due)
            else:
                self.loop.create_task(self._on_new(due))
        if self.active:
            await self._wait()

    async def _on_new(self, due: float) -> None:
        try:
            connection = await self.connect(self._give_back)
        except OSError:
            self.results.errors += 1
            self._one_less()
        else:
            connection.send(next(self.requests), due)

    def _give_back(self, connection: Connection) -> None:
        if not connection.lost:
            self.free.append(connection)
        self._one_less()

    def _one_less(self) -> None:
        self.active -= 1
        if not self.active and now() >= self.end and not self.finished.done():
            self.finished.set_result(None)

    async def _wait(self) -> None:
        limit = self.args.seconds + self.args.drain if self.args.seconds < 1e6 else self.args.drain
        await asyncio.wait([self.finished], timeout=limit)

    async def hold(self) -> None:
        """Opens all streams, says how many have begun, and keeps them until stdin ends."""
        opened = [await self.connect(lambda connection: None) for _ in range(self.args.concurrency)]
        for number, connection in enumerate(opened):
            connection.send(next(self.requests), now())
            if number % 20 == 19:
                await asyncio.sleep(0.01)
        end = now() + self.args.drain
        while (begun := sum(c.busy and c.events > 0 for c in opened)) < len(opened) and now() < end:
            await asyncio.sleep(0.05)
        print(json.dumps({"open": begun, "failed": sum(not c.busy for c in opened)}), flush=True)
        await self.loop.run_in_executor(None, sys.stdin.read)


def build_requests(args: argparse.Namespace, netloc: str) -> list[bytes]:
    """Requests with the headers that the OpenAI SDK sends, each with another conversation."""
    made = []
    for messages in prompts(args.prompt_bytes):
        fields: dict[str, Any] = {"messages": messages, "model": args.model, "max_tokens": args.tokens}
        if args.stream:
            fields["stream"] = True
            if args.usage:
                fields["stream_options"] = {"include_usage": True}
        body = json.dumps(fields | args.body, ensure_ascii=False, separators=(",", ":")).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {netloc}\r\nConnection: keep-alive\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\nUser-Agent: AsyncOpenAI/Python 3.57.0\r\n"
            "X-Stainless-Lang: python\r\nX-Stainless-Package-Version: 3.57.0\r\nX-Stainless-OS: Linux\r\n"
            "X-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.7\r\n"
            f"X-Stainless-Async: async:asyncio\r\nAuthorization: Bearer {args.key}\r\n"
            f"x-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


async def run(args: argparse.Namespace) -> None:
    this = Run(args)
    if args.hold:
        await this.hold()
        return
    await (this.open_loop() if args.rate else this.closed_loop())
    print(json.dumps(this.results.summary(now() - this.start, this.active)))


def main() -> None:
    parser = argparse.ArgumentParser(description="load on an OpenAI-compatible server; see the top of this file")
    parser.add_argument("--url", required=True, help="the server, as http://host:port")
    parser.add_argument("--key", default="none", help="bearer key")
    parser.add_argument("--model", default="m")
    parser.add_argument("-c", "--concurrency", type=int, default=32, help="connections of the closed loop")
    parser.add_argument("--rate", type=float, default=0, help="open loop: requests a second")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long requests are sent")
    parser.add_argument("--requests", type=int, default=0, help="how many are sent at most")
    parser.add_argument("--drain", type=float, default=60, help="seconds to wait for answers under way")
    parser.add_argument("--ramp", type=float, default=0, help="seconds over which the connections begin")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--usage", action="store_true", help="ask streams for their usage")
    parser.add_argument("--tokens", type=int, default=64, help="max_tokens")
    parser.add_argument("--body", type=json.loads, default={}, help='more fields of the body: {"ignore_eos": true}')
    parser.add_argument("--prompt-bytes", type=int, default=0, help="size of a Chinese prompt (0: short, mixed)")
    parser.add_argument("--hold", action="store_true", help="open -c streams and hold them")
    args = parser.parse_args()
    if args.seconds == float("inf") and not args.requests and not args.hold:
        parser.error("give --seconds, --requests or both")
    if args.hold:
        args.stream = True
    try:
        uvloop.run(run(args))
    except OSError as error:
        sys.exit(f"load.py: {args.url}: {error}")


if __name__ == "__main__":
    main()
