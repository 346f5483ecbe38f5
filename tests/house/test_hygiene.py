"""What must not stand in a committed file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT, committed

#: Each pattern is written so that it does not match itself.
UNWANTED = {
    "a package registry's host: name the package, not the place": (
        r"pyp[i]\.(org|python)|pythonhoste[d]\.|npmj[s]\.|de[b]\.debian\."
    ),
    "a path of one machine": r"(?<![\w.])/(wor[k]|roo[t]|hom[e])/\w",
    "something unfinished": r"\b(TOD[O]|FIXM[E]|XX[X])\b|raise NotImplemente[d]",
}


def texts() -> list[Path]:
    return [path for path in committed() if b"\0" not in path.read_bytes()[:4096]]


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(UNWANTED[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_every_text_is_utf8_with_unix_line_ends_and_a_last_one() -> None:
    wrong = []
    for path in texts():
        data = path.read_bytes()
        data.decode("utf-8")
        if b"\r\n" in data or (data and not data.endswith(b"\n")):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []
