"""The shipped nginx configuration, in a real nginx between the OpenAI SDK and a real gateway."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
import yaml

from tests.deploy.chart import CHART, ROOT
from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, configuration, free_port, model, running_gateway
from tests.tools import needs, running_nginx

SHIPPED = (ROOT / "deploy" / "nginx" / "nginx.conf").read_text("utf-8")
needs_nginx = needs("nginx", "openssl")

#: Of the times that are shipped, one hundredth and less: what lasts 70 s in life lasts 5 s here.
READ_TIMEOUT_S, HEARTBEAT_S, SILENCE_S = 3, 1, 5
MAX_BODY = 4 << 20


def setting(name: str) -> str:
    (found,) = re.findall(rf"^\s*{name}\s+([^;]+);", SHIPPED, re.MULTILINE)
    return str(found)


def changed(folder: Path, gateway: Gateway, port: int) -> str:
    """Change the shipped file in its marked places, shorten its patience, and let it run without root."""
    certificate = f"ssl_certificate     {folder}/tls.crt;\n    ssl_certificate_key {folder}/tls.key;"
    text = SHIPPED.replace("server 127.0.0.1:8080;", f"server 127.0.0.1:{gateway.port};")
    text = text.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port} ssl http2;")
    text = re.sub(r"ssl_certificate .*\n.*ssl_certificate_key .*;", lambda _: certificate, text)
    text = text.replace("1800s", f"{READ_TIMEOUT_S}s").replace("/dev/stdout", f"{folder}/access.log")
    temporary = "".join(
        f"  {each}_temp_path {folder}/{each};\n" for each in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
    )
    return f"daemon off;\npid {folder}/pid;\nerror_log stderr warn;\n" + text.replace(
        "http {\n", f"http {{\n{temporary}"
    )


@pytest.fixture(scope="module")
def patient(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose heartbeat comes as often, of its proxy's patience, as in the shipped configurations."""
    config = configuration([model("smollm2", _engine.url)], heartbeat_s=HEARTBEAT_S, max_body_bytes=MAX_BODY)
    with running_gateway(config, tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture(scope="module")
def proxy(patient: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An nginx with the shipped configuration: its address."""
    folder = tmp_path_factory.mktemp("nginx")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]  # noqa: RUF005 -- two halves of one command
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True,
        capture_output=True,
    )
    port = free_port()
    with running_nginx(changed(folder, patient, port), port, folder):
        yield f"https://localhost:{port}"


@pytest.fixture
def client(proxy: str) -> Iterator[openai.OpenAI]:
    """The SDK over HTTP/2, as it comes but for the test's certificate."""
    with openai.DefaultHttpxClient(http2=True, verify=False, timeout=20) as http:
        yield openai.OpenAI(base_url=f"{proxy}/v1", api_key=TEAM, http_client=http, max_retries=0)


@needs_nginx
def test_the_first_token_is_not_delayed_over_http_2(fake: FakeVLLM, client: openai.OpenAI) -> None:
    gate = fake.gate()
    fake.script(says("first", gate, "last"))
    with client.chat.completions.with_streaming_response.create(model="smollm2", messages=HI, stream=True) as answer:
        assert answer.http_response.http_version == "HTTP/2"
        lines = answer.iter_lines()
        assert any("first" in line for line in lines)  # while the engine waits at the gate
        gate.set()
        assert "data: [DONE]" in list(lines)


@needs_nginx
def test_a_silence_longer_than_nginxs_patience_is_survived(fake: FakeVLLM, client: openai.OpenAI) -> None:
    """K8-03: what lasts 70 s there."""
    gate = fake.gate()
    fake.script(says(gate, "late"))
    threading.Timer(SILENCE_S, gate.set).start()
    began = time.monotonic()
    stream = client.chat.completions.create(model="smollm2", messages=HI, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == "late"
    assert time.monotonic() - began > SILENCE_S > READ_TIMEOUT_S


@needs_nginx
def test_a_body_of_three_megabytes_passes(fake: FakeVLLM, client: openai.OpenAI) -> None:
    """K8-03."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (3 << 20)}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "what is this?"}]}]
    fake.script(says("a picture"))
    answer = client.chat.completions.create(model="smollm2", messages=messages)  # type: ignore[arg-type] # a plain dict
    assert answer.choices[0].message.content == "a picture"


@needs_nginx
def test_a_body_over_the_gateways_limit_is_a_413_in_json(proxy: str) -> None:
    """K8-03: over HTTP/1.1, as the SDK comes: httpx's HTTP/2 reads no answer that is there before its body is sent."""
    http = openai.DefaultHttpxClient(verify=False, timeout=20)
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key=TEAM, http_client=http, max_retries=0) as client:
        long = [{"role": "user", "content": "x" * (MAX_BODY + 1000)}]
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="smollm2", messages=long)  # type: ignore[arg-type] # a plain dict
    assert refused.value.status_code == 413
    assert refused.value.code == "request_too_large"


@needs_nginx
def test_a_caller_that_leaves_stops_the_engine(fake: FakeVLLM, client: openai.OpenAI) -> None:
    fake.script(says("first", fake.gate(), "last"))
    stream = client.chat.completions.create(model="smollm2", messages=HI, stream=True)
    next(iter(stream))
    (received,) = fake.requests()
    assert not received.left.is_set()
    client.close()  # httpx does not reset a stream of HTTP/2 that is closed early; the connection's end is what is seen
    left = time.monotonic()
    assert received.seconds_until_left(left, 3) < 1.5


@needs_nginx
def test_a_caller_of_http_1_is_served_alike(fake: FakeVLLM, proxy: str) -> None:
    fake.script(says("hello"))
    body = {"model": "smollm2", "messages": HI}
    with httpx.Client(verify=False) as http:
        answer = http.post(f"{proxy}{CHAT}", json=body, headers={"Authorization": f"Bearer {TEAM}"})
    assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
    assert "server" not in answer.headers or "/" not in answer.headers["server"]


def test_the_shipped_times_leave_room_for_the_gateways_own() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["config"]
    assert int(setting("proxy_read_timeout").removesuffix("s")) >= max(values["timeouts"].values())
    assert int(setting("client_max_body_size").removesuffix("m")) << 20 > values["server"]["max_body_bytes"]
    assert setting("proxy_buffering") == setting("proxy_request_buffering") == "off"
    assert setting("proxy_next_upstream") == "error"
