"""What one choice of a stream tells of its tokens beside the text: shown only with the text that they repeat."""

from __future__ import annotations

from typing import Any

from gateway.protocol.chunks import NULL, Choice
from gateway.protocol.filtering import Filter
from gateway.protocol.logprobs import LogprobQueue, in_step
from gateway.protocol.patches import Patch


class Repeats:
    """The logprobs and token ids of one choice that wait for their text, by its kind.

    ``hidden``: something was said that is not shown so.
    """

    __slots__ = ("hidden", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, LogprobQueue] = {}
        self.hidden = False

    def change(self, kind: str, channel: Filter, choice: Choice, said: tuple[str, str, Any]) -> bool:
        """Say whether anything of a chunk has to change, whose text, what is shown of it and the edits are ``said``."""
        text, shown, edits = said
        self.hidden = self.hidden or bool(edits) or channel.blocked is not None
        if shown != text or edits or channel.told != channel.fed or kind in self.queues:
            return True
        return choice.logprobs != NULL and not in_step(choice.logprobs, text)

    def of(self, kind: str, channel: Filter, choice: Choice, said: tuple[str, Any]) -> tuple[Any, Any] | None:
        """Return the logprobs and token ids to show with what is shown now; None where there are none."""
        queue, (text, edits) = self.queues.get(kind), said
        if queue is None:
            if choice.logprobs == NULL and choice.token_ids == NULL:
                return None
            queue = self.queues[kind] = LogprobQueue()
        told = queue.feed(choice.logprobs, choice.token_ids, text, channel.fed, channel.told, edits)
        if queue.empty and channel.told == channel.fed:
            del self.queues[kind]
        return told

    def late(self, patch: Patch | None, kind: str, channel: Filter, edits: Any) -> Patch | None:
        """The text has ended: put the logprobs that waited for it into the patch."""
        queue = self.queues.pop(kind, None)
        if queue is None:
            return patch
        patch = patch or Patch()
        hidden = self.hidden or bool(edits) or channel.blocked is not None
        patch.logprobs = queue.finish(channel.fed, channel.told, edits, patch.logprobs, hidden=hidden)
        return patch
