"""Real containers: the gateway's image, the composed whole with a real vLLM, and the chart's pods."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from gateway.engine.up import python_of
from tests.deploy.chart import ROOT, render
from tests.deploy.podman import BASE, GATEWAY, Podman
from tests.deploy.queries import shipped
from tests.engine_fixture import default_model
from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import HI, configuration, free_port, key, model, until
from tests.tools import needs

pytestmark = [
    pytest.mark.containers,
    pytest.mark.timeout(900),
    needs("podman", root=True),
]
COMPOSE = (ROOT / "deploy" / "compose.yaml", ROOT / "tests" / "deploy" / "compose.test.yaml")
ENGINE = ROOT / ".engine-venv"
SECRET = "sk-containers"


@pytest.fixture(scope="module")
def podman() -> Podman:
    """A podman of our own, with the gateway's image built."""
    found = Podman(ROOT / ".cache" / "containers")
    found.prepare()
    found.build(ROOT / "deploy" / "Dockerfile", GATEWAY)
    return found


@pytest.fixture
def started(podman: Podman, tmp_path: Path) -> Iterator[tuple[FakeVLLM, str, str]]:
    """The gateway's container in front of a fake engine: the engine, the container's name and its address."""
    with FakeVLLM() as fake:
        config = configuration([model("smollm2", fake.url)], keys=[key("team", SECRET)], chain=[], drain_s=20)
        (tmp_path / "sluice.yaml").write_text(yaml.safe_dump(config))
        tmp_path.chmod(0o755)
        name = f"sluice-test-{free_port()}"
        podman.run(
            *("run", "-d", "--name", name, "--network", "host", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--memory", "256m", "-v", f"{tmp_path}:/etc/sluice:ro"),
            *("-e", f"SLUICE_SERVER__PORT={config['server']['port']}", GATEWAY),
        )
        url = f"http://127.0.0.1:{config['server']['port']}"
        try:
            wait(podman, name, f"{url}/readyz", 20)
            yield fake, name, url
        finally:
            podman.run("rm", "-f", "-t", "0", name)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def wait(podman: Podman, container: str, url: str, seconds: float) -> None:
    """Wait until a container answers; where it does not, tell what it printed."""
    try:
        until(lambda: answers(url), within=seconds)
    except AssertionError:
        log = podman.run("logs", container, check=False)
        pytest.fail(f"{container} does not answer: {log.stdout[-3000:]}{log.stderr[-3000:]}", pytrace=False)


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, max_retries=0, timeout=60)


def test_the_gateways_image_is_small_runs_as_nobody_and_has_no_compiler(podman: Podman) -> None:
    (image,) = json.loads(podman.run("image", "inspect", GATEWAY).stdout)
    (base,) = json.loads(podman.run("image", "inspect", BASE).stdout)
    assert image["Size"] - base["Size"] < 200 << 20
    assert image["User"] == "10001:10001"
    assert image["Healthcheck"]["Test"][:2] == ["CMD", "python"]
    assert image["Labels"]["org.opencontainers.image.title"] == "Sluice"
    for tool in ("gcc", "cc", "make", "pip"):
        assert podman.run("run", "--rm", "--entrypoint", "which", GATEWAY, tool, check=False).returncode == 1, tool
    version = podman.run("run", "--rm", "--network", "none", "--read-only", GATEWAY, "plugins").stdout
    assert "sensitive_words" in version


def test_the_container_streams_with_nothing_to_write_to(started: tuple[FakeVLLM, str, str], podman: Podman) -> None:
    fake, name, url = started
    fake.script(says("hello from inside"))
    stream = sdk(url).chat.completions.create(model="smollm2", messages=HI, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "hello from inside"
    touched = podman.run("exec", name, "touch", "/etc/x", check=False)
    assert "Read-only file system" in touched.stderr
    assert podman.run("exec", name, "id", "-u").stdout.strip() == "10001"
    assert podman.run("healthcheck", "run", name, check=False).returncode == 0


def test_stopping_a_container_lets_its_stream_end(started: tuple[FakeVLLM, str, str], podman: Podman) -> None:
    fake, name, url = started
    gate = fake.gate()
    fake.script(says("before", gate, "after"))
    stream = sdk(url).chat.completions.create(model="smollm2", messages=HI, stream=True)
    pieces = iter(stream)
    text = ""
    while "before" not in text:
        text += next(pieces).choices[0].delta.content or ""
    stopping = subprocess.Popen([podman.command, "stop", "-t", "30", name], stdout=subprocess.DEVNULL)
    until(lambda: not answers(f"{url}/readyz"), within=10, otherwise="it is still ready")
    gate.set()
    text += "".join(chunk.choices[0].delta.content or "" for chunk in pieces if chunk.choices)
    assert text == "beforeafter"
    assert stopping.wait(30) == 0
    (state,) = json.loads(podman.run("inspect", name).stdout)
    assert state["State"]["ExitCode"] == 0


@pytest.fixture(scope="module")
def stack(podman: Podman) -> Iterator[dict[str, str]]:
    """The composed services, but for Grafana: addresses by service."""
    ports = {name: str(free_port()) for name in ("SLUICE_PORT", "PROMETHEUS_PORT")}
    python = python_of(ENGINE)
    environ = {
        **ports,
        "KEY_SHA256": hashlib.sha256(SECRET.encode()).hexdigest(),
        "ENGINE_PYTHON": str(python),
        "ENGINE_HOME": str(ENGINE),
        "PYTHON_HOME": str(python.resolve().parents[1]),
        "MODEL_HOME": str(default_model()),
    }
    try:
        podman.compose(
            "up", "-d", "--no-build", "engine", "redis", "gateway", "prometheus", files=COMPOSE, environ=environ
        )
        url = f"http://127.0.0.1:{ports['SLUICE_PORT']}"
        wait(podman, "sluice_gateway_1", f"{url}/livez", 30)
        wait(podman, "sluice_engine_1", f"{url}/readyz", 240)
        yield {"gateway": url, "prometheus": f"http://127.0.0.1:{ports['PROMETHEUS_PORT']}"}
    finally:
        podman.compose("down", "-v", "-t", "1", files=COMPOSE, environ=environ)


def test_the_composed_whole_streams_a_real_answer(stack: dict[str, str]) -> None:
    stream = sdk(stack["gateway"]).chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=12,
        temperature=0,
        stream=True,
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert "Paris" in text


def test_prometheus_sees_gateway_engine_and_rules(stack: dict[str, str]) -> None:
    def ask(query: str) -> list[dict[str, Any]]:
        answer = httpx.post(f"{stack['prometheus']}/api/v1/query", data={"query": query}, timeout=10)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    until(lambda: len(ask('up{job=~"sluice|vllm"} == 1')) == 2, within=60, otherwise="a target is not scraped")
    until(lambda: bool(ask("sluice:target:availability")), within=60, otherwise="rules are not evaluated")
    until(lambda: bool(ask("sluice_engine_up == 1")), within=60, otherwise="the next scrape does not see the engine")
    until(lambda: bool(ask("sluice_limits_redis_away == 0")), within=60, otherwise="limits are not counted in Redis")
    plain = [query for query in shipped() if query.text.startswith(("vllm:", "sum by (model_name, instance) (vllm:"))]
    assert plain
    for query in plain:
        assert ask(query.text), query.where


def test_the_engine_is_reached_by_nobody_but_the_composed_services(podman: Podman, stack: dict[str, str]) -> None:
    (container,) = [
        each for each in json.loads(podman.run("ps", "--format", "json").stdout) if "engine" in each["Names"][0]
    ]
    assert not container["Ports"]


@pytest.fixture
def pod(podman: Podman, stack: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The chart's gateway pod beside the composed engine: its address."""
    given = {
        "keys": [{"name": "team", "sha256": hashlib.sha256(SECRET.encode()).hexdigest()}],
        "models": [{"name": "smollm2", "external": [{"url": "http://engine:8000"}]}],
        "config": {"timeouts": {"total_s": 60}},
        "gateway": {"replicas": 1},
    }
    rendered = render(given)
    deployment = rendered.one("Deployment", "demo-sluice")
    spec = deployment["spec"]["template"]["spec"]
    # A projected volume is what podman does not know: its files are laid out as the kubelet lays them out.
    mounted = tmp_path / "mounted"
    lay_out(mounted, "one", rendered.one("Secret", "demo-sluice-config")["stringData"]["sluice.yaml"], "# none\n")
    (config,) = [each for each in spec["volumes"] if "projected" in each]
    spec["volumes"][spec["volumes"].index(config)] = {
        "name": "config",
        "hostPath": {"path": str(mounted), "type": "Directory"},
    }
    for each in (port for container in spec["containers"] for port in container["ports"]):
        each["hostPort"] = free_port()  # podman publishes a pod's ports, and 8080 may be anybody's here
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(deployment))
    tmp_path.chmod(0o755)
    try:
        podman.run("play", "kube", "--network", "sluice_default", str(file))
        (found,) = [
            each
            for each in json.loads(podman.run("ps", "--format", "json").stdout)
            if each["Names"][0].endswith("-gateway") and "demo" in each["Names"][0]
        ]
        (inspected,) = json.loads(podman.run("inspect", found["Id"]).stdout)
        infra = json.loads(
            podman.run("inspect", inspected["HostConfig"]["NetworkMode"].removeprefix("container:")).stdout
        )[0]
        address = infra["NetworkSettings"]["Networks"]["sluice_default"]["IPAddress"]
        url = f"http://{address}:8080"
        wait(podman, found["Id"], f"{url}/readyz", 30)
        yield url
    finally:
        podman.run("play", "kube", "--down", str(file), check=False)


def lay_out(folder: Path, version: str, config: str, words: str) -> None:
    """Put files where a kubelet puts them, and swap the link that makes them the ones in force."""
    data = folder / f"..{version}"
    (data / "words").mkdir(parents=True)
    (data / "sluice.yaml").write_text(config)
    (data / "words" / "block.txt").write_text(words)
    new = folder / "..data_tmp"
    new.symlink_to(data.name)
    new.rename(folder / "..data")
    for name in ("sluice.yaml", "words"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for each in (folder, data, data / "words"):
        each.chmod(0o755)


def test_the_charts_pod_answers_passes_its_own_test_and_takes_over_a_swapped_word_list(
    pod: str, tmp_path: Path
) -> None:
    script = render({"config": {"existingSecret": "x"}}).one("ConfigMap", "demo-sluice-test")["data"]["stream.py"]
    (tmp_path / "stream.py").write_text(script)
    done = subprocess.run(
        ["python3", tmp_path / "stream.py"],
        env={**os.environ, "GATEWAY": pod, "MODEL": "smollm2", "API_KEY": SECRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "chunks" in done.stdout

    mounted = tmp_path / "mounted"
    lay_out(mounted, "two", (mounted / "sluice.yaml").read_text(), "forbiddenzebra\n")
    swapped = time.monotonic()

    def blocked() -> bool:
        try:
            sdk(pod).chat.completions.create(
                model="smollm2", messages=[{"role": "user", "content": "forbiddenzebra"}], max_tokens=1
            )
        except openai.BadRequestError as refused:
            return refused.code == "content_filter"
        return False

    until(blocked, within=12, otherwise="the swapped list is not in force")
    assert time.monotonic() - swapped < 12
