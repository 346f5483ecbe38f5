"""Removes what no reader sees and every attacker uses: controls, bidi overrides, mark floods, template tokens."""

from plugins.clean_text.plugin import CleanText

__all__ = ["CleanText"]
