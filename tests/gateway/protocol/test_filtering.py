"""How an end is told."""

from __future__ import annotations

from typing import Any

from gateway.protocol.filtering import Blocked, Names, reason_of


def test_a_block_gives_its_own_reason_or_the_content_filters() -> None:
    assert reason_of(Blocked("list:3")) == "content_filter"

    assert reason_of(Blocked("phrase", finish_reason="stop")) == "stop"


class Exact:
    """Blocks the text "zebra" and no longer one, as a list does with whole words."""

    blocked: Any = None
    fed = told = 0

    def feed(self, text: str) -> tuple[str, list[Any]]:
        self.blocked = text if text == "zebra" else None
        return text, []

    def finish(self) -> tuple[str, list[Any]]:
        return "", []

    whole = feed


def test_each_piece_of_a_name_is_judged_and_what_it_makes_of_it() -> None:
    names = Names()
    assert [names.judged(0, piece, Exact) for piece in ("ze", "bra")] == [None, "zebra"]
    assert [names.judged(1, piece, Exact) for piece in ("ze", "zebra")] == [None, "zebra"]
    assert names.judged(2, "bra", Exact) is None
