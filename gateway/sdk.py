"""All that a plugin may import.

A plugin is a subclass of Plugin with Options and any of the hooks; requests pass the chain from top to bottom, answers
from bottom to top. Every hook but ``text_filter`` may be ``def`` or ``async def``; a plain ``def`` is the cheap one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, BaseModel

from gateway.errors import ContentFiltered, Failure, Refused
from gateway.protocol.filtering import Blocked, Channel, Edit, TextFilter
from gateway.protocol.reading import WIDE_MARKS, Reading
from gateway.protocol.surface import answer_texts, choices, put, request_texts
from gateway.protocol.text import Text
from gateway.record import Hit, Listing, Record, Run, Shape

__all__ = [
    "WIDE_MARKS", "Answer", "Blocked", "Channel", "ConfigPath", "ContentFiltered", "Edit", "Exchange", "Failure", "Hit",
    "KeyName", "Listing", "ModelName", "Options", "Plugin", "Reading", "Record", "Refused", "Reply", "Run", "Shape",
    "Text", "TextFilter",
]  # fmt: skip


class Options(BaseModel, frozen=True, extra="forbid"):
    """The base of a plugin's options: unknown names are refused, values cannot change."""


ConfigPath = Annotated[Path, AfterValidator(lambda path, info: Path((info.context or {}).get("base", ".")) / path)]
ModelName = Annotated[str, AfterValidator(lambda name, info: (info.context or {}).get("model", str)(name))]
KeyName = Annotated[str, AfterValidator(lambda name, info: (info.context or {}).get("key", str)(name))]
"""In options: a path, beside the configuration file if relative; a model of it (an alias becomes its name); a key."""
Prompt = str | Sequence[Mapping[str, Any]]  # a text, or the messages of a chat


class Answer:
    """A whole answer. ``body`` may be changed; of a stream that was ``shown`` it is a copy, put together to be read."""

    __slots__ = ("body", "route", "shown")

    def __init__(self, route: str, body: dict[str, Any], *, shown: bool = False) -> None:
        self.route, self.body, self.shown = route, body, shown

    def texts(self) -> list[Text]:
        """Return every text in the answer, with its place."""
        return answer_texts(self.route, self.body)

    def choices(self) -> list[dict[str, Any]]:
        """Return what was answered as a chat tells it, whatever the route: its own choices, or one made for it."""
        return choices(self.route, self.body)

    def put(self, choice: dict[str, Any]) -> None:
        """Write a choice that was changed (its content, the arguments of its calls) back into the body."""
        put(self.route, self.body, choice)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that a plugin gives itself: in ``on_request`` or instead of a failure."""

    body: dict[str, Any]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Host(Protocol):
    """What an exchange can ask of the gateway."""

    def ask(self, exchange: Exchange, request: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        """Send a request to its model and return the whole answer; raises Failure."""

    def count_tokens(self, exchange: Exchange, text: Prompt, tools: Sequence[Any] | None = None) -> Awaitable[int]:
        """Count a text, or rendered messages, with the model's tokenizer; raises Failure."""

    def embed(self, exchange: Exchange, model: str, texts: Sequence[str]) -> Awaitable[list[list[float]]]:
        """Return a vector for each text, from a model that makes embeddings; raises Failure."""

    def window(self, exchange: Exchange) -> int | None:
        """Return the length of the model's window in tokens, None where no engine has told it."""


class Exchange:
    """One request and what became of it. ``request`` is the parsed body, to be changed; ``body`` is it, to be read."""

    __slots__ = (
        "_reading", "_said", "_texts", "body", "extra", "filled", "first_token_s", "headers", "host", "id", "key",
        "model", "needs_whole_answer", "record", "reply", "route", "shape", "show_logprobs", "state", "stream",
    )  # fmt: skip

    def __init__(self, record: Record, request: dict[str, Any], headers: Mapping[str, str], host: Host) -> None:
        self.id, self.route, self.key, self.model = record.request_id, record.route, record.key, record.model or ""
        self.record, self.body = record, request
        self._texts: list[Text] | None = None
        self._said: list[str] | None = None
        self.headers, self.host = headers, host  # the caller's headers: lower-case names, without credentials
        self.stream = request.get("stream") is True
        self.reply: Reply | None = None  # set in on_request: answers at once, no engine is asked
        self.shape: Shape | None = None  # in which the answer will be told; None: OpenAI's
        self.first_token_s: float | None = None  # set in on_request: a stream's first token has to come sooner
        self.needs_whole_answer = False  # set in on_request: the caller waits until on_answer has seen the whole
        self.show_logprobs: int | None = None  # set by who asks for them: alternatives the caller wanted, -1: none
        self.extra: dict[str, Any] = {}  # told to the caller under "sluice"
        self.state: dict[str, Any] = {}  # a plugin's own, by its name
        self.filled: tuple[str, ...] = ()  # fields of the request that the gateway set because the caller had not

    @property
    def request(self) -> dict[str, Any]:
        """The parsed body. Whoever takes it may change it, so the texts are looked for anew afterwards."""
        self._texts = None
        return self.body

    @request.setter
    def request(self, request: dict[str, Any]) -> None:
        self._texts, self.body = None, request

    def texts(self) -> list[Text]:
        """Return every text in the request, with its place; editing one edits the request."""
        if self._texts is None:
            self._texts = request_texts(self.route, self.body)
        return self._texts

    def reading(self) -> Reading:
        """Return the texts as one, a line apart, and what is known of it: where that is clean, each of them is."""
        said = [text.text for text in self._texts or self.texts()]
        if said != self._said:
            self._said, self._reading = said, Reading("\n".join(said))
        return self._reading

    def tag(self, tag: str) -> None:
        """Add a soft tag: the caller sees it in x-sluice-tags or in the body's "sluice"."""
        if tag not in self.record.tags:
            self.record.tags.append(tag)

    def hit(self, hit: Hit) -> None:
        """Record that a rule fired, for metrics, log and audit."""
        self.record.hits.append(hit)

    def ask(self, request: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        """Send a request to the model again, within the exchange's deadline and budget."""
        return self.host.ask(self, request)

    def count_tokens(self, text: Prompt, tools: Sequence[Any] | None = None) -> Awaitable[int]:
        """Count a text (or a chat, rendered with these tools or the request's) with the model's tokenizer."""
        return self.host.count_tokens(self, text, tools)

    def embed(self, model: str, texts: Sequence[str]) -> Awaitable[list[list[float]]]:
        """Have a model of the gateway make a vector of each text."""
        return self.host.embed(self, model, texts)

    @property
    def window(self) -> int | None:
        """How many tokens prompt and answer may have together; None where no engine has told it."""
        return self.host.window(self)


class Plugin:
    """The base. ``__init__`` reads files and compiles, off the event loop; ValueError, in one line: what is wrong."""

    Options: ClassVar[type[Options]] = Options
    needs_whole_answer: bool = False  # of all its exchanges; may depend on the options
    timeout_s: ClassVar[float] = 5.0  # of its hooks that wait, where the configuration does not say
    shape: Shape | None = None
    name: str = ""  # set by the registry: the plugin's name in the configuration
    files: Sequence[Path] = ()  # a change of one of these reloads the configuration
    lists: Sequence[Listing] = ()  # what it goes by, for log, metrics and audit
    idle: Collection[str] = ()  # hooks that have nothing to do with these options; they are not called

    def __init__(self, options: Any) -> None:
        self.options = options

    def start(self) -> Awaitable[None] | None:
        """Acquire what the plugin needs on the event loop: sockets, tasks."""

    def stop(self) -> Awaitable[None] | None:
        """Give it back; also after a start that failed half-way."""

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Change the request, tag it, set ``exchange.reply``, or raise Refused."""

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:  # noqa: ARG002 - a hook's signature
        """Return a filter for this channel, or None, which costs nothing."""
        return None

    def is_clean(self, text: Reading) -> bool:  # noqa: ARG002 - a hook's signature
        """Say that a filter of this plugin would do nothing in a text that is whole; then none is made for it."""
        return False

    def on_answer(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        """Look at the whole answer; of a stream at its end, unless ``needs_whole_answer``."""

    def on_failure(self, exchange: Exchange, failure: Failure) -> Awaitable[Reply | None] | Reply | None:
        """Answer instead of the failure, or reshape it."""

    def on_complete(self, exchange: Exchange) -> Awaitable[None] | None:
        """The exchange is over, however it ended; ``exchange.record`` says how."""
