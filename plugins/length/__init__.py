"""Sees that a prompt fits: refuses one that is too long and says by how much, or cuts it where the least is lost."""

from plugins.length.plugin import Length

__all__ = ["Length"]
