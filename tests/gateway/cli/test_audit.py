"""``sluice audit`` finds, counts and verifies what an audit log holds, and says in one line what it cannot read."""

from __future__ import annotations

import gzip
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.record import Hit, Record
from plugins.audit_log.entry import Entry, gap, line
from plugins.audit_log.journal import Journal
from plugins.audit_log.seal import Seal

SECRET = "a secret of sixteen"
DAY = datetime(2026, 11, 29, 8, tzinfo=UTC)


def record(number: int, **facts: Any) -> Record:
    return Record(request_id=f"req-{number}", **{"key": "team-a", "model": "smollm2", "status": 200, **facts})


def hit(rule: str, tag: str | None = None) -> Hit:
    return Hit("sensitive_words", rule, "block", "request", tag)


RECORDS = [
    (DAY, record(0)),
    (
        DAY + timedelta(hours=1),
        record(1, key="team-b", outcome="content_filter", hits=[hit("block.txt:3", "politics")]),
    ),
    (DAY + timedelta(days=1), record(2, key="team-b", tags=["soft"], hits=[hit("block.txt:3"), hit("block.txt:3")])),
    (DAY + timedelta(days=1, hours=1), record(3, model="evil\x1b[31m\nname", key=None)),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path / "audit.jsonl")


def written(path: Path, *, secret: str | None = None) -> Path:
    journal = Journal(path, rotate_bytes=1 << 20, seal=Seal(secret))
    journal.open()
    journal.append([line(Entry(ended, facts)) for ended, facts in RECORDS])
    journal.close()
    return path


Capture = pytest.CaptureFixture[str]


def audit(capsys: Capture, *arguments: object, code: int = 0) -> list[str]:
    assert main(["audit", *map(str, arguments)]) == code
    return capsys.readouterr().out.splitlines()


def found(capsys: Capture, *arguments: object) -> list[str]:
    return [json.loads(each)["request_id"].removeprefix("req-") for each in audit(capsys, *arguments)]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([], "0123"),
        (["--key", "team-b"], "12"),
        (["--key", "team-*"], "012"),
        (["--key", "team-a", "--key", "team-b", "--model", "smol*"], "012"),
        (["--outcome", "content_filter"], "1"),
        (["--rule", "block.txt:*"], "12"),
        (["--rule", "block.txt:4"], ""),
        (["--tag", "politics"], "1"),
        (["--tag", "soft"], "2"),
        (["--request-id", "req-3"], "3"),
        (["--since", "2026-11-30"], "23"),
        (["--until", "2026-11-29"], "01"),
        (["--since", "2026-11-29T09:00", "--until", "2026-11-30T08:30"], "12"),
        (["--since", "2026-11-29T17:00+08:00", "--key", "team-b", "--rule", "block*"], "12"),
        (["--until", "2026-11-29T08:00"], ""),
    ],
)
def test_records_are_chosen(log: Path, capsys: Capture, options: list[str], numbers: str) -> None:
    assert found(capsys, log, *options) == list(numbers)


def test_records_come_out_byte_for_byte(log: Path, capsys: Capture) -> None:
    assert "\n".join(audit(capsys, log)) + "\n" == log.read_text("utf-8")


def test_recent_is_said_in_hours_and_days(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "audit.jsonl"
    now = datetime.now(UTC)
    ended = [now - timedelta(days=3), now - timedelta(hours=5), now]
    path.write_bytes(b"".join(line(Entry(time, record(number))) for number, time in enumerate(ended)))
    assert found(capsys, path, "--since", "2h") == ["2"]
    assert found(capsys, path, "--since", "1d") == ["1", "2"]


@pytest.mark.parametrize(
    ("by", "counts"),
    [
        ("key", {"team-b": 2, "team-a": 1}),
        ("outcome", {"ok": 3, "content_filter": 1}),
        ("rule", {"block.txt:3": 2}),
        ("tag", {"politics": 1, "soft": 1}),
        ("day", {"2026-11-29": 2, "2026-11-30": 2}),
    ],
)
def test_records_are_counted(log: Path, capsys: Capture, by: str, counts: dict[str, int]) -> None:
    told = [json.loads(each) for each in audit(capsys, log, "--count-by", by)]
    assert {each[by]: each["count"] for each in told} == counts
    assert [each["count"] for each in told] == sorted(counts.values(), reverse=True)
    table = audit(capsys, log, "--count-by", by, "--table")
    assert [each.split() for each in table] == [[str(each["count"]), each[by]] for each in told]


def test_a_table_has_a_row_for_each_record_and_nothing_that_a_terminal_obeys(log: Path, capsys: Capture) -> None:
    rows = audit(capsys, log, "--table")
    assert len(rows) == 4
    assert rows[1].split()[1:] == ["200", "content_filter", "team-b", "smollm2", "req-1", "block.txt:3,#politics"]
    assert "\x1b" not in rows[3]


def test_files_put_aside_packed_or_piped_are_read_in_the_order_of_time(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "audit.jsonl", rotate_bytes=1)
    journal.open()
    for ended, facts in RECORDS:
        journal.append([line(Entry(ended, facts))])
    journal.close()
    oldest = min(tmp_path.glob("audit.jsonl.2*"))
    (tmp_path / f"{oldest.name}.gz").write_bytes(gzip.compress(oldest.read_bytes()))
    oldest.unlink()
    everything = sorted(tmp_path.glob("audit.jsonl*"))
    assert found(capsys, *everything) == list("0123")
    assert audit(capsys, "--verify", *everything)[-1].startswith("fine: chain ")
    packed = gzip.compress((tmp_path / "audit.jsonl").read_bytes())
    for piped in (packed, gzip.decompress(packed)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(piped))))
        assert found(capsys, "-") == ["3"]


def test_gaps_are_told_and_are_no_records(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "audit.jsonl").write_bytes(gap(3) + line(Entry(DAY, record(0))) + gap(4))
    assert main(["audit", str(tmp_path / "audit.jsonl"), "--table"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert told.err == "sluice audit: 7 entries are missing: there was no room for them\n"


def test_what_is_no_record_is_left_out_and_named_once(log: Path, capsys: Capture) -> None:
    log.write_bytes(b"[]\n" + log.read_bytes() + b'{"a":\n\xff\n{"time":1}\n')
    assert main(["audit", str(log)]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 4
    assert told.err == f"sluice audit: {log}:1: is no record of an audit log, nor are 3 others; left out\n"


@pytest.mark.parametrize("how", [[], ["--table"], ["--count-by", "rule"], ["--count-by", "tag"], ["--rule", "*"]])
@pytest.mark.parametrize(
    "facts",
    [
        *({"hits": None}, {"hits": [5]}, {"hits": [{"rule": 1}]}, {"hits": [{"tag": "x"}]}, {"hits": "abc"}),
        *({"tags": 5}, {"tags": [1]}, {"time": "x"}, {"time": None}, {"request_id": 5}, {"dropped": "many"}),
        *({"time": "0001-01-01T00:00:00+08:00"}, {"key": [1]}, {"status": "fine"}, {"more": [[[]]]}),
    ],
)
def test_a_line_of_another_form_is_left_out_whatever_is_asked(
    log: Path, capsys: Capture, facts: dict[str, Any], how: list[str]
) -> None:
    fits = "more" in facts
    log.write_text(json.dumps({"time": "2026-11-29T08:00:00Z", "request_id": "a", **facts}) + "\n", "utf-8")
    assert main(["audit", str(log), *how]) == (0 if fits else 1)
    told = capsys.readouterr()
    assert told.err == ("" if fits else f"sluice audit: {log}:1: is no record of an audit log; left out\n")


def test_a_line_nested_beyond_reason_is_left_out(log: Path, capsys: Capture) -> None:
    log.write_text('{"more":' + "[" * 100_000 + "]" * 100_000 + "}\n", "utf-8")
    assert main(["audit", str(log)]) == 1
    assert capsys.readouterr().err.endswith("left out\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.jsonl"], "none.jsonl: cannot be read: no such file or directory"),
        (["."], ".: cannot be read: is a directory"),
        (["LOG", "--since", "yesterday"], "--since: 'yesterday' is no time: write 2026-11-29"),
        (["LOG", "--until", "2026-13-01"], "--until: '2026-13-01' is no time"),
        (["LOG", "--since", "99999999999d"], "--since: '99999999999d' is no time"),
        (["LOG", "--verify", "--secret-env", "NOT_SET"], "--secret-env: the variable NOT_SET is not set"),
    ],
)
def test_wrong_use_is_one_clear_line(log: Path, capsys: Capture, arguments: list[str], said: str) -> None:
    assert main(["audit", *(str(log) if each == "LOG" else each for each in arguments)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"sluice audit: {said}")


@pytest.mark.parametrize("arguments", [["audit"], ["audit", "x", "--count-by", "colour"]])
def test_usage_is_one_line_too(capsys: Capture, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_packed_file_cut_short_is_one_clear_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(line(Entry(DAY, record(0))) * 50)[:-12])
    assert main(["audit", str(tmp_path / "a.gz")]) == 2
    assert capsys.readouterr().err.startswith(f"sluice audit: {tmp_path / 'a.gz'}: cannot be read: ")


@pytest.mark.parametrize("how", [[], ["--verify"]])
def test_a_packed_file_that_was_damaged_is_one_clear_line(tmp_path: Path, capsys: Capture, how: list[str]) -> None:
    packed = gzip.compress(line(Entry(DAY, record(0))) * 50)
    for at in range(10, len(packed)):
        (tmp_path / "a.gz").write_bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
        assert main(["audit", str(tmp_path / "a.gz"), *how]) in {1, 2}
        (told,) = capsys.readouterr().err.splitlines()
        assert told.startswith(f"sluice audit: {tmp_path / 'a.gz'}:")


def test_lines_that_keep_removed_are_not_missed_and_others_are(tmp_path: Path, capsys: Capture) -> None:
    journal = Journal(tmp_path / "audit.jsonl", rotate_bytes=1, keep=1)
    journal.open()
    for ended, facts in RECORDS:
        journal.append([line(Entry(ended, facts))])
    journal.close()
    aside, current = sorted(tmp_path.glob("audit.jsonl.2*")), tmp_path / "audit.jsonl"
    assert "lines 3 to 4" in audit(capsys, "--verify", current, *aside)[-1]
    audit(capsys, "--verify", current, code=1)
    assert "lines 4 to 4" in audit(capsys, "--verify", current, "--first", 4)[-1]


def test_a_log_is_verified(log: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted, fine = audit(capsys, "--verify", log)
    assert counted == f"{log}: 4 lines"
    assert fine.startswith("fine: chain ")
    assert "lines 1 to 4" in fine
    keyed = written(tmp_path / "keyed.jsonl", secret=SECRET)
    monkeypatch.setenv("AUDIT_SECRET", SECRET)
    assert len(audit(capsys, "--verify", keyed, "--secret-env", "AUDIT_SECRET")) == 2
    assert main(["audit", "--verify", str(keyed)]) == 2
    assert "--secret-env" in capsys.readouterr().err


def test_the_first_line_that_is_wrong_is_named(log: Path, capsys: Capture) -> None:
    log.write_bytes(log.read_bytes().replace(b'"status":200', b'"status":201'))
    assert main(["audit", "--verify", str(log)]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"sluice audit: {log}:1: was changed\n")


def test_an_empty_log_is_fine(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "audit.jsonl").touch()
    assert audit(capsys, tmp_path / "audit.jsonl") == []
    assert audit(capsys, "--verify", tmp_path / "audit.jsonl") == ["fine: there is no line"]
