"""Answers a deterministic request a second time without an engine."""

from plugins.cache.plugin import Cache

__all__ = ["Cache"]
