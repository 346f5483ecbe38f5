"""The documented form of a line is that of the lines."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import jsonschema_rs
import pytest

from gateway.record import Hit, Record, Run
from plugins.audit_log.entry import Entry, Said, gap, line
from plugins.audit_log.schema import schema
from plugins.audit_log.seal import Seal, begun

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "plugins" / "audit_log.md"
SCHEMA = DOCS / "audit.schema.json"
ENDED = datetime(2026, 11, 29, 17, 8, 15, 250_000, tzinfo=UTC)


def record() -> Record:
    return Record(
        request_id="req-1",
        phases={"queue": 0.001},
        finish_reasons=["stop"],
        tags=["soft"],
        lists={"sensitive_words/block.txt": "9f2c"},
        hits=[Hit("sensitive_words", "block.txt:3", "tag", "answer", None, "choices[0].content", 4, 6)],
        runs={"sensitive_words": Run("ran", 0.00002)},
    )


def everything() -> Entry:
    texts = [Said("messages[0].content", ["x"], {"fault": "not JSON"})]
    return Entry(ENDED, record(), texts, texts, {"preset": "calm"}, texts, full=True)


def test_the_page_describes_every_field_and_no_other() -> None:
    fields_of_lines = {*schema()["$defs"]["Line"]["properties"], *schema()["$defs"]["Gap"]["properties"]}
    assert set(json.loads(line(everything()))) <= fields_of_lines
    page = PAGE.read_text("utf-8").partition("## The line")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == fields_of_lines


def test_the_schema_on_file_is_that_of_the_code() -> None:
    """Write it anew with ``python -m plugins.audit_log.schema > docs/audit.schema.json``."""
    assert json.loads(SCHEMA.read_text("utf-8")) == schema()


@pytest.mark.parametrize("secret", [None, "a secret of sixteen"])
def test_every_line_fits_the_schema(secret: str | None) -> None:
    plain, gaps = line(Entry(ENDED, record())), gap(3)
    lines, _ = Seal(secret).linked([plain, line(everything()), gaps], begun())
    fits = jsonschema_rs.validator_for(schema()).is_valid
    assert [fits(json.loads(each)) for each in lines] == [True] * 3
    assert not fits(json.loads(plain)), "a line of no chain is none"
    assert not fits({**json.loads(lines[0]), "surprise": 1})
