"""Reading the configuration: file, environment and command line as one."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, Embedded, environment, load

MINIMAL = "models:\n  - name: m\n    aliases: [gpt-4o-mini]\n    engines: [{url: 'http://127.0.0.1:8100'}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL)
    return path


def faults(file: Path | None, environ: dict[str, str] | None = None, **server: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(file, environ or {}, server)
    return caught.value.lines


def test_the_file_is_the_one_given_or_the_one_the_environment_names(file: Path) -> None:
    assert load(file, {}).file == file
    assert load(None, {"SLUICE_CONFIG": str(file)}).models[0].name == "m"
    assert load(file, {"SLUICE_CONFIG": "/nowhere"}).base == file.parent


def test_without_a_file_it_is_whatever_runs_at_the_engines_address() -> None:
    settings = load(None, {"SLUICE_ENGINE_URL": "http://127.0.0.1:8000/v1"})
    (model,) = settings.models
    assert (model.name, model.engines[0].url, model.engines[0].served_model) == ("*", "http://127.0.0.1:8000", None)
    assert (settings.file, settings.server.host) == (None, "127.0.0.1")


def test_without_anything_the_line_says_what_to_do(file: Path) -> None:
    (line,) = faults(None)
    assert line == (
        "sluice: models: no model is configured: name a file with -c or SLUICE_CONFIG, "
        "or set SLUICE_ENGINE_URL to a running engine"
    )
    file.write_text("")
    (line,) = faults(file)
    assert "add a model to it" in line


def test_a_bad_engine_address_is_told_by_its_variable() -> None:
    (line,) = faults(None, {"SLUICE_ENGINE_URL": "vllm:8000"})
    assert line.startswith("SLUICE_ENGINE_URL: has to be http://host:port")


def test_the_environment_overrides_scalars_of_server(file: Path) -> None:
    file.write_text(MINIMAL + "server: {port: 1, drain_s: 5}\n")
    environ = {"SLUICE_SERVER__PORT": "9000", "SLUICE_SERVER__METRICS": "", "SLUICE_SERVER__DOCS": "false"}
    server = load(file, environ).server
    assert (server.port, server.drain_s, server.metrics, server.docs) == (9000, 5, "open", False)


def test_the_command_line_overrides_the_environment(file: Path) -> None:
    assert load(file, {"SLUICE_SERVER__PORT": "9000"}, {"port": 9001}).server.port == 9001
    assert faults(file, {}, port=-1) == ("--port: has to be greater than or equal to 0",)


def test_a_bad_override_is_told_by_its_variable(file: Path) -> None:
    assert faults(file, {"SLUICE_SERVER__PORT": "tcp://10.0.0.1:80"}) == (
        "SLUICE_SERVER__PORT: has to be a whole number",
    )
    (line,) = faults(file, {"SLUICE_SERVER__HOST": "0.0.0.0"})
    assert line.startswith("SLUICE_SERVER__HOST: 0.0.0.0 without keys")


def test_other_variables_are_ignored_with_a_warning(file: Path) -> None:
    environ = {"SLUICE_PORT": "tcp://1", "SLUICE_SERVICE_HOST": "1", "SLUICE_SERVER__PROT": "1", "PATH": "/bin"}
    typo, others = load(file, environ).warnings
    assert typo == ("SLUICE_SERVER__PROT: ignored: it is no scalar of server; did you mean 'SLUICE_SERVER__PORT'?")
    assert others.startswith("SLUICE_PORT, SLUICE_SERVICE_HOST: ignored")
    assert load(file, {"PATH": "/bin"}).warnings == ()


def test_every_fault_is_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    file.write_text(
        "server:\n  prot: 1\n  metrics: opne\nmodels:\n  - engines:\n      - url: '${NOPE}'\n"
        "        wieght: 2\nkeys:\n  - {name: 7, sha256: x}\n"
    )
    assert [line.removeprefix(f"{file}:") for line in faults(file)] == [
        "2: server.prot: unknown key; did you mean 'port'?",
        "3: server.metrics: has to be 'open' or 'operator'",
        "5: models[0].name: is missing",
        "6: models[0].engines[0].url: the environment variable NOPE is not set: set it, or give a default: ${NOPE:-…}",
        "7: models[0].engines[0].wieght: unknown key; did you mean 'weight'?",
        "9: keys[0].name: has to be text (put it into quotes)",
        "9: keys[0].sha256: has to be 64 hexadecimal digits, the SHA-256 of the key: sluice keys new makes one",
    ]


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert faults(tmp_path / "none.yaml") == (f"{tmp_path}/none.yaml: cannot be read: No such file or directory",)
    assert faults(tmp_path) == (f"{tmp_path}: is a folder: name the file in it",)
    (tmp_path / "gbk.yaml").write_bytes(b"a: 1\nb: \xb6\xc4\n")
    assert faults(tmp_path / "gbk.yaml") == (f"{tmp_path}/gbk.yaml:2: is not UTF-8: save it as UTF-8",)
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    (line,) = faults(tmp_path / "bad.yaml")
    assert line.startswith(f"{tmp_path}/bad.yaml:2: is not YAML")


def test_a_byte_order_mark_and_windows_line_ends_are_fine(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load(file, {}).models[0].name == "m"


def test_an_engines_key_comes_from_the_environment_and_never_shows(file: Path) -> None:
    file.write_text(MINIMAL.replace("8100'}", "8100', api_key: '${VLLM_API_KEY:-}'}"))
    assert load(file, {}).models[0].engines[0].api_key is None
    settings = load(file, {"VLLM_API_KEY": "hunter2"})
    assert settings.models[0].engines[0].api_key is not None
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in repr(settings.source)


def test_aliases_become_the_models_own_name(file: Path) -> None:
    keys = "keys: [{name: k, sha256: " + "ab" * 32 + ", models: [gpt-4o-mini]}]\n"
    file.write_text(MINIMAL + keys + "chain: [{plugin: x, models: [gpt-4o-mini]}, {plugin: y}]\n")
    settings = load(file, {})
    assert settings.keys[0].models == ["m"]
    assert [entry.models for entry in settings.chain] == [["m"], None]


def test_settings_are_read_again_as_they_were_read(file: Path) -> None:
    settings = load(file, {"SLUICE_SERVER__PORT": "9000"}, {"workers": 2})
    file.write_text(MINIMAL.replace("name: m", "name: n"))
    again = pickle.loads(pickle.dumps(settings)).reread()
    assert (again.models[0].name, again.server.port, again.server.workers) == ("n", 9000, 2)
    file.write_text("")
    with pytest.raises(ConfigurationError):
        settings.reread()


def test_a_gateway_that_others_can_reach_keeps_its_keys_whatever_the_file_says_later(file: Path) -> None:
    keys = "keys: [{name: k, sha256: " + "ab" * 32 + "}]\n"
    file.write_text(MINIMAL + keys)
    settings = load(file, {})
    assert settings.server.host == "0.0.0.0"
    file.write_text(MINIMAL + keys + "server: {host: 127.0.0.1}\n")  # takes a restart, so it says nothing of now
    settings = settings.reread()
    for closed in (MINIMAL, MINIMAL + "keys: []\n", MINIMAL + "server: {host: 127.0.0.1}\n"):
        file.write_text(closed)
        with pytest.raises(ConfigurationError, match=r"keys: without keys the gateway, which listens on 0\.0\.0\.0"):
            settings.reread()
    file.write_text(MINIMAL)
    alone = load(file, {})
    assert (alone.server.host, alone.reread().keys) == ("127.0.0.1", [])


def test_an_embedded_engine_serves_the_first_model(file: Path) -> None:
    embedded = Embedded("http://127.0.0.1:9", "smollm2", "k")
    (model,) = load(file, {}, None, embedded).models
    assert (model.name, model.aliases, model.engines[0].served_model) == ("m", ["gpt-4o-mini"], "smollm2")
    assert (model.engines[0].url, model.engines[0].name) == ("http://127.0.0.1:9", "m-0")
    (named,) = load(file, {}, None, replace(embedded, model="x/y")).models
    assert (named.name, named.aliases) == ("x/y", ["gpt-4o-mini"])
    file.write_text("timeouts: {idle_s: 5}\n")
    (alone,) = load(file, {}, None, embedded).models
    assert (alone.name, alone.engines[0].served_model) == ("smollm2", "smollm2")


def test_an_embedded_engines_tokenizer_is_its_models_own(file: Path, tmp_path: Path) -> None:
    its, files = tmp_path / "its", tmp_path / "files"
    for folder in (its, files):
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{}")
    embedded = Embedded("http://127.0.0.1:9", "smollm2", tokenizer=its)
    assert load(file, {}, None, embedded).models[0].tokenizer == its
    file.write_text(MINIMAL.replace("name: m", f"name: m\n    tokenizer: {files}"))
    assert load(file, {}, None, embedded).models[0].tokenizer == files
    assert load(file, {}, None, replace(embedded, model="x/y")).models[0].tokenizer == its
    assert load(file, {}, None, replace(embedded, model="x/y", tokenizer=None)).models[0].tokenizer is None


def test_the_process_environment_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CONFIG", "x")
    assert environment()["SLUICE_CONFIG"] == "x"


@pytest.mark.parametrize("levels", [9, 40])
def test_aliases_of_aliases_are_counted_before_they_fill_the_memory(tmp_path: Path, levels: int) -> None:
    file = tmp_path / "sluice.yaml"
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigurationError, match="aliases"):
        load(file, {})


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="not a file"):
        load(tmp_path / "pipe", {})
