"""The command for audit logs: filter, count, verify. It reads the form that docs/audit.schema.json describes."""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, cast

from gateway.cli.command import Commands, Stopped

if TYPE_CHECKING:
    import argparse

    from gateway.cli.audit_chain import Line

DOUBTFUL = 1  # exit code: something is wrong with the log
_SKIPPED = (".lock",)  # comes with audit.jsonl*
_GZIP = b"\x1f\x8b"

_UNREADABLE = (OSError, EOFError, zlib.error)


class _Hit(TypedDict):
    rule: str
    tag: NotRequired[str | None]


class Record(TypedDict, total=False):
    """What is read of a line: of an exchange, or of a gap."""

    time: datetime
    request_id: str
    status: int
    outcome: str
    key: str | None
    model: str | None
    hits: list[_Hit]
    tags: list[str]
    dropped: int


def _rules(record: Record) -> list[str]:
    return list(dict.fromkeys(hit["rule"] for hit in record.get("hits", ())))


def _tags(record: Record) -> list[str]:
    tags = (hit.get("tag") for hit in record.get("hits", ()))
    return list(dict.fromkeys([*record.get("tags", ()), *(tag for tag in tags if tag)]))


def _one(name: str) -> Callable[[Record], list[str]]:
    return lambda record: [str(record[name])] if record.get(name) is not None else []  # type: ignore[literal-required]


#: What a record can be chosen and counted by, and what it has of that.
_FACTS: dict[str, Callable[[Record], list[str]]] = {
    "key": _one("key"),
    "model": _one("model"),
    "outcome": _one("outcome"),
    "rule": _rules,
    "tag": _tags,
    "request-id": _one("request_id"),
    "day": lambda record: [_written(record["time"])[:10]],
}
_COLUMNS = (("time", 27), ("status", 6), ("outcome", 19), ("key", 14), ("model", 16), ("request_id", 36))


def add(commands: Commands) -> None:
    """Declare audit."""
    audit = commands.add("audit", run, "Filter, count and verify audit logs.", config=False)
    audit.add_argument("files", metavar="FILE", nargs="+", help="audit logs, gzip too; - reads standard input")
    for name in ("key", "model", "outcome", "rule", "tag", "request-id"):
        audit.add_argument(f"--{name}", metavar="PATTERN", action="append", default=[], help=_HELP[name])
    audit.add_argument("--since", metavar="TIME", help="from then on: 2026-11-29, 2026-11-29T08:00, or 36h, 7d ago")
    audit.add_argument("--until", metavar="TIME", help="until then; a day includes all of it")
    audit.add_argument(
        "--count-by", choices=[name for name in _FACTS if name != "request-id"], help="count the records"
    )
    audit.add_argument("--table", action="store_true", help="columns for people, not JSON lines")
    audit.add_argument(
        "--verify", action="store_true", help="check the chain of hashes; names the first line that is wrong"
    )
    audit.add_argument(
        "--first", metavar="SEQ", type=int, default=1, help="with --verify: older lines than this are kept elsewhere"
    )
    audit.add_argument(
        "--secret-env", metavar="NAME", action="append", default=[], help="a variable with the chain's secret"
    )


_HELP = {
    "key": "of this key; patterns may have * and ?, and several are alternatives",
    "model": "that asked for this model",
    "outcome": "with this outcome, such as content_filter",
    "rule": "in which this rule fired, such as 'block.txt:*'",
    "tag": "with this tag",
    "request-id": "this request",
}


def run(arguments: argparse.Namespace) -> int:
    """Read the files, and do with their lines what was asked."""
    if arguments.verify:
        return _verify(arguments)
    chosen = _Choice.of(arguments)
    reading = _Reading(_files(arguments.files))
    if arguments.count_by is None:
        for line, record in reading.records(chosen):
            print(_row(record) if arguments.table else line.raw.decode("utf-8", "backslashreplace"))
    else:
        facts = _FACTS[arguments.count_by]
        counted = Counter(fact for _, record in reading.records(chosen) for fact in facts(record))
        for fact, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
            print(
                f"{count:>9}  {_shown(fact)}" if arguments.table else _json({arguments.count_by: fact, "count": count})
            )
    sys.stdout.flush()
    return reading.told()


class _Choice(NamedTuple):
    """Which records are wanted. Patterns of one kind are alternatives; one of each kind has to fit."""

    patterns: Mapping[str, Sequence[str]]
    since: str
    until: str

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> _Choice:
        given = {name: getattr(arguments, name.replace("-", "_"), None) for name in _FACTS}
        patterns = {name: each for name, each in given.items() if each}
        return cls(patterns, _moment("--since", arguments.since), _moment("--until", arguments.until, end=True))

    def takes(self, record: Record) -> bool:
        moment = _written(record["time"])
        return (
            (not self.since or moment >= self.since)
            and (not self.until or moment < self.until)
            and all(
                any(fnmatchcase(fact, pattern) for fact in _FACTS[name](record) for pattern in patterns)
                for name, patterns in self.patterns.items()
            )
        )


class _Reading:
    """Reads records, and remembers what was not right with the files."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._bad = self._dropped = 0
        self._first_bad = ""

    def records(self, chosen: _Choice) -> Iterator[tuple[Line, Record]]:
        """Yield the records that are chosen, with their lines. Gaps are counted, other lines left out and counted."""
        import msgspec

        decode = msgspec.json.Decoder(Record).decode
        for line in self._lines:
            try:
                record = decode(line.raw)
                if "dropped" in record:
                    self._dropped += record["dropped"]
                    continue
                taken = bool(record["request_id"]) and chosen.takes(record)
            except (msgspec.DecodeError, KeyError, OverflowError, RecursionError):
                self._bad += 1
                self._first_bad = self._first_bad or f"{line.file}:{line.number}"
                continue
            if taken:
                yield line, record

    def told(self) -> int:
        """Say what was not right; return the exit code."""
        if self._dropped:
            print(f"sluice audit: {self._dropped} entries are missing: there was no room for them", file=sys.stderr)
        if self._bad:
            more = f", nor are {self._bad - 1} others" if self._bad > 1 else ""
            print(f"sluice audit: {self._first_bad}: is no record of an audit log{more}; left out", file=sys.stderr)
        return DOUBTFUL if self._bad else 0


def _verify(arguments: argparse.Namespace) -> int:
    from gateway.cli.audit_chain import Broken, KeyMissing, Verifier, heads

    secrets = [_secret(name) for name in arguments.secret_env]
    verifier = Verifier(secrets, heads(name for name in arguments.files if name != "-"), first=arguments.first)
    counted: Counter[str] = Counter()
    try:
        for line in _files(arguments.files):
            verifier.take(line)
            counted[line.file] += 1
        verifier.end()
    except Broken as broken:
        print(f"sluice audit: {broken}", file=sys.stderr)
        return DOUBTFUL
    except KeyMissing as missing:
        raise Stopped([f"sluice audit: {missing}"]) from None
    for file, count in counted.items():
        print(f"{file}: {count} line{'' if count == 1 else 's'}")
    for chain, seen in verifier.runs.items():
        print(f"fine: chain {chain}, lines {seen.first} to {seen.seq}; the last hash is {seen.hash.decode()}")
    if not verifier.runs:
        print("fine: there is no line")
    return 0


def _secret(name: str) -> bytes:
    from gateway.settings import environment

    secret = dict(environment()).get(name)
    if not secret:
        raise Stopped([f"sluice audit: --secret-env: the variable {name} is not set"])
    return secret.encode()


def _files(names: Sequence[str]) -> Iterator[Line]:
    """Yield every line of the files, the oldest file first; what was put aside comes before what goes on.

    Raises Stopped where one cannot be read.
    """
    from gateway.cli.audit_chain import Line

    for name in sorted((name for name in names if not name.endswith(_SKIPPED)), key=_begun):
        try:
            with _opened(name) as file:
                for number, raw in enumerate(file, 1):
                    yield Line(name, number, raw.rstrip(b"\r\n"))
        except _UNREADABLE as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Stopped([f"sluice audit: {name}: cannot be read: {reason[:1].lower()}{reason[1:]}"]) from None


def _begun(name: str) -> tuple[int, str]:
    """Return what files are ordered by: the time in their first line; standard input, and what has none, comes last."""
    try:
        with _opened(name) if name != "-" else Path("/dev/null").open("rb") as file:
            first = file.readline(200)
    except _UNREADABLE:
        first = b""
    head, _, rest = first.partition(b'"time":"')
    return (0, rest[:27].decode("ascii", "replace")) if head == b"{" else (1, "")


def _opened(name: str) -> IO[bytes]:
    import gzip

    plain: Any = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 - closed by who reads
    if plain.peek(2)[:2] != _GZIP:
        return cast("IO[bytes]", plain)
    if name == "-":
        return cast("IO[bytes]", gzip.open(plain))
    plain.close()
    return cast("IO[bytes]", gzip.open(name))


def _moment(option: str, given: str | None, *, end: bool = False) -> str:
    """Return a moment as records write it, "" for none. Raises Stopped."""
    if not given:
        return ""
    try:
        if given[-1] in "hd" and given[:-1].isdigit():
            moment = datetime.now(UTC) - timedelta(**{{"h": "hours", "d": "days"}[given[-1]]: int(given[:-1])})
        elif len(given) == len("2026-11-29"):
            moment = datetime.combine(date.fromisoformat(given) + timedelta(days=end), time(), UTC)
        else:
            moment = datetime.fromisoformat(given)
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Stopped(
            [f"sluice audit: {option}: {given!r} is no time: write 2026-11-29, 2026-11-29T08:00 (UTC), 36h or 7d"]
        ) from None
    return _written(moment)


def _written(moment: datetime) -> str:
    """Write a moment as records do, but for the Z."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00")


def _row(record: Record) -> str:
    facts = {**record, "time": f"{_written(record['time'])}Z"}
    cells = [_shown(str("-" if facts.get(name) is None else facts[name])).ljust(wide) for name, wide in _COLUMNS]
    return " ".join([*cells, _shown(",".join([*_rules(record), *(f"#{tag}" for tag in _tags(record))]))]).rstrip()


def _shown(text: str) -> str:
    """Show what a caller may have made up without what a terminal would obey."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _json(value: Mapping[str, Any]) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
