"""`sluice up`: a real vLLM and the gateway in front of it, as a newcomer starts them and as they end."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine_fixture import default_model
from tests.harness import CHAT, ROOT, SLUICE, free_port, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

#: How long an engine may take to come up beside everything else that a test session does.
UP_S = 180.0


class Up:
    """A running ``sluice up``: what it printed, and all processes of its family, known by a mark they inherit."""

    def __init__(self, *words: str) -> None:
        self.mark = f"TEST_FAMILY={uuid.uuid4().hex}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [str(SLUICE), "up", "--port", str(self.port), "--", "--max-model-len", "1024", *words],
            cwd=ROOT,
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed: list[str] = []
        self.sessions: set[str] = set()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.printed.append(line.rstrip())

    @property
    def said(self) -> str:
        return "\n".join(self.printed)

    def wait_said(self, pattern: str, within: float = UP_S) -> None:
        until(
            lambda: re.search(pattern, self.said) is not None or self.process.poll() is not None,
            within,
            f"never said {pattern!r}:\n{self.said}",
        )
        assert re.search(pattern, self.said), self.said

    def family(self) -> dict[int, str]:
        """Return who is alive: process id to command.

        vLLM's processes write their titles over their environments, and with it the mark; they are known by the
        session, the engine's own, in which their leash was once seen.
        """
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
                if self.mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                    if "leash.py" in command:
                        self.sessions.add(session)
                    found[int(place.name)] = command
                elif session in self.sessions and state != "Z":
                    found[int(place.name)] = command
        return found

    def ask(self, **fields: Any) -> httpx.Response:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
        return httpx.post(self.url + CHAT, json={**body, "temperature": 0, "max_tokens": 8, **fields}, timeout=60)

    def end(self, number: signal.Signals = signal.SIGTERM, within: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(within)
        self.reader.join(10)
        return status

    def gone(self) -> None:
        until(lambda: not self.family(), 20, "still there")


@contextlib.contextmanager
def running(*words: str) -> Iterator[Up]:
    default_model()
    up = Up(*words)
    try:
        yield up
    finally:
        up.process.kill()
        up.end()
        up.gone()


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with running() as started:
        yield started


def test_the_gateway_is_up_at_once_and_says_when_to_come_back(up: Up) -> None:
    def answers() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{up.url}/livez").status_code == 200
        return False

    until(answers, 20, f"the gateway is not up:\n{up.said}")
    if "is ready. Try it" not in up.said:
        answer = up.ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_engine_available")
        assert int(answer.headers["retry-after"]) > 0


def test_progress_is_told_while_it_loads_and_the_printed_request_works_as_it_is(up: Up) -> None:
    up.wait_said("is ready. Try it")
    phases = re.findall(r"^engine: (.+?)(?: \(.*\))? … \d+ s$", up.said, re.MULTILINE)
    wanted = ["starting vLLM", "loading the weights", "preparing the KV cache", "warming up"]
    assert [phase for phase in dict.fromkeys(phases) if phase in wanted] == wanted
    assert re.search(r"^engine: ready after \d+ s$", up.said, re.MULTILINE)

    until(lambda: "}'" in up.said, 5)
    printed = re.search(r"curl .*?\}'", up.said, re.DOTALL)
    assert printed
    command = shlex.split(printed[0].replace("\\\n", " "))
    done = subprocess.run([command[0], "-sS", *command[1:]], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("data: {")
    assert done.stdout.endswith("data: [DONE]\n\n")
    assert "Paris" in up.ask().json()["choices"][0]["message"]["content"]


def test_no_caller_pays_for_the_first_of_anything(up: Up) -> None:
    up.wait_said("is ready. Try it")
    begun = time.monotonic()
    answer = up.ask(logprobs=True, top_logprobs=2, max_tokens=2)
    assert answer.json()["choices"][0]["logprobs"]["content"]
    assert time.monotonic() - begun < 8  # the compile that this would be takes 13 s on an idle machine


def test_the_engine_listens_on_loopback_only(up: Up) -> None:
    up.wait_said("is ready. Try it")
    engine = next(words for words in up.family().values() if "vllm.entrypoints" in words and "leash" not in words)
    port = int(engine.split("--port ")[1].split()[0])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    assert listening == {"0100007F"}
    assert "trust" not in engine


def test_a_crashed_engine_is_503_until_it_is_back(up: Up) -> None:
    up.wait_said("is ready. Try it")
    before = up.family()
    core = next(pid for pid, words in before.items() if words.startswith("VLLM::EngineCore"))
    os.kill(core, signal.SIGKILL)
    up.wait_said(r"engine: died \(.*starting it again in 1 s", 30)
    until(lambda: up.ask().status_code == 503, 10)
    answer = up.ask()
    assert answer.json()["error"]["code"] == "no_engine_available"
    assert int(answer.headers["retry-after"]) > 0
    assert httpx.get(f"{up.url}/livez").status_code == 200
    assert httpx.get(f"{up.url}/readyz").status_code == 503

    until(lambda: len(re.findall("engine: ready after", up.said)) == 2, UP_S, up.said)
    until(lambda: up.ask().status_code == 200, 30, "not back within 30 s")
    old = {pid for pid, words in before.items() if "vllm" in words.lower()}
    assert old.isdisjoint(up.family())


def test_sigterm_ends_both_with_status_0_and_leaves_no_process(up: Up) -> None:
    up.wait_said("is ready. Try it")
    assert any(words.startswith("VLLM::") for words in up.family().values())
    assert up.end(signal.SIGTERM) == 0
    assert up.family() == {}
    assert "Traceback" not in up.said


def test_ctrl_c_while_it_loads_leaves_no_process() -> None:
    with running() as up:
        up.wait_said("engine: starting vLLM", 30)
        until(lambda: len(up.family()) >= 3, 20)
        assert up.end(signal.SIGINT) in {0, 130}
        assert up.family() == {}
        assert "Traceback" not in up.said


def test_killed_it_leaves_no_process_either() -> None:
    with running() as up:
        until(lambda: len(up.family()) >= 3, 20)
        up.process.kill()
        up.process.wait()
        up.gone()


def test_an_engine_that_cannot_start_ends_the_command_with_its_last_lines() -> None:
    with running("--quantization", "nonsense") as up:
        assert up.process.wait(60) == 3
        up.reader.join(10)
        assert up.printed[-1].startswith("sluice: vLLM died while starting (exit status 1): ")
        assert "Unknown quantization method: nonsense" in up.printed[-1]
        assert len(up.printed) > 5


def test_a_directory_that_is_no_model_is_named_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    command = [str(SLUICE), "up", "--port", str(free_port()), "--model", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"sluice: {tmp_path} is not a whole model: no tokenizer (one of ")
    assert last.endswith("; no weights (*.safetensors)")
