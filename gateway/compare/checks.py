"""What an answer is held to: each check by its name, with what the case says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
import msgspec

#: Returns what is wrong with an answer, or nothing.
Check = Callable[[str], str]
_FENCE = re.compile(r"^\s*```\w*\n(.*?)\n?```\s*$", re.DOTALL)


def contains(wanted: Any) -> Check:
    """All of these stand in the answer, in any case of letters."""
    texts = _texts("contains", wanted)
    return lambda answer: next((f"no {text!r}" for text in texts if text.casefold() not in answer.casefold()), "")


def contains_any(wanted: Any) -> Check:
    """One of these stands in the answer."""
    texts = _texts("contains_any", wanted)
    said = f"none of {', '.join(map(repr, texts))}"
    return lambda answer: "" if any(text.casefold() in answer.casefold() for text in texts) else said


def not_contains(wanted: Any) -> Check:
    """None of these stands in the answer."""
    texts = _texts("not_contains", wanted)
    return lambda answer: next((f"has {text!r}" for text in texts if text.casefold() in answer.casefold()), "")


def regex(pattern: Any) -> Check:
    """The pattern (Python's) is found in the answer."""
    try:
        found = re.compile(pattern)
    except (re.error, TypeError) as fault:
        raise ValueError(f"regex: {fault}") from None
    return lambda answer: "" if found.search(answer) else f"nothing like /{found.pattern}/"


def exact(wanted: Any) -> Check:
    """The answer is this, but for white space at its ends."""
    text = _texts("exact", wanted)[0].strip()
    return lambda answer: "" if answer.strip() == text else f"not {text!r}"


def json_schema(schema: Any) -> Check:
    """The answer is JSON that fits; a code fence around it is taken off."""
    try:
        validator = jsonschema_rs.validator_for(schema, offline=True)
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as fault:
        raise ValueError(f"json_schema: {str(fault).splitlines()[0]}") from None

    def check(answer: str) -> str:
        fenced = _FENCE.match(answer)
        try:
            value = msgspec.json.decode((fenced[1] if fenced else answer).encode())
        except (msgspec.MsgspecError, UnicodeError):
            return "no JSON"
        error = next(validator.iter_errors(value), None)
        return "" if error is None else f"JSON: {error.message}"

    return check


def max_chars(limit: Any) -> Check:
    """The answer is no longer than so many characters."""
    if not isinstance(limit, int):
        raise ValueError("max_chars: a number")  # noqa: TRY004 - of a file, told with its place
    return lambda answer: "" if len(answer) <= limit else f"{len(answer)} characters"


#: A judge's criterion is no check of ours: see ``asking.judged``.
JUDGE = "judge"
CHECKS: Mapping[str, Callable[[Any], Check]] = {
    made.__name__: made for made in (contains, contains_any, not_contains, regex, exact, json_schema, max_chars)
}


def _texts(name: str, wanted: Any) -> list[str]:
    texts = wanted if isinstance(wanted, list) else [wanted]
    if not texts or not all(isinstance(text, str | int | float) and str(text) for text in texts):
        raise ValueError(f"{name}: a text, or a list of texts")
    return [str(text) for text in texts]
