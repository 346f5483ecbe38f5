"""The command: what each subcommand prints, and its exit code."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import structlog

from gateway import __version__
from gateway.cli import CHECKOUT, COULD_NOT_START, INTERRUPTED, WRONG, main
from gateway.engine.failure import CannotStart
from gateway.sdk import Options, Plugin

Captured = pytest.CaptureFixture[str]
MODELS = "models: [{name: m, engines: [{url: 'http://127.0.0.1:8100'}]}]\n"


class Words(Plugin):
    """Explains the word bad."""

    class Options(Options):
        """How often."""

        times: int = 1

    def explain(
        self, text: str, *, key: str | None = None, model: str | None = None, direction: str | None = None
    ) -> list[dict[str, Any]]:
        whose = {"key": key, "model": model, "direction": direction}
        asked = {name: value for name, value in whose.items() if value}
        hits = re.finditer("bad", text)
        return [{"said": f"rule 1 blocks {hit.start()}-{hit.end()}", "asked": asked} for hit in hits]

    def review(self) -> dict[str, Any]:
        return self.review_files([Path("fault")] * (self.options.times - 1), "utf-8")

    @staticmethod
    def review_files(files: Sequence[Path], encoding: str) -> dict[str, Any]:
        findings = [{"severity": path.stem, "said": f"{path}: {encoding}"} for path in files if path.stem != "fine"]
        return {"said": [*(each["said"] for each in findings), "done"], "files": [], "findings": findings}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One plugin is installed, and nothing of Sluice's is in the environment."""
    entry = EntryPoint("words", f"{__name__}:Words", "sluice.plugins")
    monkeypatch.setattr("gateway.registry.entry_points", lambda group: [entry])
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or SimpleNamespace(Words=Words))
    for name in [name for name in os.environ if name.startswith("SLUICE_")]:
        monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sluice.yaml"
    path.write_text(MODELS + "chain: [{plugin: words}]\n")
    return path


def refused(words: list[str], capsys: Captured) -> str:
    """Run a command that is used wrongly; return what it says."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == WRONG
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_help_waits_for_no_import() -> None:
    heavy = "{'asyncio', 'fastapi', 'pydantic', 'structlog', 'uvicorn', 'yaml'}"
    code = (
        f"import sys, gateway.cli; sys.exit(repr({heavy} & sys.modules.keys()) if {heavy} & sys.modules.keys() else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"sluice {__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "sluice: the following arguments are required: COMMAND (sluice --help)\n"),
        (["serve", "--prot", "1"], "sluice: unrecognized arguments: --prot 1 (sluice --help)\n"),
        (["keys", "new"], "sluice keys new: the following arguments are required: --name (sluice keys new --help)\n"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], told: str, capsys: Captured) -> None:
    assert refused(words, capsys) == told


def test_an_unknown_command_brings_the_known_ones(capsys: Captured) -> None:
    told = refused(["sevre"], capsys)
    assert told.count("\n") == 1
    assert "'sevre'" in told
    assert "serve" in told


def test_check_says_what_it_has_found_to_be_fine(file: Path, capsys: Captured) -> None:
    assert main(["check", "-c", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: fine: 1 model, 1 engine, 0 keys; chain: words\n"


def test_check_takes_the_file_that_the_environment_names(
    file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_CONFIG", str(file))
    monkeypatch.setenv("SLUICE_PORT", "tcp://10.0.0.1:80")
    assert main(["check"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"{file}: fine")
    assert told.err.startswith("SLUICE_PORT: ignored")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sevrer: {}\n" + MODELS, "1: sevrer: unknown key; did you mean 'server'?"),
        (
            MODELS + "chain: [{plugin: word}]",
            "2: chain[0].plugin: no plugin 'word' is installed; did you mean 'words'?",
        ),
        (
            MODELS + "chain: [{plugin: words, options: {times: x}}]",
            "2: chain[0].options.times: has to be a whole number",
        ),
    ],
)
@pytest.mark.parametrize("command", [["check"], ["words", "test", "x"], ["serve"], ["serve", "--workers", "2"]])
def test_a_fault_is_one_line_whatever_the_command(
    file: Path, capsys: Captured, text: str, told: str, command: list[str]
) -> None:
    file.write_text(text)
    assert main([*command, "-c", str(file)]) == WRONG
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file}:{told}")


def test_an_option_at_fault_is_told_by_its_name(file: Path, capsys: Captured) -> None:
    assert main(["serve", "-c", str(file), "--port", "http"]) == WRONG
    assert capsys.readouterr().err == "--port: has to be a whole number\n"


def test_without_keys_only_this_machine_can_be_served(file: Path, capsys: Captured) -> None:
    assert main(["serve", "-c", str(file), "--host", "0.0.0.0"]) == WRONG
    assert capsys.readouterr().err.startswith("--host: 0.0.0.0 without keys would be open to everyone: add a key")


def test_a_port_that_is_taken_is_one_line(file: Path, capsys: Captured, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        assert main(["serve", "-c", str(file), "--port", str(free_port)]) == COULD_NOT_START
    told = capsys.readouterr().err.splitlines()
    assert f"127.0.0.1:{free_port}" in told[-1]
    assert "Traceback" not in str(told)


def test_plugins_lists_hooks_and_options(capsys: Captured) -> None:
    assert main(["plugins"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"words ({__name__}:Words): Explains the word bad.\n")
    assert "\n  times: integer (1)\n" in told


def test_a_new_key_is_printed_once_with_the_line_for_the_configuration(file: Path, capsys: Captured) -> None:
    assert main(["keys", "new", "--name", "team: a"]) == 0
    told = capsys.readouterr().out
    (key,) = re.findall(r"^  (sk-sluice-\S{43})$", told, re.MULTILINE)
    (line,) = re.findall(r"^  - \{.*\}$", told, re.MULTILINE)
    assert hashlib.sha256(key.encode()).hexdigest() in line
    file.write_text(f"{MODELS}keys:\n{line}\n")
    assert main(["check", "-c", str(file)]) == 0
    assert main(["keys", "new", "--name", ""]) == WRONG
    assert capsys.readouterr().err.startswith("sluice keys new: --name: has to be 1 to 200 printable characters")


def test_words_test_asks_the_chain(file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["words", "test", "a bad one", "-c", str(file)]) == 0
    assert capsys.readouterr().out == "words: rule 1 blocks 2-5\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("good"))
    assert main(["words", "test", "-", "-c", str(file)]) == 0
    assert capsys.readouterr().out == "no rule fires\n"
    file.write_text(MODELS)
    assert main(["words", "test", "x", "-c", str(file)]) == WRONG
    assert "add sensitive_words" in capsys.readouterr().err


def test_words_test_can_be_asked_for_one_key_model_and_direction(file: Path, capsys: Captured) -> None:
    digest = "a" * 64
    file.write_text(
        MODELS + f"keys: [{{name: team-a, sha256: {digest}}}, {{name: team-b, sha256: {digest[:-1]}b}}]\n"
        "chain: [{plugin: words}, {plugin: words, mode: shadow, keys: [team-b]}]\n"
    )
    asked = ["words", "test", "bad", "-c", str(file), "--json", "--key", "team-a", "--model", "m"]
    assert main([*asked, "--direction", "answer"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)["hits"]
    assert hit == {
        "plugin": "words",
        "mode": "enforce",
        "said": "rule 1 blocks 0-3",
        "asked": {"key": "team-a", "model": "m", "direction": "answer"},
    }
    assert main(["words", "test", "bad", "-c", str(file), "--key", "team-b"]) == 0
    assert capsys.readouterr().out == "words: rule 1 blocks 0-3\nwords-2 (shadow): rule 1 blocks 0-3\n"
    for wrong in (["--key", "team-c"], ["--model", "n"]):
        assert main(["words", "test", "bad", "-c", str(file), *wrong]) == WRONG
        assert f"sluice words test: {wrong[0]}: there is no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "code"), [(["fine"], 0), (["warning"], 0), (["fault"], WRONG), (["warning", "--strict"], WRONG)]
)
def test_words_compile_ends_by_what_the_plugin_finds(files: list[str], code: int, capsys: Captured) -> None:
    assert main(["words", "compile", "--plugin", "words", *files]) == code
    assert capsys.readouterr().out.splitlines()[-1] == "done"
    assert main(["words", "compile", "--plugin", "words", "--json", *files]) == code
    assert len(json.loads(capsys.readouterr().out)["findings"]) == (files[0] != "fine")


def test_words_compile_without_files_looks_at_the_lists_of_the_configuration(file: Path, capsys: Captured) -> None:
    assert main(["words", "compile", "-c", str(file)]) == 0
    file.write_text(MODELS + "chain: [{plugin: words}, {plugin: words, options: {times: 2}}]\n")
    assert main(["words", "compile", "-c", str(file)]) == WRONG
    assert capsys.readouterr().out == "done\ndone\nfault: utf-8\ndone\n"
    file.write_text(MODELS)
    assert main(["words", "compile", "-c", str(file)]) == WRONG
    assert "add sensitive_words" in capsys.readouterr().err


def test_words_compile_of_a_plugin_that_is_not_there_is_told(capsys: Captured) -> None:
    assert main(["words", "compile", "a.txt", "--plugin", "words", "--encoding", "utf-9"]) == WRONG
    assert "--encoding: 'utf-9' is not known" in capsys.readouterr().err
    assert main(["words", "compile", "a.txt"]) == WRONG
    assert capsys.readouterr().err.startswith("sluice words compile: no plugin 'sensitive_words' is installed")


def test_a_text_that_cannot_be_encoded_can_still_be_asked_about(file: Path) -> None:
    assert main(["words", "test", "bad \udcff", "-c", str(file)]) == 0


def played_up(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Let sluice up run neither engine nor gateway; return what it would have run."""
    ran: list[SimpleNamespace] = []

    async def up(
        engine: SimpleNamespace,
        serve: Callable[[], Awaitable[int]],
        *,
        at: tuple[str, int],
        on_ready: Callable[[], None],
    ) -> int:
        ran.append(SimpleNamespace(engine=engine, wishes=engine._wishes, serve=serve))
        on_ready()
        return 0

    monkeypatch.setattr("gateway.engine.up.up", up)
    return ran


def test_up_hands_section_options_and_flags_to_the_engine(
    file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("engine: {model: ./x, tensor_parallel: 2, max_model_len: 128, args: [--seed, 1]}\n")
    ran = played_up(monkeypatch)
    assert main(["up", "-c", str(file), "--port", "9000", "--", "--max-num-seqs", "8"]) == 0
    wishes = ran[0].wishes
    assert (wishes.model, wishes.tensor_parallel, wishes.max_model_len) == ("./x", 2, 128)
    assert wishes.args == ("--seed", "1", "--max-num-seqs", "8")
    told = capsys.readouterr().out
    assert "curl http://127.0.0.1:9000/v1/chat/completions" in told
    assert '"model": "x"' in told


def test_up_serves_the_model_it_is_told_under_its_own_name(
    file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = played_up(monkeypatch)
    assert main(["up", "-c", str(file), "--model", "owner/name", "-tp", "2"]) == 0
    assert (ran[0].wishes.model, ran[0].wishes.tensor_parallel) == ("owner/name", 2)
    assert '"model": "owner/name"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", ""], "--model is empty"),
        (["-tp", "0"], "--tensor-parallel has to be more than 0"),
        (["-tp", "-1"], "--tensor-parallel has to be more than 0"),
        (["--", "--port", "x"], "--port 'x': has to be a whole number"),
    ],
)
def test_up_starts_nothing_for_what_an_unset_variable_leaves(
    words: list[str], told: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = played_up(monkeypatch)
    assert main(["up", *words]) == WRONG
    err = capsys.readouterr().err
    assert err.startswith("sluice up: ")
    assert told in err
    assert err.count("\n") == 1
    assert not ran


def test_up_without_a_file_takes_the_shipped_one(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    played_up(monkeypatch)
    assert main(["up"]) == 0
    assert '"model": "smollm2"' in capsys.readouterr().out
    assert (CHECKOUT / "sluice.yaml").exists()


def test_an_engine_that_cannot_start_is_one_line(file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    async def up(*_: object, **__: object) -> int:
        raise CannotStart("no vLLM here: run make engine", ("its last line",))

    monkeypatch.setattr("gateway.engine.up.up", up)
    assert main(["up", "-c", str(file)]) == COULD_NOT_START
    assert capsys.readouterr().err == "its last line\nsluice: no vLLM here: run make engine\n"


def test_an_interrupt_is_quiet_and_a_bug_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def broken() -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr("gateway.registry.catalogue", interrupted)
    assert main(["plugins"]) == INTERRUPTED
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("gateway.registry.catalogue", broken)
    if not sys.flags.dev_mode:
        assert main(["plugins"]) == COULD_NOT_START
        assert capsys.readouterr().err.startswith("sluice: KeyError: 'a\\nb' (a bug of ours")


def test_a_pipe_that_closes_early_is_no_fault() -> None:
    code = "import gateway.cli as c, sys; c.check.plugins = lambda _: print('x' * 1_000_000) or 0; "
    code += "sys.exit(c.main(['plugins']))"
    sluice = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert sluice.stdout is not None
    assert sluice.stderr is not None
    sluice.stdout.close()
    told = sluice.stderr.read()
    sluice.stderr.close()
    assert (sluice.wait(10), told) == (0, b"")


def test_serving_answers_and_ends_on_sigterm(file: Path, free_port: int) -> None:
    file.write_text(MODELS)
    command = [sys.executable, "-m", "gateway", "serve", "-c", str(file), "--port", str(free_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sluice:
        assert sluice.stderr is not None
        assert sluice.stderr.readline() == f"Sluice {__version__} listens on http://127.0.0.1:{free_port}\n"
        assert httpx.get(f"http://127.0.0.1:{free_port}/livez").status_code == 200
        sluice.send_signal(signal.SIGTERM)
        assert sluice.wait(30) == 0
