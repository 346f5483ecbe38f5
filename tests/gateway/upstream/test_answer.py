"""The whole answer of the pull convenience: bounded, and told once."""

from __future__ import annotations

import asyncio

import pytest

from gateway.upstream.answer import Broken, Gather, Response


async def test_the_pieces_become_one_answer() -> None:
    gather = Gather(10, lambda: None)
    gather.on_head(200, [(b"a", b"b")])
    gather.on_data(b"01234")
    gather.on_data(b"56789")
    gather.on_end()
    assert await gather.answer == Response(200, [(b"a", b"b")], b"0123456789")


async def test_one_byte_over_the_limit_cancels_at_once() -> None:
    cancelled: list[bool] = []
    gather = Gather(10, lambda: cancelled.append(True))
    gather.on_head(200, [])
    gather.on_data(b"0123456789!")
    assert cancelled == [True]
    with pytest.raises(Broken) as failure:
        await gather.answer
    assert failure.value.kind == "too_large"


@pytest.mark.parametrize("end", ["well", "badly"])
async def test_nobody_left_to_tell_is_no_fault(end: str) -> None:
    gather = Gather(10, lambda: None)
    gather.answer.cancel()
    if end == "well":
        gather.on_end()
    else:
        gather.on_failure(Broken("broke_off", "x"))
    with pytest.raises(asyncio.CancelledError):
        await gather.answer
