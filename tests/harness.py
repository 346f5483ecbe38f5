"""A real gateway in a process of its own, and the callers that tests put before it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import openai
import yaml

ROOT = Path(__file__).parents[1]
SLUICE = Path(sys.executable).with_name("sluice")
TEAM = "sk-test-team"
OPERATOR = "sk-test-operator"
CHAT = "/v1/chat/completions"
HI: list[Any] = [{"role": "user", "content": "hi"}]

#: The words of the fixture configuration: hard, masked, soft, allowed.
WORDS: dict[str, Any] = {
    "plugin": "sensitive_words",
    "options": {
        "words": [
            *("forbiddenzebra", "赌博", "大麻"),
            *({"word": word, "action": "mask"} for word in ("maskpapaya", "黄片", "shit")),
            *({"word": word, "action": "tag", "tag": "soft"} for word in ("softkiwi", "软猕猴")),
        ],
        "allow": ["大麻烦", "三黄片"],
    },
}


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def key(name: str, secret: str, **limits: Any) -> dict[str, Any]:
    """Write one entry of ``keys``."""
    return {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), **limits}


def model(name: str, *urls: str, **options: Any) -> dict[str, Any]:
    """Write one entry of ``models``; the engines know the model by the same name."""
    return {"name": name, "engines": [{"url": url} for url in urls], **options}


def configuration(
    models: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[Mapping[str, Any]] | None = None,
    chain: Sequence[Mapping[str, Any]] = (WORDS,),
    timeouts: Mapping[str, float] | None = None,
    **server: Any,
) -> dict[str, Any]:
    """Write a whole configuration: on loopback, one worker; without ``keys`` the team's and the operator's."""
    granted = [key("team", TEAM), key("ops", OPERATOR, role="operator")] if keys is None else list(keys)
    return {
        "server": {"host": "127.0.0.1", "port": free_port(), "workers": 1, **server},
        "timeouts": dict(timeouts or {}),
        "models": list(models),
        **({"keys": granted} if granted else {}),
        "chain": list(chain),
    }


@dataclass
class Gateway:
    """A running ``sluice serve``: where it is, what it printed, and how it is stopped."""

    process: subprocess.Popen[bytes]
    path: Path
    port: int
    log: list[str] = field(default_factory=list)
    _printed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def read(self) -> None:
        """Collect what the process prints, until it ends."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._printed:
                    self.log.append(line.decode(errors="replace").rstrip("\n"))
                    self._printed.notify_all()

    def wait_log(self, wanted: Callable[[dict[str, Any]], bool], within: float = 5.0) -> dict[str, Any]:
        """Wait for a JSON log line and return it."""
        found: list[dict[str, Any]] = []

        def seen() -> bool:
            found[:] = [line for line in self.records() if wanted(line)]
            return bool(found)

        with self._printed:
            assert self._printed.wait_for(seen, within), "no such line:\n" + "\n".join(self.log[-20:])
        return found[0]

    def wait_record(self, request_id: str, within: float = 5.0) -> dict[str, Any]:
        """Wait for the log line of one request."""
        return self.wait_log(lambda line: line.get("request_id") == request_id and "status" in line, within)

    def records(self) -> list[dict[str, Any]]:
        """Return the log's JSON lines so far."""
        lines = []
        for line in list(self.log):
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict)]

    def metrics(self) -> dict[str, float]:
        """Scrape: ``name{labels}`` to value."""
        text = self.get("/metrics", OPERATOR).text
        pairs = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def metric(self, name: str, **labels: str) -> float:
        """Sum the series of this name that carry these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = ((re.split("[{ ]", series)[0], series, value) for series, value in self.metrics().items())
        return sum(value for base, series, value in found if base == name and all(label in series for label in wanted))

    def wait_metric(self, name: str, value: float, within: float = 5.0, **labels: str) -> None:
        """Poll until the sum of the series has this value."""
        until(lambda: self.metric(name, **labels) == value, within, f"{name}{labels} never became {value}")

    def client(self, secret: str = TEAM, **options: Any) -> openai.OpenAI:
        """Return the SDK, without retries unless asked for."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=secret, **{"max_retries": 0, "timeout": 20} | options)

    def async_client(self, secret: str = TEAM, **options: Any) -> openai.AsyncOpenAI:
        """Return the asynchronous SDK."""
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=secret, **{"max_retries": 0, "timeout": 20} | options
        )

    def post(self, path: str, body: Any = None, secret: str | None = TEAM, **options: Any) -> httpx.Response:
        """POST JSON (or ``content=bytes``) without the SDK."""
        headers = {"content-type": "application/json"} | authorization(secret) | dict(options.pop("headers", {}))
        content = options.pop("content", None)
        content = json.dumps(body).encode() if content is None else content
        return httpx.post(self.url + path, content=content, headers=headers, timeout=20, **options)

    def get(self, path: str, secret: str | None = TEAM) -> httpx.Response:
        """GET without the SDK."""
        return httpx.get(self.url + path, headers=authorization(secret), timeout=20)

    def write(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration file as an editor does: written beside it, then renamed."""
        beside = self.path.with_suffix(".new")
        beside.write_text(yaml.safe_dump(dict(config), allow_unicode=True), encoding="utf-8")
        beside.rename(self.path)

    def sockets(self, port: int) -> list[str]:
        """Return the states (``01`` established, ``08`` close-wait, …) of this process's connections to a port."""
        inodes = set()
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        return [row[3] for row in rows if row[9] in inodes and int(row[2].rpartition(":")[2], 16) == port]

    def rss(self) -> int:
        """Return the resident memory of the process in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 10.0) -> int:
        """Send the signal and wait for the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
            raise


def authorization(secret: str | None) -> dict[str, str]:
    """Return the header of a key."""
    return {} if secret is None else {"authorization": f"Bearer {secret}"}


def until(condition: Callable[[], bool], within: float = 5.0, otherwise: str = "it never happened") -> None:
    """Poll a condition."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


@contextlib.contextmanager
def running_gateway(
    config: Mapping[str, Any],
    folder: Path,
    *,
    ready: str = "/readyz",
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
    within: float = 15.0,
) -> Iterator[Gateway]:
    """Start ``sluice serve`` with this configuration, wait until ``ready`` answers 200, and stop it at the end."""
    path = folder / "sluice.yaml"
    path.write_text(yaml.safe_dump(dict(config), allow_unicode=True), encoding="utf-8")
    process = subprocess.Popen(
        [str(SLUICE), "serve", "-c", str(path), *command],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    gateway = Gateway(process, path, config["server"]["port"])
    reader = threading.Thread(target=gateway.read, daemon=True)
    reader.start()
    try:
        _wait_ready(gateway, ready, within)
        yield gateway
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            gateway.stop(signal.SIGINT)  # no notice to load balancers
        reader.join(5)


def _wait_ready(gateway: Gateway, path: str, within: float) -> None:
    deadline = time.monotonic() + within
    while True:
        assert gateway.process.poll() is None, "the gateway ended:\n" + "\n".join(gateway.log[-40:])
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(gateway.url + path, timeout=2).status_code == 200:
                return
        assert time.monotonic() < deadline, "the gateway is not ready:\n" + "\n".join(gateway.log[-40:])
        time.sleep(0.03)


class RawCaller:
    """A caller that speaks bytes: what an HTTP library would not send, and leaving without a word."""

    def __init__(self, port: int, *, timeout: float = 5.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.seen = b""

    def send(self, data: bytes) -> RawCaller:
        self.socket.sendall(data)
        return self

    def post(self, path: str, body: Mapping[str, Any], secret: str | None = TEAM, **headers: str) -> RawCaller:
        """Send a complete POST; an underscore in a header's name stands for a hyphen."""
        raw = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            "host: sluice",
            "content-type: application/json",
            f"content-length: {len(raw)}",
        ]
        named = authorization(secret) | {name.replace("_", "-"): value for name, value in headers.items()}
        lines += [f"{name}: {value}" for name, value in named.items()]
        return self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + raw)

    def until(self, wanted: bytes) -> bytes:
        """Read until these bytes have come."""
        while wanted not in self.seen:
            piece = self.socket.recv(65536)
            assert piece, f"closed before {wanted!r}: {self.seen!r}"
            self.seen += piece
        return self.seen

    def rest(self) -> bytes:
        """Read until the other side closes (or resets)."""
        with contextlib.suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                self.seen += piece
        return self.seen

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Leave with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Heard:
    """A streamed answer taken apart: its frames as they came, and what they say."""

    status: int
    headers: httpx.Headers
    raw: bytes

    @property
    def frames(self) -> list[bytes]:
        return [frame for frame in re.split(rb"(?<=\n\n)", self.raw) if frame]

    @property
    def payloads(self) -> list[bytes]:
        return [frame[6:].strip() for frame in self.frames if frame.startswith(b"data: ")]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for payload in self.payloads if payload != b"[DONE]"]

    @property
    def done(self) -> bool:
        return bool(self.payloads) and self.payloads[-1] == b"[DONE]"

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [event["error"] for event in self.events if "error" in event]

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        found = (choice for event in self.events for choice in event.get("choices", []))
        return [choice for choice in found if choice["index"] == index]

    def text(self, index: int = 0, kind: str = "content") -> str:
        """Join what one choice said."""
        pieces = (choice["text"] if "text" in choice else choice["delta"].get(kind) for choice in self.choices(index))
        return "".join(piece or "" for piece in pieces)

    def finishes(self, index: int = 0) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices(index) if choice.get("finish_reason")]


def hear(gateway: Gateway, body: Mapping[str, Any], path: str = CHAT, secret: str | None = TEAM) -> Heard:
    """Ask for a stream and listen to its end."""
    given = (
        {"model": "smollm2", "messages": HI, "stream": True} if path == CHAT else {"model": "smollm2", "stream": True}
    )
    answer = gateway.post(path, {**given, **body}, secret)
    return Heard(answer.status_code, answer.headers, answer.content)
