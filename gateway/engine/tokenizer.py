"""A model's tokenizer and chat template, read from its own files: what a prompt counts is known without the engine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Tokens

from gateway.engine.template import ChatTemplate, OnlyTheEngineKnows

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
#: Names of special tokens, as templates know them.
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


Stamp = tuple[tuple[int, int] | None, ...]
"""Time of the last change in ns and length of each file, None for one that is not there."""


def files_of(folder: Path) -> tuple[Path, ...]:
    """Return the files that are read; a change of one of them changes counts."""
    return tuple(folder / name for name in (TOKENIZER, CONFIG, TEMPLATE))


def stamp(folder: Path) -> Stamp:
    """Look at the files: two stamps are equal where nothing has changed."""
    return tuple((seen.st_mtime_ns, seen.st_size) if (seen := _seen(file)) else None for file in files_of(folder))


class Tokenizer:
    """The files of one folder. Reading them takes a moment (68 ms for 50,000 tokens): not on the event loop.

    Raises ValueError, in one line that names the file, where one cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.stamp = folder, files_of(folder), stamp(folder)
        try:
            self.tokens = Tokens.from_file(str(folder / TOKENIZER))
        except Exception as error:  # noqa: BLE001 - it raises Exception itself, for whatever is wrong
            raise ValueError(f"{folder / TOKENIZER} cannot be used: {' '.join(str(error).split())}") from None
        self.padding, self.truncation = self.tokens.padding, self.tokens.truncation
        self.tokens.no_padding()  # both are for batches, and no engine leaves them on
        self.tokens.no_truncation()
        self.config = _config(folder / CONFIG)
        self.special = {name: _token(self.config[name]) for name in SPECIAL if self.config.get(name)}
        self._templates = {name: self._template(source) for name, source in self._sources().items()}

    def _sources(self) -> dict[str, str]:
        """Return the templates by name, as transformers finds them."""
        file, told = self.folder / TEMPLATE, self.config.get("chat_template")
        if file.is_file():
            return {"default": file.read_text("utf-8")}
        if isinstance(told, list):
            return {str(each.get("name")): str(each.get("template")) for each in told if isinstance(each, dict)}
        return {"default": told} if isinstance(told, str) else {}

    def _template(self, source: str) -> ChatTemplate:
        try:
            return ChatTemplate(source, self.special)
        except ValueError as error:
            file = self.folder / TEMPLATE
            raise ValueError(f"{file if file.is_file() else self.folder / CONFIG} {error}") from None

    def template(self, tools: Any = None) -> ChatTemplate | None:
        """Return the template for a chat with these tools."""
        named = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        return self._templates.get(named)

    def prompt(self, request: Mapping[str, Any]) -> str:
        """Return the text that the engine would make of a chat. Raises OnlyTheEngineKnows."""
        template = self.template(request.get("tools"))
        if template is None:
            raise OnlyTheEngineKnows
        return template.render(request)

    def ids(self, request: Mapping[str, Any]) -> Sequence[int]:
        """Return the token ids of a request to ``/tokenize``, with ``prompt`` or ``messages``.

        Raises OnlyTheEngineKnows. It lets other threads run while it works.
        """
        told = request.get("prompt")
        text = told if isinstance(told, str) else self.prompt(request)
        # encode() would hold Python's lock all the while; of a batch, even of one, it is let go
        (encoded,) = self.tokens.encode_batch_fast([text], add_special_tokens=isinstance(told, str))
        return encoded.ids

    async def count(self, request: Mapping[str, Any]) -> int | None:
        """Count the tokens of a request to ``/tokenize``, off the event loop; None where only the engine can."""
        try:
            return len(await asyncio.to_thread(self.ids, request))
        except OnlyTheEngineKnows:
            return None


def _seen(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        told = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    return told if isinstance(told, dict) else {}


def _token(told: Any) -> str:
    """Return a token's text; it may stand there with its properties."""
    return str(told.get("content")) if isinstance(told, dict) else str(told)
