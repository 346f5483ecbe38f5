"""Answers that are JSON: checked against their schema, mended where that is safe, asked for again where it is not."""

from plugins.json_answer.plugin import JsonAnswer

__all__ = ["JsonAnswer"]
