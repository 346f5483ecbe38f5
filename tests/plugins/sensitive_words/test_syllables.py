"""Chinese characters are known by their syllables."""

from __future__ import annotations

from plugins.sensitive_words.syllables import SYLLABLES


def test_usual_characters_have_their_syllable() -> None:
    rows = SYLLABLES.split(" ")
    assert any(row.startswith("du") and "赌" in row for row in rows)
    assert any(row.startswith("hang") and "行" in row for row in rows)
