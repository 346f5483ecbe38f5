"""The gateways that can be compared: how each is configured and started.

Every builder returns a Gateway or raises Unavailable with the reason. All get one worker, one
engine, the same key, and the configuration that their own documentation recommends for production.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from procs import split_command
from texts import words

MODEL = "m"


class Unavailable(Exception):
    """A gateway that cannot be started here, and why."""


@dataclass(frozen=True)
class Gateway:
    name: str
    port: int
    command: list[str] = field(default_factory=list)  # empty: nothing to start
    env: dict[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True)
class Bench:
    """What the builders need to know."""

    work: Path  # a folder for configurations, lists and logs
    engine_port: int
    key: str
    peers: Path  # the virtual environment that setup.sh made
    checkout: Path  # where .venv/bin/sluice is
    sluice: Path | None = None  # another sluice command

    @property
    def engine(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.write_text(text, encoding="utf-8")
        return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip().partition("\n")[0]


def _installed(bench: Bench, command: str) -> Path:
    path = bench.peers / "bin" / command
    if not path.exists():
        raise Unavailable(f"{command} is not in {bench.peers}: run setup.sh")
    return path


def _distribution(bench: Bench, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return _first_line([str(bench.peers / "bin" / "python"), "-c", code])


def direct(bench: Bench) -> Gateway:
    """No gateway: the client speaks to the engine. The floor for every latency."""
    return Gateway("direct", bench.engine_port)


def nginx(bench: Bench) -> Gateway:
    """nginx as a plain reverse proxy that does not hold streams back. It parses no body."""
    command = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if command is None:
        raise Unavailable("no nginx: apt-get install nginx")
    port = free_port()
    scratch = "".join(
        f"  {kind}_temp_path {bench.work}/nginx-{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = bench.write(
        "nginx.conf",
        f"""
worker_processes 1; daemon off; pid {bench.work}/nginx.pid; error_log {bench.work}/nginx.err;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; client_max_body_size 10m; client_body_buffer_size 64k;
{scratch}  upstream engine {{
    server 127.0.0.1:{bench.engine_port};
    keepalive 512; keepalive_timeout 4s; keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
""",
    )
    version = _first_line([command, "-v"]).rpartition("/")[2]
    return Gateway("nginx", port, [command, "-c", str(config)], version=version)


def _vllm_router(bench: Bench, name: str, policy: str) -> Gateway:
    command = _installed(bench, "vllm-router")
    port = free_port()
    arguments = [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--worker-urls",
        bench.engine,
        "--policy",
        policy,
        "--prometheus-port",
        str(free_port()),
    ]
    return Gateway(name, port, [str(command), *arguments], version=_distribution(bench, "vllm-router"))


def vllm_router(bench: Bench) -> Gateway:
    """The Rust router, at its cheapest: with one engine every policy chooses the same."""
    return _vllm_router(bench, "vllm-router", "round_robin")


def vllm_router_default(bench: Bench) -> Gateway:
    """The Rust router as shipped: cache_aware asks the engine to render each prompt first.

    A stock vLLM refuses that with 403 (it wants --enable-scale-out), so each request costs one more
    round trip. An engine that answers .../render slowly delays every request by up to a second.
    """
    return _vllm_router(bench, "vllm-router-default", "cache_aware")


def litellm(bench: Bench) -> Gateway:
    """LiteLLM's proxy by its page 'Best practices for production', without a database or Redis."""
    command = _installed(bench, "litellm")
    port = free_port()
    config = bench.write(
        "litellm.yaml",
        f"""
model_list:
  - model_name: {MODEL}
    litellm_params: {{model: hosted_vllm/{MODEL}, api_base: "{bench.engine}/v1", api_key: none}}
general_settings:
  master_key: {bench.key}
  disable_spend_logs: true
  disable_error_logs: true
litellm_settings:
  request_timeout: 600
  set_verbose: false
  json_logs: true
  telemetry: false
""",
    )
    env = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return Gateway("litellm", port, [str(command), *arguments], env, _distribution(bench, "litellm"))


def _sluice(bench: Bench, name: str, keys: str, chain: str) -> Gateway:
    command = bench.sluice or bench.checkout / ".venv" / "bin" / "sluice"
    if not command.exists():
        raise Unavailable(f"no {command}: build the checkout first (make test or make run does)")
    port = free_port()
    config = bench.write(
        f"{name}.yaml",
        f"""
server: {{host: 127.0.0.1, port: {port}, workers: 1}}
models:
  - name: {MODEL}
    engines:
      - {{url: "{bench.engine}"}}
    max_output_tokens: 8192
    max_in_flight: 100000
{keys}{chain}""",
    )
    try:
        git = ["git", "-C", str(bench.checkout), "log", "-1", "--format=%h"]
        version = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        version = ""
    return Gateway(name, port, [str(command), "serve", "-c", str(config)], version=version)


def sluice_plain(bench: Bench) -> Gateway:
    """Sluice with nothing switched on."""
    return _sluice(bench, "sluice-plain", "", "chain: []\n")


def sluice_full(bench: Bench, name: str = "sluice-full", count: int = 10_000) -> Gateway:
    """Sluice with everything that belongs on a public route: a limited key, cleaning, words both ways, an audit log."""
    word_list = bench.write(f"words-{count}.txt", "\n".join(words(count)) + "\n")
    hashed = hashlib.sha256(bench.key.encode()).hexdigest()
    limits = "rpm: 1000000000, tpm: 1000000000000, max_in_flight: 100000"
    keys = f'keys:\n  - {{name: bench, sha256: "{hashed}", models: [{MODEL}], {limits}}}\n'
    chain = f"""chain:
  - plugin: normalize
  - plugin: clean_text
    options: {{directions: [request, answer]}}
  - plugin: sensitive_words
    options:
      lists: [{{path: {json.dumps(str(word_list))}, action: block}}]
      directions: [request, answer]
  - plugin: audit_log
    options: {{path: {json.dumps(str(bench.work / f"{name}-audit.jsonl"))}}}
"""
    return _sluice(bench, name, keys, chain)


def sluice_full_100k(bench: Bench) -> Gateway:
    """The same with 100,000 words: what does the length of the list cost?"""
    return sluice_full(bench, "sluice-full-100k", 100_000)


KNOWN: dict[str, Callable[[Bench], Gateway]] = {
    "direct": direct,
    "nginx": nginx,
    "vllm-router": vllm_router,
    "vllm-router-default": vllm_router_default,
    "litellm": litellm,
    "sluice-plain": sluice_plain,
    "sluice-full": sluice_full,
    "sluice-full-100k": sluice_full_100k,
}


def custom(name: str, template: str, bench: Bench) -> Gateway:
    """Any other gateway, from a command line with {port}, {engine}, {engine_port}, {key} and {work} in it."""
    port = free_port()
    values = {
        "port": port,
        "engine": bench.engine,
        "engine_port": bench.engine_port,
        "key": bench.key,
        "work": bench.work,
    }
    text = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), template)
    command, env = split_command(text)
    if not command or not (shutil.which(command[0]) or Path(command[0]).exists()):
        raise Unavailable(f"no such command: {' '.join(command[:1]) or '(empty)'}")
    return Gateway(name, port, command, env)
