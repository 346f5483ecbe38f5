"""Says your product's name where a model says its own."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from gateway.sdk import Channel, Edit, Exchange, Hit, Options, Plugin, Refused, TextFilter


class BrandOptions(Options):
    """Whose name is said, in the place of which."""

    ours: str = Field(description="The name to say.")
    theirs: tuple[str, ...] = Field(("ChatGPT", "SmolLM"), description="The names that models give themselves.")
    secret: bool = Field(False, description="Refuse requests that ask for one of them.")


class Brand(Plugin):
    """Says your product's name where a model says its own."""

    Options = BrandOptions
    options: BrandOptions

    def on_request(self, exchange: Exchange) -> None:
        """Refuse a request that names what is to stay secret."""
        for text in exchange.texts() if self.options.secret else ():
            for name in self.options.theirs:
                if name in text.text:
                    at = text.text.index(name)
                    exchange.hit(Hit(self.name, name, "block", "request", None, text.path, at, at + len(name)))
                    raise Refused("Please ask about something else.", param=text.path, rule=name)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        """Watch what the model says, not what it thinks or hands to tools."""
        return Renaming(self.options.theirs, self.options.ours) if channel.kind == "content" else None


class Renaming:
    """Replaces names in one channel; holds back only what may still become a name."""

    def __init__(self, names: Sequence[str], ours: str) -> None:
        self.names = sorted(names, key=len, reverse=True)
        self.ours = ours
        self.held = ""
        self.at = 0  # where the held text begins in the channel

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Take the next piece."""
        self.held += text
        return self._show(end=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Show what was held back."""
        return self._show(end=True)

    def _show(self, *, end: bool) -> tuple[str, Sequence[Edit]]:
        shown, edits, at = "", [], 0
        while at < len(self.held):
            rest = self.held[at : at + len(self.names[0])]
            if not end and any(name != rest and name.startswith(rest) for name in self.names):
                break
            found = next((name for name in self.names if rest.startswith(name)), "")
            if found:
                edits.append(Edit(self.at + at, self.at + at + len(found), self.ours))
            shown += self.ours if found else rest[0]
            at += len(found) or 1
        self.held = self.held[at:]
        self.at += at
        return shown, edits
