"""The command that shows what an engine and a gateway do with their time, while they serve."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.cli.command import COULD_NOT_START, Commands, Stopped

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Iterator

    from gateway.upstream.client import Pool

FLAGS: Final = '--profiler-config \'{"profiler": "torch", "torch_profiler_dir": "/an/absolute/folder"}\''
#: Writing a trace of many steps takes longer than making it.
WRITING_S: Final = 600.0
#: py-spy looks so many times a second, and needs a moment to begin and to write.
RATE: Final = 100
MOMENT_S: Final = 30.0
SHOWN: Final = 12
#: Nothing is profiled for longer.
LONGEST_S: Final = 3600


def add(commands: Commands) -> None:
    """Declare profile."""
    said = commands.add("profile", profile, "Profile engines (by vLLM's profiler) or a gateway (by py-spy) under load.")
    said.add_argument("--seconds", metavar="S", type=float, default=10.0, help="how long (default: 10)")
    said.add_argument(
        "--engine", metavar="URL", action="append", default=[], help="an engine; by default the configuration's"
    )
    said.add_argument("--traces", metavar="DIR", type=Path, help="its torch_profiler_dir, to name the new files in it")
    said.add_argument("--gateway", metavar="PID", type=int, help="a gateway's process on this machine, and its workers")
    said.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("sluice-profile.txt"), help="the gateway's stacks, folded"
    )


def profile(arguments: argparse.Namespace) -> int:
    """Profile both at once; what was switched on is switched off, also after Ctrl-C."""
    import asyncio

    if not 0 < arguments.seconds <= LONGEST_S:
        raise Stopped([f"sluice profile: --seconds has to be more than 0, and at most {LONGEST_S}"])
    engines = _engines(arguments)
    if not engines and arguments.gateway is None:
        raise Stopped(["sluice profile: of what? -c FILE or --engine URL for engines, --gateway PID for a gateway"])
    if arguments.gateway is not None and not _runs(arguments.gateway):
        raise Stopped([f"sluice profile: --gateway {arguments.gateway}: there is no such process here"])
    before = _files(arguments.traces)
    asyncio.run(_both(arguments, engines))
    for path in sorted(_files(arguments.traces) - before):
        print(f"{path} ({path.stat().st_size / 2**20:.1f} MB)")
    if engines:
        print(
            "traces lie in the engine's torch_profiler_dir, one for each worker; https://ui.perfetto.dev opens them. A "
            "step of decoding is one repeat of the pattern: gaps between kernels are the processor's (scheduling, "
            "sampling), full rows the card's"
        )
    return 0


def _runs(pid: int) -> bool:
    """Tell whether there is such a process; py-spy takes 0 for every one that it sees."""
    return pid > 0 and Path(f"/proc/{pid}").is_dir()


def _engines(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return the engines by URL, with their keys."""
    from gateway.cli.command import settings_of
    from gateway.settings import environment

    if arguments.engine:
        return dict.fromkeys(arguments.engine)
    if arguments.config is None and (arguments.gateway is not None or not environment().get("SLUICE_CONFIG")):
        return {}
    entries = [each for model in settings_of(arguments).models for each in model.engines]
    return {each.url: each.api_key.get_secret_value() if each.api_key else None for each in entries}


async def _both(arguments: argparse.Namespace, engines: dict[str, str | None]) -> None:
    import asyncio

    from gateway.upstream.client import Origin, Pool

    try:
        pools = {url: Pool(Origin.parse(url)) for url in engines}
    except ValueError as fault:
        raise Stopped([f"sluice profile: {fault}"]) from None
    watching = await _watch(arguments) if arguments.gateway is not None else None
    begun: list[str] = []
    try:
        for url, pool in pools.items():
            await _switch(pool, url, "/start_profile", engines[url])
            begun.append(url)
        await asyncio.sleep(arguments.seconds)
    finally:
        if begun:
            print("writing traces …", file=sys.stderr)
        ended = await asyncio.gather(
            *(_switch(pools[url], url, "/stop_profile", engines[url]) for url in begun), return_exceptions=True
        )
        for pool in pools.values():
            await pool.close()
        if watching is not None:
            await _watched(watching, arguments)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome


async def _switch(pool: Pool, url: str, path: str, key: str | None) -> None:
    """Switch an engine's profiler. Raises Stopped where it has none."""
    from gateway.upstream.client import Broken, fetch

    headers = [(b"content-type", b"application/json")]
    if key:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    try:
        answer = await fetch(pool, "POST", path, b"", headers, timeout_s=WRITING_S)
    except (Broken, TimeoutError) as fault:
        raise Stopped([f"sluice profile: {url}: {str(fault) or 'no answer in time'}"], COULD_NOT_START) from None
    if answer.status == 404:
        raise Stopped([f"sluice profile: {url} was started without a profiler; vLLM takes {FLAGS}"])
    if answer.status != 200:
        raise Stopped([f"sluice profile: {url}{path}: status {answer.status}; its log says more"])


async def _watch(arguments: argparse.Namespace) -> asyncio.subprocess.Process:
    """Let py-spy look at a gateway from outside: nothing in the gateway changes. Raises Stopped."""
    import asyncio

    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        raise Stopped(["sluice profile: --gateway needs py-spy: pip install 'sluice-gateway[profile]'"])
    words = [spy, "record", "--pid", str(arguments.gateway), "--subprocesses", "--format", "raw", "--rate", str(RATE)]
    words += ["--duration", str(max(1, round(arguments.seconds))), "--output", str(arguments.out)]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)


async def _watched(process: asyncio.subprocess.Process, arguments: argparse.Namespace) -> None:
    import asyncio

    try:
        async with asyncio.timeout(arguments.seconds + MOMENT_S):
            _, said = await process.communicate()
    except BaseException:  # Ctrl-C too: nothing is left behind
        process.terminate()
        await process.wait()
        raise
    if process.returncode:
        raise Stopped([f"sluice profile: py-spy: {_reason(said.decode(errors='replace'))}"], COULD_NOT_START)
    print("\n".join(busiest(arguments.out.read_text("utf-8"))))
    print(f"{arguments.out}: every stack with its samples; https://www.speedscope.app shows it as a flame graph")


def _reason(said: str) -> str:
    """Return what py-spy says before its backtrace, with the mend."""
    lines = said.strip().splitlines() or ["it ended without a word"]
    told = next((line for line in lines if line.startswith(("Error: ", "Permission"))), lines[-1]).removeprefix(
        "Error: "
    )
    if "permi" in said.lower():
        return f"{told}; it has to run as the gateway's user, with the right to trace (CAP_SYS_PTRACE)"
    return f"{told}; is it the PID of a gateway?"


def busiest(folded: str) -> Iterator[str]:
    """Yield the functions that ran most, from folded stacks (``outer;inner 12``): their own samples, and all below."""
    own, whole = Counter[str](), Counter[str]()
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if count.isdecimal():
            own[frames[-1]] += int(count)
            whole.update(dict.fromkeys(frames, int(count)))
    total = own.total()
    yield f"{total} samples, {RATE} a second: a share of them is a share of the processor's time"
    for frame, samples in own.most_common(SHOWN):
        yield f"  {samples / total:6.1%} itself {whole[frame] / total:6.1%} with what it calls  {frame}"


def _files(folder: Path | None) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()} if folder is not None and folder.is_dir() else set()
