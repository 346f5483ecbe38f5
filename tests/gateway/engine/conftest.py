"""Small stand-ins for vLLM and for the engine's interpreter, and a look at what is left running."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

#: Accepts vLLM's command line and answers on its port; ``FAKE_ENGINE`` says what goes wrong: ``dies`` at once,
#: ``crashes`` on a POST that says so, ``stubborn`` ignores SIGTERM. It has a worker in a session of its own.
SERVER = """\
import http.server, json, os, signal, subprocess, sys, time
mode = os.environ.get("FAKE_ENGINE", "")
print("INFO non-default args: ", flush=True)
if mode == "dies":
    print("ValueError: no such thing", flush=True)
    sys.exit(1)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("INFO Starting to load model x", flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"{}")
    do_GET = answer
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if mode == "crashes" and body.get("crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.answer()
    def log_message(self, *_): pass
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class Family:
    """Processes marked by a variable of the environment, which all that they start inherit."""

    def __init__(self) -> None:
        self.mark = f"SLUICE_TEST_FAMILY={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.environ = {**os.environ, name.removeprefix("SLUICE_"): value}
        self.mark = self.mark.removeprefix("SLUICE_")

    def members(self) -> list[int]:
        """Return who is alive (a zombie has no environment)."""
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in place.read_bytes().split(b"\0"):
                    found.append(int(place.parent.name))
            except OSError:
                continue
        return found

    def wait(self, condition: Callable[[int], bool], within: float = 10.0) -> int:
        """Wait until the number of members is as wanted, and return it."""
        deadline = time.monotonic() + within
        while not condition(count := len(self.members())):
            assert time.monotonic() < deadline, f"{count} processes"
            time.sleep(0.02)
        return count


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    yield family
    assert family.members() == []


@pytest.fixture
def fake_python(tmp_path: Path) -> Path:
    """An interpreter that runs the stand-in instead of vLLM."""
    path = tmp_path / "fake-python"
    path.write_text(f"#!{sys.executable}\n{SERVER}")
    path.chmod(0o755)
    return path
