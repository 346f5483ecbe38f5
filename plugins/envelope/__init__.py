"""Answers in a business system's own shape."""

from plugins.envelope.plugin import Envelope

__all__ = ["Envelope"]
