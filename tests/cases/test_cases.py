"""The index of the acceptance cases: each is named by the tests that hold us to it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CASES = [
    *("AC-01", "AC-02", "AC-04", "AC-06"),
    *("ST-01", "ST-02", "ST-04", "ST-06", "ST-08", "ST-09", "ST-11"),
    *("TS-02", "TS-03", "TS-05"),
    *("EV-01", "EV-03", "EV-05", "EV-06", "EV-07", "EV-09", "EV-11", "EV-13", "EV-14", "EV-15", "EV-16"),
    *("FP-01", "FP-02", "FP-05", "FP-06", "FP-07"),
    *("UC-01", "UC-02", "UC-04", "UC-06", "UC-08", "UC-09", "PI-01", "PI-03", "PI-04", "PI-06", "PI-07"),
    *("TR-01", "TR-02", "TR-03", "JR-01", "JR-02", "JR-05", "JR-06"),
    *("TD-01", "TD-03", "TD-05", "LB-01", "LB-03", "LB-04"),
    *("AU-01", "AU-03", "AU-04", "AU-05", "CF-01", "CF-03", "K8-01", "K8-03", "K8-04"),
    *("ML-01", "ML-02", "ML-03"),
    *("SE-01", "SE-03", "SE-05", "SE-06", "SE-08", "SE-10", "SE-11"),
]


@functools.cache
def claims() -> tuple[tuple[str, str], ...]:
    """Return every test with its docstring."""
    return tuple(_claims())


def _claims() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield f"{path.relative_to(TESTS)}::{node.name}", ast.get_docstring(node) or ""


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_claimed_by_a_test(case: str) -> None:
    assert [name for name, claim in claims() if case in claim], f"no test's docstring names {case}"
