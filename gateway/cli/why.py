"""The command that says why it is slow, from what a gateway and its engines count."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.command import COULD_NOT_START, WRONG, Commands, Stopped
from gateway.cli.engines import URL, ask

if TYPE_CHECKING:
    import argparse

    from gateway.why.window import Lookup, Snapshot, Window

#: URL, key and address of each engine, by name.
Engines = dict[str, tuple[str, str | None, str | None]]
#: An engine answers a scrape within so long, or counts as hung.
PATIENCE_S = 3.0
#: No window is longer.
LONGEST_S = 86_400


def add(commands: Commands) -> None:
    """Declare why."""
    said = commands.add("why", why, "Say why it is slow: cause, numbers and next step, from two scrapes.")
    said.add_argument("--seconds", metavar="S", type=float, default=10.0, help="the window (default: 10)")
    said.add_argument("--url", help=f"the gateway; else SLUICE_URL, else {URL}")
    said.add_argument("--key", help="an operator's key; else SLUICE_KEY")
    said.add_argument(
        "--engine", metavar="[NAME=]URL", action="append", default=[], help="an engine, instead of the configuration's"
    )
    said.add_argument("--save", metavar="FILE", type=Path, help="keep the window, to compare with later")
    said.add_argument(
        "--against", metavar="FILE", type=Path, help="an earlier window: what has grown since weighs more"
    )
    said.add_argument("--request", metavar="ID", help="explain one request, from its line of the log")
    said.add_argument("--log", metavar="FILE", type=Path, help="the log; else standard input")
    said.add_argument("--json", action="store_true", help="as JSON")


def why(arguments: argparse.Namespace) -> int:
    """Say why; the exit code is 0 whether or not there is a cause."""
    if arguments.request is not None:
        return _one(arguments)
    if not 0 < arguments.seconds <= LONGEST_S:
        raise Stopped([f"sluice why: --seconds has to be more than 0, and at most {LONGEST_S}"])
    import asyncio

    from gateway.why import answer
    from gateway.why.window import Window

    earlier = _kept(arguments.against) if arguments.against else None
    before, after = asyncio.run(_watched(arguments, _engines(arguments)))
    if arguments.save:
        import msgspec

        arguments.save.write_bytes(msgspec.json.encode([before, after]))
    window = Window(before, after)
    found = answer.answer(window, earlier)
    then = answer.answer(earlier).walk if earlier else ()
    if arguments.json:
        import msgspec

        told = {"seconds": window.seconds, **msgspec.to_builtins(found)}
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print("\n".join(answer.told(found, then)))
    return 0


def _one(arguments: argparse.Namespace) -> int:
    from gateway.why import request

    try:
        if arguments.log:
            with arguments.log.open(encoding="utf-8", errors="replace") as lines:
                record = request.find(lines, arguments.request)
        else:
            record = request.find(sys.stdin, arguments.request)
    except OSError as fault:
        raise Stopped([f"sluice why: --log {arguments.log}: {fault.strerror}"]) from None
    if record is None:
        raise Stopped([f"sluice why: {arguments.request} has no line in {arguments.log or 'standard input'}"])
    if arguments.json:
        import json

        print(json.dumps({"request": record, "seconds": request.parts(record)}, ensure_ascii=False, indent=2))
    else:
        print("\n".join(request.explained(record)))
    return 0


def _kept(path: Path) -> Window:
    import msgspec

    from gateway.why.window import Snapshot, Window

    try:
        before, after = msgspec.json.decode(path.read_bytes(), type=tuple[Snapshot, Snapshot])
        return Window(before, after)
    except OSError as fault:
        raise Stopped([f"sluice why: {path}: {fault.strerror}"]) from None
    except ValueError:
        raise Stopped([f"sluice why: {path} is no window that sluice why --save has kept"]) from None


async def _watched(arguments: argparse.Namespace, engines: Engines) -> tuple[Snapshot, Snapshot]:
    import asyncio

    from gateway.settings import environment

    environ = environment()
    url = arguments.url or environ.get("SLUICE_URL") or URL
    key = arguments.key or environ.get("SLUICE_KEY")
    before = await _scraped(url, key, engines)
    await asyncio.sleep(arguments.seconds)
    return before, await _scraped(url, key, engines)


def _engines(arguments: argparse.Namespace) -> Engines:
    """Return URL, key and address of each engine: as given, as configured, or as the gateway tells an operator."""
    if arguments.engine:
        named = [
            each.partition("=") if "=" in each.partition(":")[0] else (each, "", each) for each in arguments.engine
        ]
        return {name: (url, None, None) for name, _, url in named}
    from gateway.settings import environment

    if arguments.config is None and not environment().get("SLUICE_CONFIG"):
        try:
            return {each["name"]: (each["url"], None, each["address"]) for each in ask(arguments, "GET", "")}
        except Stopped:
            said = "without an operator's --key, -c or --engine only the gateway is asked, and not its engines"
            print(f"sluice why: {said}", file=sys.stderr)
            return {}
    from gateway.cli.command import settings_of

    settings = settings_of(arguments)
    return {
        each.name: (each.url, each.api_key.get_secret_value() if each.api_key else None, None)
        for model in settings.models
        for each in model.engines
    }


async def _scraped(url: str, key: str | None, engines: Engines) -> Snapshot:
    """Scrape all at once. Raises Stopped where the gateway does not answer."""
    import asyncio

    from gateway.why.window import Snapshot

    gateway, *answers = await asyncio.gather(_scrape(url, key), *(_scrape(*each) for each in engines.values()))
    if gateway[0] is None or "sluice_requests_total" not in gateway[0]:
        said = gateway[1] or "is no gateway of ours, or its /metrics wants an operator's --key"
        raise Stopped([f"sluice why: {url}: {said}"], COULD_NOT_START if gateway[1] else WRONG)
    return Snapshot(
        at=time.clock_gettime(time.CLOCK_REALTIME),
        gateway=gateway[0],
        engines={name: text for name, (text, _, _) in zip(engines, answers, strict=True)},
        troubles={name: trouble for name, (_, trouble, _) in zip(engines, answers, strict=True) if trouble},
        lookups={name: looked for name, (_, _, looked) in zip(engines, answers, strict=True)},
    )


async def _scrape(url: str, key: str | None, address: str | None = None) -> tuple[str | None, str, Lookup]:
    """Return the metrics, or what kept them away, and what name and connection took."""
    from gateway.upstream.client import Broken, Origin, Pool, fetch
    from gateway.upstream.resolve import addresses, is_name
    from gateway.why.window import Lookup

    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    looked = Lookup()
    try:
        origin = Origin.parse(url)
        began = time.perf_counter()
        found: tuple[str, ...] = await addresses(origin.host, origin.port) if is_name(origin) else ()
        named = time.perf_counter()
        looked = Lookup(name_s=named - began if is_name(origin) else None)
        pool = Pool(origin, connect_s=PATIENCE_S, address=address or (found[0] if found else None))
        connection = await pool.connect()
        looked = Lookup(looked.name_s, time.perf_counter() - named)
        connection.cancel()
        answer = await fetch(pool, "GET", "/metrics", headers=headers, limit=2**24, timeout_s=PATIENCE_S)
        await pool.close()
    except TimeoutError:
        return None, "no answer in time", looked
    except (Broken, OSError, ValueError) as fault:
        return None, str(fault) or "no connection", looked
    text = answer.body.decode("utf-8", "replace") if answer.status == 200 else ""
    return text, "", looked
