"""What a caller reads whose request was blocked: in the caller's language, and by the tag of the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: What plugins say, and the same in the other language that is shipped.
GENERIC = "The request was blocked by the content filter."
SHIPPED = {"en": GENERIC, "zh": "请求被内容过滤拦截"}

_RANGES = 20  # of an Accept-Language that are looked at

Texts = Mapping[str, str]
"""Language (lower case, as in BCP 47) to text."""


@dataclass(frozen=True, slots=True)
class Wording:
    """The configured texts. ``languages``: those of keys, by name; ``default``: where none that is wanted is known."""

    blocked: Texts = field(default_factory=dict)
    tags: Mapping[str, Texts] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)
    default: str = "en"

    def say(
        self, said: str, *, tag: str | None = None, accept: str | None = None, key: str | None = None
    ) -> tuple[str, bool]:
        """Return the text for a blocked request of which a plugin has ``said`` something, and whether it is configured.

        The first language counts that has a text: of Accept-Language (RFC 9110, 12.5.4), then the key's, then the
        default. In it the tag's text comes first. A text of the plugin's own stays where nothing is configured.
        """
        sources = [self.tags.get(tag, {}) if tag else {}, self.blocked, SHIPPED if said == GENERIC else {}]
        for language in (*_wanted(accept or ""), self.languages.get(key or "", ""), self.default):
            for source in sources:
                if text := _text(source, language):
                    return text, source is not SHIPPED
        return said, False


def _wanted(accept: str) -> Iterator[str]:
    """Yield the languages of an Accept-Language header, the most wanted first."""
    ranges: list[tuple[float, str]] = []
    for each in accept.split(",", _RANGES)[:_RANGES]:
        language, _, weight = each.partition(";")
        try:
            quality = float(weight.strip().lower().removeprefix("q=")) if weight else 1.0
        except ValueError:
            continue
        if 0 < quality <= 1:
            ranges.append((-quality, language.strip().lower()))
    yield from (language for _, language in sorted(ranges, key=lambda one: one[0]))


def _text(texts: Texts, language: str) -> str | None:
    """Look a language up, zh-hans-cn also as zh-hans and as zh (RFC 4647, 3.4)."""
    while language:
        if text := texts.get(language):
            return text
        language = language.rpartition("-")[0]
    return None
