"""The commands for the engines of a running gateway; they ask it over HTTP, with an operator's key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from gateway.cli.command import COULD_NOT_START, Commands, Parser, Stopped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

URL: Final = "http://127.0.0.1:8080"
#: The columns of a listing.
SHOWN: Final = ("model", "name", "state", "weight", "in_flight", "running", "waiting", "kv_used", "trouble")
#: Workers take an order over within half a second, and count what is in flight as often.
SETTLED_S: Final = 2.0


def add(commands: Commands) -> None:
    """Declare engines list, add, weight, drain, restore and remove."""
    group = commands.group("engines", "The engines of a running gateway, by an operator's key.")
    summaries: dict[str, tuple[Any, str]] = {
        "list": (listed, "Show every engine: state, share, requests."),
        "add": (added, "Add an engine that is in no configuration; without --weight it takes no requests yet."),
        "weight": (weighted, "Change an engine's share of the requests; 0 takes none."),
        "drain": (drained, "Send no new requests to an engine; streams go on. --wait returns when the last has ended."),
        "restore": (restored, "Take back a drain or a removal."),
        "remove": (removed, "Take an engine out; streams go on to their end."),
    }
    made = {name: _remote(group.add(name, run, summary, config=False)) for name, (run, summary) in summaries.items()}
    for name in ("add", "weight", "drain", "restore", "remove"):
        made[name].add_argument("name", metavar="NAME", help="the engine's name")
    made["weight"].add_argument("weight", metavar="WEIGHT", type=float, help="its share beside the others' weights")
    made["add"].add_argument("address", metavar="ADDRESS", help="http://host:port, https://host:port or unix:/path")
    made["add"].add_argument("--model", metavar="NAME", help="the model it serves; needed where there are several")
    made["add"].add_argument("--weight", type=float, default=0.0, help="its share from the start (default: 0)")
    made["drain"].add_argument("--wait", metavar="S", type=float, default=0.0, help="so many seconds at most")


def _remote(parser: Parser) -> Parser:
    parser.add_argument("--url", help=f"the gateway; else SLUICE_URL, else {URL}")
    parser.add_argument("--key", help="an operator's key; else SLUICE_KEY, which other users of the machine cannot see")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def listed(arguments: argparse.Namespace) -> int:
    """Show every engine."""
    return _show(arguments, ask(arguments, "GET", ""))


def added(arguments: argparse.Namespace) -> int:
    """Add an engine."""
    model = arguments.model
    if model is None:
        models = {row["model"] for row in ask(arguments, "GET", "")}
        if len(models) != 1:
            raise Stopped([f"sluice engines add: --model: there are several: {', '.join(sorted(models))}"])
        model = models.pop()
    asked = {"model": model, "name": arguments.name, "url": arguments.address, "weight": arguments.weight}
    return _show(arguments, ask(arguments, "POST", "", asked))


def weighted(arguments: argparse.Namespace) -> int:
    """Change an engine's weight."""
    return _order(arguments, weight=arguments.weight)


def restored(arguments: argparse.Namespace) -> int:
    """Let an engine serve again."""
    return _order(arguments, draining=False, removed=False)


def removed(arguments: argparse.Namespace) -> int:
    """Take an engine out."""
    return _order(arguments, removed=True)


def drained(arguments: argparse.Namespace) -> int:
    """Drain an engine, and wait for its last request if asked to."""
    rows = ask(arguments, "POST", "/order", {"name": arguments.name, "draining": True})
    deadline = time.monotonic() + arguments.wait
    while arguments.wait:
        time.sleep(min(SETTLED_S, max(0.1, deadline - time.monotonic())))
        rows = ask(arguments, "GET", "")
        left = sum(row["in_flight"] for row in rows if _is(arguments.name, row["name"]))
        if not left:
            break
        if time.monotonic() >= deadline:
            raise Stopped([f"sluice engines drain: {left} requests are still at {arguments.name}"], COULD_NOT_START)
    return _show(arguments, rows)


def _is(configured: str, name: str) -> bool:
    """Say whether an engine is the configured one, or one of its name's addresses."""
    return name == configured or name.startswith(f"{configured}/")


def _order(arguments: argparse.Namespace, **changes: object) -> int:
    return _show(arguments, ask(arguments, "POST", "/order", {"name": arguments.name, **changes}))


def ask(
    arguments: argparse.Namespace, method: str, path: str, body: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Ask the gateway of its engines. Raises Stopped with what it says."""
    import asyncio
    import json

    from gateway.settings import environment
    from gateway.upstream.client import Broken, Origin, Pool, fetch

    url = arguments.url or environment().get("SLUICE_URL") or URL
    key = arguments.key or environment().get("SLUICE_KEY")
    headers = [(b"content-type", b"application/json")]
    if key:
        headers.append((b"authorization", f"Bearer {key}".encode()))

    async def asked() -> Any:
        pool = Pool(Origin.parse(url))
        raw = json.dumps(body).encode() if body is not None else b""
        try:
            return await fetch(pool, method, f"/admin/engines{path}", raw, headers)
        finally:
            await pool.close()

    try:
        answer = asyncio.run(asked())
        told = json.loads(answer.body)
    except (Broken, TimeoutError) as fault:
        raise Stopped([f"sluice engines: {url}: {str(fault) or 'no answer in time'}"], COULD_NOT_START) from None
    except ValueError as fault:
        said = str(fault) if not isinstance(fault, json.JSONDecodeError) else "is no gateway of ours"
        raise Stopped([f"sluice engines: {url}: {said}"]) from None
    match told:
        case {"engines": list(rows)}:
            return rows
        case {"error": {"message": str(said)}}:
            raise Stopped([f"sluice engines: {said}"])
        case _:
            raise Stopped([f"sluice engines: {url}: is no gateway of ours"])


def _show(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> int:
    if arguments.json:
        import json

        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    lines = [[name.replace("_", " ") for name in SHOWN]]
    lines += [[_cell(row[name]) for name in SHOWN] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(SHOWN))]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
