"""Alternatives to the tokens of an answer: what the model might have said is covered where it would not be shown.

An alternative is judged by itself and behind the text that was said before it; its log probability stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gateway.protocol.chunks import finite
from gateway.protocol.filtering import MakeFilter
from gateway.protocol.logprobs import is_silent
from gateway.protocol.numbers import decoded

#: The kind of channel of which nothing is noted, for nobody has said it.
KIND = "alternative"
_BEFORE = 64  # code points said before
_APART = "\n\n"  # no word goes on over an empty line


class _Alternative(NamedTuple):
    """A token that was not chosen: ``holder[field]``, or the member of that name where it names a log probability."""

    holder: dict[str, Any]
    field: str
    text: str
    before: str

    def cover(self) -> None:
        """Show nothing of it but its length."""
        holder, hidden = self.holder, "*" * len(self.text)
        if self.field != self.text:
            holder[self.field] = hidden
            if holder.get("bytes") is not None:
                holder["bytes"] = list(hidden.encode())
            return
        while hidden in holder:
            hidden += "*"
        told = [(hidden if name == self.text else name, value) for name, value in holder.items()]
        holder.clear()
        holder.update(told)


class Alternatives:
    """Those of one answer, whole or in pieces. ``make_filter`` makes the filter of a channel of the kind KIND."""

    __slots__ = ("_make", "_said")

    def __init__(self, make_filter: MakeFilter) -> None:
        self._make = make_filter
        self._said: dict[Any, str] = {}  # the end of what each choice has said

    def covered(self, payload: bytes) -> bytes:
        """Return an event or an answer as it may be shown: the same bytes where nothing has to be covered."""
        if b'"top_logprobs"' not in payload and b'"decoded_token"' not in payload:
            return payload
        try:
            body = decoded(payload)
        except (ValueError, RecursionError):
            mended = finite(payload)
            return payload if mended is None else self.covered(mended)
        return msgspec.json.encode(body) if self.cover(body) else payload

    def cover(self, body: Any) -> bool:
        """Cover in place what may not be shown; return whether there was anything."""
        wrong = self._wrong([each for each in self._found(body) if each.text and not is_silent(each.text)])
        for each in wrong:
            each.cover()
        return bool(wrong)

    def _wrong(self, found: list[_Alternative]) -> list[_Alternative]:
        """Judge all at once, for nearly always all are clean; else each by itself, and behind what is clean itself."""
        texts = dict.fromkeys([text for each in found for text in (each.text, each.before + each.text)])
        if not texts or self._is_clean(_APART.join(texts)):
            return []
        befores = {before: self._is_clean(before) for before in {each.before for each in found}}
        verdicts = {text: self._is_clean(text) for text in texts}
        return [
            each
            for each in found
            if not (verdicts[each.text] and (verdicts[each.before + each.text] or not befores[each.before]))
        ]

    def _is_clean(self, text: str) -> bool:
        channel = self._make(0, KIND, 0) if text else None
        return channel is None or (channel.whole(text)[0] == text and channel.blocked is None)

    def _found(self, body: Any) -> Iterator[_Alternative]:
        waiting: list[tuple[Any, Any]] = [(None, body)]
        while waiting:
            choice, value = waiting.pop()
            if isinstance(value, dict):
                choice = value.get("index", choice) if "logprobs" in value else choice
                if isinstance(value.get("decoded_token"), str):
                    yield _Alternative(value, "decoded_token", value["decoded_token"], "")
                if isinstance(value.get("tokens"), list) and isinstance(value.get("top_logprobs"), list):
                    yield from self._named(choice, value["tokens"], value["top_logprobs"])
                    continue
                held: Any = value.values()
            elif isinstance(value, list):
                if value and isinstance(value[0], dict) and "top_logprobs" in value[0]:
                    yield from self._listed(choice, value)
                    continue
                held = value
            else:
                continue
            waiting += [(choice, each) for each in held if isinstance(each, dict | list)][::-1]

    def _listed(self, choice: Any, entries: list[Any]) -> Iterator[_Alternative]:
        """A chat's, and a response's: each token an object with a list of such."""
        for entry in entries:
            token, tops = (entry.get("token"), entry.get("top_logprobs")) if isinstance(entry, dict) else ("", None)
            for top in tops if isinstance(tops, list) else ():
                other = top.get("token") if isinstance(top, dict) else None
                if isinstance(top, dict) and isinstance(other, str) and other != token:
                    yield _Alternative(top, "token", other, self._said.get(choice, ""))
            self._say(choice, token)

    def _named(self, choice: Any, tokens: list[Any], tops: list[Any]) -> Iterator[_Alternative]:
        """A completion's: log probabilities by name, beside the tokens."""
        for at, token in enumerate(tokens):
            top: dict[str, Any] = tops[at] if at < len(tops) and isinstance(tops[at], dict) else {}
            for other in list(top):
                if other != token:
                    yield _Alternative(top, other, other, self._said.get(choice, ""))
            self._say(choice, token)

    def _say(self, choice: Any, token: Any) -> None:
        if isinstance(token, str) and not is_silent(token):
            self._said[choice] = (self._said.get(choice, "") + token)[-_BEFORE:]
