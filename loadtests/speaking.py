"""A caller of an OpenAI-compatible server: sends, listens to the stream, and tells Locust what it was like."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import gevent
from geventhttpclient.client import HTTPClient
from locust import User
from locust.exception import StopUser

from loadtests.measures import Stream

CHAT = "/v1/chat/completions"


class Refused(Exception):
    """The server said no, or the stream ended wrongly: Locust lists these by what they say."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How a caller listens: leaves after so many lines, rests so long after each."""

    leaves_after: int | None = None
    rest_s: float = 0.0


class Caller(User):
    """A user who speaks SSE. Under the scenario's name it tells POST (the exchange), TTFT, ITL, tokens/s, goodput.

    ``goodput`` fails where an answer came later than ``--deadline``. A block counts as "block", not as an error.
    """

    abstract = True
    scenario = ""

    def on_start(self) -> None:
        """Open a connection of its own."""
        address = urlsplit(self.host or "http://127.0.0.1:8080")
        if address.hostname is None:
            raise StopUser
        secure = address.scheme == "https"
        self.options = self.environment.parsed_options
        self.prefix = address.path.rstrip("/")
        self.http = HTTPClient(
            address.hostname,
            address.port or (443 if secure else 80),
            ssl=secure,
            network_timeout=self.options.timeout,
            connection_timeout=10,
            block_size=65536,
        )

    def on_stop(self) -> None:
        """Close it."""
        self.http.close()

    def ask(self, messages: list[dict[str, str]], manners: Manners = Manners(), **fields: Any) -> Stream | None:
        """Ask for a stream and listen to it; None where there was none."""
        body = {
            "model": self.options.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": self.options.max_tokens,
            **fields,
        }
        raw = json.dumps(body, ensure_ascii=False).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.options.key}"}
        stream = Stream(time.perf_counter())
        failure: str | None = None
        left = False
        try:
            answer = self.http.request("POST", self.prefix + CHAT, raw, headers)
            if answer.status_code == 200:
                left = self._listen(answer, stream, manners)
                failure = None if left else stream.fault()
            else:
                failure = self._refusal(answer.status_code, answer.read())
        except (OSError, ValueError, gevent.Timeout) as fault:
            failure = type(fault).__name__
        self._tell(stream, failure, left=left)
        return None if failure else stream

    @staticmethod
    def _listen(answer: Any, stream: Stream, manners: Manners) -> bool:
        """Read to the end, or leave; True for the latter."""
        heard = 0
        while line := answer.readline(b"\n"):
            stream.line(bytes(line), time.perf_counter())
            heard += line.startswith(b"data:")
            if manners.leaves_after is not None and heard >= manners.leaves_after:
                sock = answer._sock  # noqa: SLF001 - leaving is closing the socket; the library would read on
                if sock is not None:
                    sock.close()
                answer.release()
                return True
            if manners.rest_s:
                gevent.sleep(manners.rest_s)
        return False

    def _refusal(self, status: int, body: bytes) -> str:
        try:
            return f"{status} {json.loads(body)['error']['code']}"
        except (ValueError, LookupError, TypeError):
            return f"{status}"

    def _tell(self, stream: Stream, failure: str | None, *, left: bool) -> None:
        took = time.perf_counter() - stream.began
        if (failure or "").endswith("content_filter") or stream.finish == "content_filter":
            self._fire("block", took * 1000)
            failure = None
        self._fire("left" if left else "POST", took * 1000, failure, sum(map(len, stream.text)))
        if failure or left:
            if failure:
                self._fire("goodput", took * 1000, failure)
            return
        if stream.ttft is not None:
            self._fire("TTFT", stream.ttft * 1000)
        for gap in stream.gaps:
            self._fire("ITL", gap * 1000)
        if stream.pace is not None:
            self._fire("tokens/s", stream.pace)
        self._fire("goodput", took * 1000, None if took <= self.options.deadline else "late")

    def _fire(self, kind: str, value: float, failure: str | None = None, length: int = 0) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=self.scenario,
            response_time=value,
            response_length=length,
            exception=Refused(failure) if failure else None,
            context={},
        )
