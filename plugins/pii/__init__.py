"""Masks, blocks or tags personal data in requests and answers, also where a stream cuts it in two."""

from plugins.pii.plugin import Pii

__all__ = ["Pii"]
