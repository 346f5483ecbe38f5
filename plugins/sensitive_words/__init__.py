"""Blocks, masks or tags listed words in requests and answers, also where a stream cuts them in two."""

from plugins.sensitive_words.plugin import SensitiveWords

__all__ = ["SensitiveWords"]
