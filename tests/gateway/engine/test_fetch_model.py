"""The hub's real client against a hub of our own on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.engine import fetch_model

SCRIPT = Path(fetch_model.__file__)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = ("config.json", "model.safetensors", "pytorch_model.bin", "model.gguf", "tokenizer.json")
OLD_FILES = ("config.json", "pytorch_model.bin", "tokenizer.json")


class Hub:
    """Two models: ``o/new`` with safetensors beside pickles, ``o/old`` with pickles only."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            def do_HEAD(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        name = next((name for name in ("o/new", "o/old") if f"/{name}" in path), None)
        files = OLD_FILES if name == "o/old" else FILES
        if name is None:
            self.send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in path:
            tree = [{"type": "file", "oid": "a" * 40, "size": len(file), "path": file} for file in files]
            self.send(request, 200, json.dumps(tree).encode())
        elif path.startswith("/api/"):
            siblings = [{"rfilename": file} for file in files]
            self.send(request, 200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode())
        else:
            file = path.rpartition("/")[2]
            if request.command == "GET":
                self.fetched.append(file)
            etag = hashlib.sha256(file.encode()).hexdigest()
            self.send(request, 200, file.encode(), {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    @staticmethod
    def send(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def fetch(name: str, folder: Path, endpoint: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    settings = {"HF_HOME": str(folder), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), name],
        env={**inherited, **settings, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_where_there_are_safetensors_no_pickle_is_even_downloaded(hub: Hub, tmp_path: Path) -> None:
    done = fetch("o/new", tmp_path, hub.url)
    directory = Path(done.stdout.strip().splitlines()[-1])
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(hub.fetched) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_pickles_alone_are_fetched(hub: Hub, tmp_path: Path) -> None:
    assert fetch("o/old", tmp_path, hub.url).returncode == 0
    assert sorted(hub.fetched) == sorted(OLD_FILES)


def test_what_was_fetched_is_found_again_without_a_network(hub: Hub, tmp_path: Path) -> None:
    first = fetch("o/new", tmp_path, hub.url)
    for environ in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        again = fetch("o/new", tmp_path, hub.url, **environ)
        assert again.stdout.splitlines()[-1:] == first.stdout.splitlines()[-1:], again.stderr


def test_no_network_and_no_such_model_are_one_line_each(hub: Hub, tmp_path: Path) -> None:
    offline = fetch("o/new", tmp_path, "http://127.0.0.1:9")
    assert offline.returncode == 1
    assert offline.stderr.splitlines()[-1].startswith("cannot reach the hub for o/new and it was not fetched before")
    unknown = fetch("o/none", tmp_path, hub.url)
    assert unknown.returncode == 1
    assert unknown.stderr.splitlines()[-1] == "the hub has no model o/none, or it is private (HF_TOKEN)"


def test_modelscope_is_asked_where_vllm_would_ask_it(hub: Hub, tmp_path: Path) -> None:
    package = tmp_path / "site" / "modelscope" / "hub"
    package.mkdir(parents=True)
    (package / "snapshot_download.py").write_text(
        "def snapshot_download(name, ignore_file_pattern): return '/ms/' + name\n"
    )
    there = fetch("o/new", tmp_path, hub.url, VLLM_USE_MODELSCOPE="True", PYTHONPATH=str(tmp_path / "site"))
    assert there.stdout == "/ms/o/new\n"
    without = fetch("o/new", tmp_path, hub.url, VLLM_USE_MODELSCOPE="1")
    assert "pip install modelscope" in without.stderr
