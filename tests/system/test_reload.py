"""Words, keys and chain change while the gateway runs: checked first, swapped at once, the last good version stays."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, configuration, key, model, until
from tests.system.conftest import StartGateway

IN_FORCE_S = 10.0


def status(gateway: Gateway, text: str, secret: str = TEAM) -> int:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": text}]}
    return gateway.post(CHAT, body, secret).status_code


def configured(fake: FakeVLLM, *words: str, **more: Any) -> dict[str, Any]:
    chain = [{"plugin": "sensitive_words", "options": {"words": list(words)}}]
    return configuration([model("smollm2", fake.url)], chain=chain, **more)


def version(gateway: Gateway) -> float:
    return gateway.metric("sluice_config_version")


def test_a_word_list_that_changes_is_in_force_within_ten_seconds(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """By a plain write, by a rename, and by the symlink swap of a Kubernetes volume."""
    first, second = tmp_path / "..v1", tmp_path / "..v2"
    for folder, words in ((first, "zebra\n"), (second, "lion\n")):
        folder.mkdir()
        (folder / "block.txt").write_text(words)
    data = tmp_path / "..data"
    data.symlink_to(first)
    (tmp_path / "block.txt").symlink_to(Path("..data/block.txt"))
    config = configuration([model("smollm2", fake.url)])
    config["chain"] = [{"plugin": "sensitive_words", "options": {"lists": [str(tmp_path / "block.txt")]}}]
    gateway = start_gateway(config)
    assert [status(gateway, word) for word in ("a zebra", "a lion", "a tiger")] == [400, 200, 200]
    swapped = tmp_path / "..new"
    swapped.symlink_to(second)
    swapped.rename(data)
    until(lambda: status(gateway, "a lion") == 400, IN_FORCE_S, "the swapped list never came into force")
    assert status(gateway, "a zebra") == 200
    (second / "block.txt").write_text("lion\ntiger\n")
    until(lambda: status(gateway, "a tiger") == 400, IN_FORCE_S, "the written list never came into force")
    assert gateway.metric("sluice_config_reloads_total", outcome="ok") >= 2


def test_keys_and_chain_change_with_the_file(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    config = configured(fake, "zebra")
    gateway = start_gateway(config)
    before = version(gateway)
    assert (status(gateway, "a zebra"), status(gateway, "hi", "sk-new")) == (400, 401)
    changed = config | configured(fake, "lion", keys=[key("new", "sk-new")]) | {"server": config["server"]}
    gateway.write(changed)
    until(lambda: status(gateway, "hi", "sk-new") == 200, IN_FORCE_S, "the new key never came into force")
    assert status(gateway, "hi") == 401
    assert (status(gateway, "a zebra", "sk-new"), status(gateway, "a lion", "sk-new")) == (200, 400)
    assert version(gateway) == before + 1


WRONG: dict[str, Any] = {
    "no YAML": "chain: [",
    "an unknown key": {"colour": "blue"},
    "an unknown plugin": {"chain": [{"plugin": "nope"}]},
    "a missing list": {"chain": [{"plugin": "sensitive_words", "options": {"lists": ["nowhere.txt"]}}]},
    "an unknown option": {"chain": [{"plugin": "sensitive_words", "options": {"wrods": []}}]},
}


def test_the_last_good_version_stays_when_the_new_one_is_wrong(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    config = configured(fake, "zebra")
    gateway = start_gateway(config)
    before = version(gateway)
    for number, wrong in enumerate(WRONG.values(), 1):
        if isinstance(wrong, str):
            gateway.path.write_text(wrong)
        else:
            gateway.write(config | wrong)
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda number=number: failures(gateway) >= number, IN_FORCE_S, "no failed reload was counted")  # type: ignore[misc] # mypy cannot infer a lambda with a default
        assert (status(gateway, "a zebra"), status(gateway, "hi")) == (400, 200)
    assert version(gateway) == before
    gateway.write(config | configured(fake, "lion") | {"server": config["server"]})
    until(lambda: status(gateway, "a lion") == 400, IN_FORCE_S, "the mended configuration never came into force")


def failures(gateway: Gateway) -> float:
    everything = gateway.metric("sluice_config_reloads_total")
    return everything - gateway.metric("sluice_config_reloads_total", outcome="ok")


def test_a_file_that_loses_its_keys_opens_a_gateway_on_every_address_to_nobody(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    """The address is implied by the keys; without them the one that is listened on stays what it was."""
    config = configured(fake, "zebra", keys=[key("team", TEAM)])
    del config["server"]["host"]
    gateway = start_gateway(config)
    gateway.write({name: value for name, value in config.items() if name != "keys"})
    until(lambda: failures(gateway) >= 1, IN_FORCE_S, "the file without keys was not refused")
    assert status(gateway, "hi", "sk-nobody") == 401


def test_engines_change_with_the_file_and_streams_stay_where_they_are(start_gateway: StartGateway) -> None:
    with FakeVLLM() as fake, FakeVLLM() as second:
        second.always(says("second"))
        config = configuration([model("smollm2", fake.url)])
        gateway = start_gateway(config)
        gate = fake.gate()
        fake.script(says("first ", gate, "to the end"))
        with gateway.client() as client:
            stream = iter(client.chat.completions.create(model="smollm2", messages=HI, stream=True))
            assert next(stream).choices
            gateway.write(config | {"models": [model("smollm2", second.url), model("new", second.url)]})
            gateway.process.send_signal(signal.SIGHUP)
            until(lambda: gateway.get("/v1/models/new").status_code == 200, IN_FORCE_S)
            answer = client.chat.completions.create(model="smollm2", messages=HI)
            assert answer.choices[0].message.content == "second"
            gate.set()
            rest = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert rest == "first to the end"
        until(lambda: fake.connections == set(), 10, "the old engine's connections were never closed")


def test_sighup_reloads_at_once(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    config = configured(fake, "zebra")
    gateway = start_gateway(config)
    gateway.write(config | configured(fake, "lion") | {"server": config["server"]})
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: status(gateway, "a lion") == 400, 2, "SIGHUP did not reload")
    assert gateway.process.poll() is None


def test_an_exchange_sees_one_version_from_start_to_end(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    config = configured(fake, "zebra")
    gateway = start_gateway(config)
    gate = fake.gate()
    fake.script(says("one ", gate, "lion and zebra"))
    with gateway.client() as client:
        stream = iter(client.chat.completions.create(model="smollm2", messages=HI, stream=True))
        assert next(stream).choices
        gateway.write(config | configured(fake, "lion") | {"server": config["server"]})
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda: status(gateway, "a lion") == 400, IN_FORCE_S)
        gate.set()
        rest = [chunk.choices[0] for chunk in stream if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in rest) == "one lion and "
    assert rest[-1].finish_reason == "content_filter"


@pytest.mark.parametrize("count", [40])
def test_reloads_under_load_lose_no_request(fake: FakeVLLM, start_gateway: StartGateway, count: int) -> None:
    config = configured(fake, "zebra")
    gateway = start_gateway(config)
    answers = []
    for number in range(count):
        if number % 10 == 5:
            gateway.write(config | configured(fake, "zebra", f"lion{number}") | {"server": config["server"]})
            gateway.process.send_signal(signal.SIGHUP)
        answers.append((status(gateway, "hi"), status(gateway, "a zebra")))
    assert set(answers) == {(200, 400)}


def test_an_old_version_goes_with_its_last_exchange_however_busy_the_new_one_is(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Under steady load somebody is always in flight: versions that waited for nobody would pile up."""
    logs = [tmp_path / "old.jsonl", tmp_path / "new.jsonl"]
    first, second = (
        configured(fake) | {"chain": [{"plugin": "audit_log", "options": {"path": str(log)}}]} for log in logs
    )
    gateway = start_gateway(first)
    gates = [fake.gate(), fake.gate()]
    fake.script(*(says("a", gate, "b") for gate in gates))

    def open_files() -> set[str]:
        return {os.path.realpath(each) for each in Path(f"/proc/{gateway.process.pid}/fd").iterdir()}

    body = {"model": "smollm2", "stream": True, "messages": [{"role": "user", "content": HI}]}
    with ThreadPoolExecutor() as callers:
        before = callers.submit(gateway.post, CHAT, body)
        fake.wait_for(1)
        gateway.write(second | {"server": first["server"]})
        until(lambda: version(gateway) == 2, IN_FORCE_S, "the new version never came into force")
        after = callers.submit(gateway.post, CHAT, body)
        fake.wait_for(2)
        assert str(logs[0]) in open_files()
        gates[0].set()
        assert before.result().text.endswith("[DONE]\n\n")
        until(lambda: str(logs[0]) not in open_files(), 15, "the old version is still there")
        assert not after.done()
        gates[1].set()
        assert after.result().text.endswith("[DONE]\n\n")
