"""What the plugin can be told: lists, inline entries, and how what they find is shown."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from gateway.sdk import ConfigPath, KeyName, ModelName, Options
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.wordlist import Action

Direction = Literal["request", "answer"]


class ListOptions(Options):
    """A word file, and what its entries mean unless they say otherwise. A line may say its own action and tag.

    ``keys`` and ``models``: only for exchanges of these. ``directions``: only there; else where the plugin looks.
    ``replacement``: what the action replace puts in a word's place.
    """

    path: ConfigPath
    action: Action = "block"
    tag: str | None = None
    replacement: str | None = None
    keys: frozenset[KeyName] | None = None
    models: frozenset[ModelName] | None = None
    directions: frozenset[Direction] | None = None
    encoding: str = "utf-8"

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("not an encoding that Python knows; utf-8 or gb18030 are usual") from None
        return encoding


class WordOptions(Options):
    """An entry in the configuration itself."""

    word: str
    action: Action | None = None
    tag: str | None = None
    replacement: str | None = None


class SensitiveWordsOptions(Options):
    """What to look for, and where."""

    lists: tuple[ListOptions, ...] = Field(default=(), description="word files; a plain path too, its action is block")
    words: tuple[str | WordOptions, ...] = Field(default=(), description="further entries, an entry alone is blocked")
    allow: tuple[str, ...] = Field(default=(), description="entries inside which no other counts")
    directions: frozenset[Direction] = Field(default=frozenset(("request", "answer")), description="where to look")
    max_skip: int = Field(default=3, ge=0, le=64, description="separators of several kinds skipped inside an entry")
    confusables: bool = Field(default=True, description="look-alikes of other scripts count where scripts are mixed")
    repeats: bool = Field(default=False, description="a run of one letter counts once: `shiiit` is `shit`")
    pinyin: bool = Field(default=False, description="Chinese entries match their pinyin too: `du bo` is 赌博")
    mask_char: str = Field(default="*", min_length=1, max_length=1, description="takes the place of each character")

    @property
    def folding(self) -> Folding:
        """How texts are read."""
        return Folding(self.max_skip, self.confusables, self.repeats, self.pinyin)

    @field_validator("lists", mode="before")
    @classmethod
    def _plain_paths(cls, lists: Any, _: ValidationInfo) -> Any:
        if isinstance(lists, list | tuple):
            return [{"path": one} if isinstance(one, str | Path) else one for one in lists]
        return lists
