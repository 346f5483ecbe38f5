"""Both sides beside each other: a table for the terminal, a page for the others, values for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from gateway.compare import verdict
from gateway.compare.targets import Target
from gateway.compare.verdict import Answers, Limits, Side

_PAGE = Path(__file__).parent / "report.html"


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found; ``faults``: why the second is not good enough."""

    targets: tuple[Target, Target]
    answers: tuple[Answers, Answers]
    sides: tuple[Side, Side]
    changed: list[str]
    unsteady: tuple[list[str], list[str]]
    other_prompts: list[str]
    faults: list[str]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield each line of the table."""
        one, other = self.sides
        yield "task success", *(f"{each.success:.1%} ({each.right}/{each.answers})" for each in self.sides)
        yield "no answer", str(one.failed), str(other.failed)
        yield "changed answers", "", f"{len(self.changed)} of {len(self.answers[0])} cases"
        yield "unsteady answers", *(f"{len(each)} cases" for each in self.unsteady)
        yield "prompts of other length", "", f"{len(self.other_prompts)} cases"
        for name in verdict.QUANTILES:
            yield f"first text {name}", *(_seconds(each.first, name) for each in self.sides)
        for name in verdict.QUANTILES:
            yield f"whole answer {name}", *(_seconds(each.seconds, name) for each in self.sides)
        yield "prompt tokens", str(one.prompt_tokens), str(other.prompt_tokens)
        yield "completion tokens", str(one.completion_tokens), str(other.completion_tokens)
        if one.cost is not None or other.cost is not None:
            yield "cost", *("" if each.cost is None else f"{each.cost:.6g}" for each in self.sides)

    def lines(self) -> Iterator[str]:
        """Tell it in the terminal."""
        table = [("", *(each.label for each in self.targets)), *self.rows()]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        for row in table:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for name, letters, wrong in self.wrong():
            yield f"{letters} {name}: {wrong}"
        yield from (f"not good enough: {fault}" for fault in self.faults)
        if not self.faults:
            yield "good enough"

    def wrong(self) -> Iterator[tuple[str, str, str]]:
        """Yield what was wrong: the case, whose answers (A, B, AB), and the first reason of each."""
        for name in self.answers[0]:
            said = [next((each.wrong[0] for each in side[name] if each.wrong), "") for side in self.answers]
            letters = "".join(letter for letter, reason in zip("AB", said, strict=True) if reason)
            if letters:
                yield name, letters.ljust(2), "; ".join(dict.fromkeys(reason for reason in said if reason))

    def page(self) -> str:
        """Write the page: one file that needs nothing else."""
        template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
            _PAGE.read_text("utf-8")
        )
        return template.render(report=self, rows=list(self.rows()))

    def value(self) -> dict[str, Any]:
        """Return it for machines."""
        sides = [
            {"target": t.label, "success": s.success, **msgspec.to_builtins(s)}
            for t, s in zip(self.targets, self.sides, strict=True)
        ]
        cases = {
            name: [[msgspec.to_builtins(each) for each in side[name]] for side in self.answers]
            for name in self.answers[0]
        }
        told = {"changed": self.changed, "unsteady": self.unsteady, "other_prompts": self.other_prompts}
        return {"sides": sides, **told, "faults": self.faults, "cases": cases}


def made(targets: tuple[Target, Target], answers: tuple[Answers, Answers], limits: Limits) -> Report:
    """Put a report together."""
    one, other = answers
    sides = verdict.summed(one, targets[0]), verdict.summed(other, targets[1])
    changed, prompts = verdict.changed(one, other), verdict.other_prompts(one, other)
    found = list(verdict.faults(*sides, limits, len(changed), len(prompts), len(one)))
    unsteady = verdict.unsteady(one), verdict.unsteady(other)
    return Report(targets, answers, sides, changed, unsteady, prompts, found)


def _seconds(of: dict[str, float] | Sequence[float], name: str) -> str:
    return f"{of[name]:.3f} s" if isinstance(of, dict) and name in of else ""
