"""What of a conversation may be left out, and in which order: whole turns before parts of turns.

Never left out are system messages, the last user message and the last step after it (a call with its results, or the
beginning of an answer). A call and its results stay or go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plugins.length.cutting import Cutter, Way

_SYSTEM = ("system", "developer")
_RESULTS = ("tool", "function")

Message = dict[str, Any]


class Conversation:
    """Messages, and every shortening of them. ``steps`` says how many there are before texts have to be cut.

    ``cutters`` are those texts, each by the index of its message and of its part.
    """

    def __init__(self, messages: Sequence[Message], way: Way, mark: str, outliers: int) -> None:
        self._messages, self._mark = messages, mark
        groups = list(_groups(messages))
        last = next((at for at in reversed(range(len(groups))) if _has_user(messages, groups[at])), None)
        turns, steps = groups[:last], groups[last:]
        if last is None:
            turns, steps = [], groups
        self._asked = last is not None
        earlier = turns[::-1] if way == "head" else turns
        now = steps[1:-1] if self._asked else steps[:-1]
        self._spare = [*earlier, *now]
        self._of_turns = len(earlier)
        self.steps = len(self._spare)
        kept = [*(steps[:1] if self._asked else []), *steps[-1:]]
        self.cutters = {
            (at, part): Cutter(text, way, mark, outliers)
            for at in sorted({at for group in kept for at in group})
            if messages[at].get("role") in ("user", *_RESULTS)
            for part, text in _texts(messages[at])
        }

    @property
    def longest(self) -> int:
        """Return the length of the longest text that can be cut, 0 where there is none."""
        return max((len(cutter.text) for cutter in self.cutters.values()), default=0)

    def without(self, steps: int, length: int | None = None) -> list[Message]:
        """Return the messages without the first ``steps`` that can be spared, no text of the others over ``length``."""
        gone = {at for group in self._spare[:steps] for at in group}
        texts = {} if length is None else self._cut(length)
        kept = {
            at: _with(message, texts[at]) if at in texts else message
            for at, message in enumerate(self._messages)
            if at not in gone
        }
        self._say(kept, steps)
        return list(kept.values())

    def _cut(self, length: int) -> dict[int, dict[int, str]]:
        texts: dict[int, dict[int, str]] = {}
        for (at, part), cutter in self.cutters.items():
            if len(cutter.text) > length:
                texts.setdefault(at, {})[part] = cutter.cut(length)
        return texts

    def _say(self, kept: dict[int, Message], steps: int) -> None:
        """Mark the gaps: before what follows the turns left out, and behind the question whose steps were."""
        turns = [at for group in self._spare[: min(steps, self._of_turns)] for at in group]
        later = [at for group in self._spare[self._of_turns : steps] for at in group]
        if turns and (following := next((at for at in kept if at > max(turns) and not _system(kept[at])), None)):
            kept[following] = _beside(kept[following], self._mark.lstrip(), before=True)
        if later and (asked := [at for at in kept if at < min(later) and not _system(kept[at])]):
            kept[asked[-1]] = _beside(kept[asked[-1]], self._mark.rstrip(), before=False)


def characters(messages: Sequence[Message]) -> int:
    """Count the characters of all texts and of the arguments of calls."""
    count = 0
    for message in messages:
        count += sum(len(text) for _, text in _texts(message))
        count += sum(len(call["function"].get("arguments", "")) for call in _calls(message))
    return count


def _groups(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Part messages into turns, a user's message and what follows; the last turn into its steps."""
    results = {
        str(message.get("tool_call_id")): at for at, message in enumerate(messages) if message.get("role") == "tool"
    }
    asked = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    group: list[int] = []
    until = -1  # a result of the group's calls is still to come
    for at, message in enumerate(messages):
        if _system(message):
            continue
        role = message.get("role")
        begins = role == "user" or (at > asked and role not in _RESULTS)
        if group and begins and at > until:
            yield group
            group = []
        group.append(at)
        until = max([until, *(results.get(call["id"], -1) for call in _calls(message))])
    if group:
        yield group


def _has_user(messages: Sequence[Message], group: Sequence[int]) -> bool:
    return any(messages[at].get("role") == "user" for at in group)


def _system(message: Message) -> bool:
    return message.get("role") in _SYSTEM


def _calls(message: Message) -> list[Message]:
    calls = message.get("tool_calls")
    found = calls if isinstance(calls, list) else []
    return [call for call in found if isinstance(call, dict) and _well_formed(call.get("id"), call.get("function"))]


def _well_formed(call_id: Any, function: Any) -> bool:
    return isinstance(call_id, str) and isinstance(function, dict) and isinstance(function.get("arguments", ""), str)


def _texts(message: Message) -> Iterator[tuple[int, str]]:
    """Go through the texts of a message's content, each with the number of its part."""
    content = message.get("content")
    for part, text in enumerate(content if isinstance(content, list) else [content]):
        said = text.get("text") if isinstance(text, dict) else text
        if isinstance(said, str):
            yield part, said


def _with(message: Message, texts: Mapping[int, str]) -> Message:
    """Return the message with other texts."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": texts[0]}
    parts = [
        part if at not in texts else texts[at] if isinstance(part, str) else {**part, "text": texts[at]}
        for at, part in enumerate(content)
    ]
    return {**message, "content": parts}


def _beside(message: Message, mark: str, *, before: bool) -> Message:
    """Return the message with a mark at its beginning or end, if it has a content to carry one."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": mark + content if before else content + mark}
    if isinstance(content, list) and mark:
        part = {"type": "text", "text": mark}
        return {**message, "content": [part, *content] if before else [*content, part]}
    return message
