"""Puts the operator's words before the caller's, and keeps the model from reciting them."""

from plugins.system_prompt.plugin import SystemPrompt

__all__ = ["SystemPrompt"]
