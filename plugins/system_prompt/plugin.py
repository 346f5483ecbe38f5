"""The plugin: its options, where the text is put, and which answers are watched for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from gateway.sdk import Channel, Exchange, Hit, Options, Plugin, Refused, TextFilter
from plugins.system_prompt.recital import Guarded, RecitalFilter
from plugins.system_prompt.template import compile_template

NAMES = ("date", "key.name", "model")

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_RESPONSES = "/v1/responses"
_MESSAGES = "/v1/messages"
#: Where a request says beside its messages what the system says.
_ASIDE = {_RESPONSES: "instructions", _MESSAGES: "system"}
_SYSTEM = ("system", "developer")
_BETWEEN = "\n\n"
_NO_TEXT = "Token ids and embeddings cannot follow the operator's text: send text."


class SystemPromptOptions(Options):
    """What is said, where, and how it is kept."""

    text: str = Field(min_length=1, description="the text; {date}, {key.name} and {model} are filled in")
    position: Literal["first", "merge"] = Field(
        default="first", description="a message of its own, or one with the system message that the caller begins with"
    )
    completions: bool = Field(default=True, description="also before the prompts of /v1/completions")
    timezone: str = Field(default="UTC", description="whose {date} it is, such as Asia/Shanghai")
    recital: Literal["mask", "off"] = Field(default="mask", description="what becomes of the text in answers")
    recital_run: int = Field(
        default=48, ge=6, description="letters in a row that make a recital; a Chinese character counts as three"
    )
    mask_char: str = Field(default="*", min_length=1, max_length=1, description="takes the place of each letter")


class SystemPrompt(Plugin):
    """Puts the operator's words before the caller's, and masks them in answers that recite them."""

    Options = SystemPromptOptions
    options: SystemPromptOptions

    def __init__(self, options: SystemPromptOptions) -> None:
        super().__init__(options)
        self._timezone = _zone(options.timezone)
        try:
            self._fill = compile_template(options.text, NAMES)
        except ValueError as error:
            raise ValueError(f"text: {error}") from error
        #: Days, keys and models make few texts; the last of them are kept ready.
        self._guarded = lru_cache(maxsize=64)(lambda text: Guarded(text, options.recital_run))

    def on_request(self, exchange: Exchange) -> None:
        """Put the text before what the caller says. Raises Refused for a prompt that is no text."""
        request = exchange.request
        if exchange.route == _CHAT:
            if not isinstance(request.get("messages"), list):
                return  # the engine says what is wrong with it
            text = self._text(exchange)
            request["messages"] = self._before(text, request["messages"])
        elif exchange.route in _ASIDE:
            text = self._text(exchange)
            self._aside(text, request, _ASIDE[exchange.route])
        elif exchange.route == _COMPLETIONS and self.options.completions:
            text = self._text(exchange)
            if request.get("prompt_embeds") is not None:
                raise Refused(_NO_TEXT, param="prompt_embeds")
            if (prompt := request.get("prompt")) is not None:  # else the engine says that it is missing
                request["prompt"] = _prefixed(text, prompt)
                exchange.state.setdefault("put_before", []).append(text + _BETWEEN)
        else:
            return
        if self.options.recital == "mask":
            guarded = self._guarded(text)
            exchange.state[self.name] = None if guarded.empty else guarded

    def _text(self, exchange: Exchange) -> str:
        return self._fill(
            {
                "date": lambda: datetime.now(self._timezone).date().isoformat(),
                "key.name": lambda: exchange.key or "",
                "model": lambda: exchange.model,
            }
        )

    def _before(self, text: str, messages: list[Any]) -> list[Any]:
        first = messages[0] if messages else None
        if self.options.position == "merge" and isinstance(first, dict) and first.get("role") in _SYSTEM:
            return [_merged(text, first), *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    @staticmethod
    def _aside(text: str, request: dict[str, Any], field: str) -> None:
        """Put the text before what the caller has the system say: there is one place for both."""
        said = request.get(field)
        if isinstance(said, list):
            request[field] = [{"type": "text", "text": text + _BETWEEN}, *said]
        elif said is None or isinstance(said, str):  # else the engine says what is wrong with it
            request[field] = text + _BETWEEN + said if said else text

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter | None:
        """Watch every channel of an answer to a request that had the text."""
        guarded: Guarded | None = exchange.state.get(self.name)
        if guarded is None:
            return None

        def report(start: int, end: int) -> None:
            where = f"choices[{channel.choice}].{channel.kind}"
            exchange.hit(Hit(self.name, "system_prompt:recital", "mask", "answer", None, where, start, end))

        return RecitalFilter(guarded, self.options.mask_char, report)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # there also where the machine has no time zones
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        raise ValueError(f"timezone: {name!r} is no time zone that this machine knows") from None


def _merged(text: str, message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": text + _BETWEEN}, *content]}
    return {**message, "content": text + _BETWEEN + content if isinstance(content, str) else text}


def _prefixed(text: str, prompt: Any) -> Any:
    """Put the text before a prompt, or before each of several."""
    if isinstance(prompt, str):
        return text + _BETWEEN + prompt
    if isinstance(prompt, list) and all(isinstance(each, str) for each in prompt):
        return [text + _BETWEEN + each for each in prompt]
    raise Refused(_NO_TEXT, param="prompt")
