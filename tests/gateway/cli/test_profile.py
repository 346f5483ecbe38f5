"""sluice profile: engines by their own switch, gateways by py-spy, and what is missing told in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.cli.profile import _reason, busiest
from tests.fakes.script import Reply, answers
from tests.fakes.vllm import FakeVLLM

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


def test_an_engine_s_profiler_is_switched_on_and_off_and_new_traces_are_named(
    engine: FakeVLLM, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "old.json").write_text("{}")

    def stopped(_: object) -> Reply:
        (tmp_path / "rank0.json.gz").write_bytes(b"x" * 2**20)
        return answers(b"")(_)  # type: ignore[arg-type] # any request gets this

    engine.always(answers(b""), route="/start_profile")
    engine.always(stopped, route="/stop_profile")
    assert main(["profile", "--engine", engine.url, "--seconds", "0.1", "--traces", str(tmp_path)]) == 0
    assert [each.route for each in engine.everything()] == ["/start_profile", "/stop_profile"]
    told = capsys.readouterr().out
    assert f"{tmp_path / 'rank0.json.gz'} (1.0 MB)" in told
    assert "old.json" not in told
    assert "perfetto" in told


def test_an_engine_without_a_profiler_is_told_with_the_flags(engine: FakeVLLM, capsys: Captured) -> None:
    assert main(["profile", "--engine", engine.url, "--seconds", "0.1"]) == 2
    assert '--profiler-config \'{"profiler": "torch"' in capsys.readouterr().err


def test_what_was_switched_on_is_switched_off_when_another_fails(engine: FakeVLLM, capsys: Captured) -> None:
    engine.always(answers(b""), route="/start_profile")
    engine.always(answers(b""), route="/stop_profile")
    given = ["--engine", engine.url, "--engine", "http://127.0.0.1:9"]
    assert main(["profile", *given, "--seconds", "5"]) == 3
    assert "/stop_profile" in [each.route for each in engine.everything()]
    assert "http://127.0.0.1:9: " in capsys.readouterr().err


#: Lets anybody trace it (prctl's PR_SET_PTRACER): Ubuntu allows that to parents alone.
BUSY = """
import ctypes, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
def turning():
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        pass
turning()
"""


def test_a_process_is_watched_from_outside(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    process = subprocess.Popen([sys.executable, str(tmp_path / "busy.py")])
    try:
        out = tmp_path / "stacks.txt"
        assert main(["profile", "--gateway", str(process.pid), "--seconds", "1", "--out", str(out)]) == 0
    finally:
        process.kill()
        process.wait()
    told = capsys.readouterr().out
    assert "turning (" in told
    assert "turning (" in out.read_text()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "of what?"),
        (["--seconds", "0"], 2, "--seconds has to be more than 0"),
        (["--engine", "nonsense"], 2, "an engine's URL is "),
        (["--seconds", "inf", "--gateway", "1"], 2, "--seconds has to be more than 0, and at most"),
        *((["--gateway", pid, "--seconds", "1"], 2, "no such process") for pid in ("4194305", "0", "-1", "2147483648")),
    ],
)
def test_what_cannot_be_profiled_is_one_line(
    words: list[str], code: int, told: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)
    assert main(["profile", *words]) == code
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_a_process_that_is_no_gateway_is_told_without_a_backtrace(capsys: Captured, tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "30"])
    try:
        given = ["--gateway", str(process.pid), "--seconds", "0.2", "--out", str(tmp_path / "stacks.txt")]
        assert main(["profile", *given]) == 3
    finally:
        process.kill()
        process.wait()
    told = capsys.readouterr().err
    assert told.startswith("sluice profile: py-spy: No python processes found in process")
    assert told.endswith("is it the PID of a gateway?\n")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Permission Denied: try sudo", "CAP_SYS_PTRACE"),
        (
            "Error: EPERM: Operation not permitted\n\nStack backtrace:\n   0: main",
            "EPERM: Operation not permitted; it has",
        ),
        ("", "without a word"),
    ],
)
def test_what_py_spy_may_not_comes_with_the_mend(said: str, told: str) -> None:
    assert told in _reason(said)


def test_folded_stacks_are_told_by_who_ran_itself_and_with_what_it_calls() -> None:
    lines = list(busiest("main;a;b 6\nmain;a 2\nmain;c;c 2\nnonsense\n"))
    assert lines[0].startswith("10 samples")
    assert lines[1].split() == ["60.0%", "itself", "60.0%", "with", "what", "it", "calls", "b"]
    assert lines[2].split()[:3] == ["20.0%", "itself", "80.0%"]
    assert lines[3].split()[:3] == ["20.0%", "itself", "20.0%"]
