"""How an end is told."""

from __future__ import annotations

from gateway.protocol.filtering import Blocked, reason_of


def test_a_block_gives_its_own_reason_or_the_content_filters() -> None:
    assert reason_of(Blocked("list:3")) == "content_filter"

    assert reason_of(Blocked("phrase", finish_reason="stop")) == "stop"
