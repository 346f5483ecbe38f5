"""The tables have no chains and no Latin letters of their own to fold away."""

from __future__ import annotations

from plugins.sensitive_words.tables import LATIN, LOOKALIKES, SIMPLIFIED, STROKES, SYLLABLES


def test_what_is_read_as_something_is_not_read_as_something_else_again() -> None:
    assert set(SIMPLIFIED).isdisjoint(SIMPLIFIED.values())
    for table in (LOOKALIKES, LATIN, STROKES):
        assert all(plain.isascii() and plain.islower() for plain in table.values())
        assert not any(letter.isascii() for letter in table)


def test_usual_characters_are_in_the_tables() -> None:
    assert [SIMPLIFIED[old] for old in "賭線產門裡乾"] == list("赌线产门里干")
    assert [LOOKALIKES[letter] for letter in "аеорсухіѕјһοΑαօոꓢ"] == list("aeopcyxisjhoaaons")
    assert "du" in SYLLABLES
    assert "赌" in SYLLABLES
