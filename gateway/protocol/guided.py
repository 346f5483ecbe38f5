"""The ``guided_*`` fields of older vLLMs, which 0.32 ignores without a word, told in today's ``structured_outputs``."""

from __future__ import annotations

from typing import Any

from gateway.errors import InvalidRequest

_KINDS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
_SETTINGS = {"guided_whitespace_pattern": "whitespace_pattern"}
_GONE = ("guided_decoding_backend",)  # the server's own setting now
GUIDED = frozenset((*_KINDS, *_SETTINGS, *_GONE))


def translate_guided(body: dict[str, Any]) -> None:
    """Move a request's ``guided_*`` fields into ``structured_outputs``, in place.

    Raises InvalidRequest where that would contradict another constraint: an engine takes exactly one.
    """
    asked = [field for field in _KINDS if body.get(field) is not None]
    settings = {name: body[field] for field, name in _SETTINGS.items() if body.get(field) is not None}
    for field in asked:
        other = next((name for name in asked if name != field), None) or _other_constraint(body)
        if other is not None:
            raise InvalidRequest(f"{field} and {other} both constrain the answer: only one may.", param=field)
        kept = body.get("structured_outputs") or {}
        body["structured_outputs"] = {**kept, **settings, _KINDS[field]: body[field]}
    for field in (*_KINDS, *_SETTINGS, *_GONE):
        body.pop(field, None)


def _other_constraint(body: dict[str, Any]) -> str | None:
    """Name the field that constrains the answer in today's words, if one does."""
    outputs = body.get("structured_outputs")
    if outputs and not (isinstance(outputs, dict) and outputs.keys().isdisjoint(_CONSTRAINTS)):
        return "structured_outputs"
    form = body.get("response_format")
    if form is None or (isinstance(form, dict) and form.get("type") == "text"):
        return None
    return "response_format"


_CONSTRAINTS = {*_KINDS.values(), "json_object", "structural_tag"}
