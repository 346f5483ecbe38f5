"""A finding is one line."""

from __future__ import annotations

from gateway.engine.doctor.finding import fine, odd, wrong


def test_a_finding_is_one_line_with_its_mend() -> None:
    assert fine("disk", "9 GiB").line() == "fine   disk: 9 GiB"
    assert odd("disk", "1 GiB", "make room").line() == "odd    disk: 1 GiB; make room"
    assert wrong("port", "taken", "end it").line() == "wrong  port: taken; end it"
