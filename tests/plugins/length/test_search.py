"""The longest candidate that fits is found with few measurements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugins.length.search import longest_fit


async def search(sizes: list[float]) -> tuple[int | None, int]:
    asked: list[int] = []

    async def measure(number: int) -> float:
        asked.append(number)
        return sizes[number]

    found = await longest_fit(measure, 0, len(sizes) - 1, sizes[-1])
    assert len(asked) == len(set(asked)), "nothing is measured twice"
    return found, len(asked)


@given(st.lists(st.floats(0.001, 0.4), min_size=2, max_size=300))
async def test_what_is_found_fits_and_is_nearly_full(growth: list[float]) -> None:
    sizes = [sum(growth[: end + 1]) for end in range(len(growth))]
    if sizes[-1] <= 1:
        return
    found, measured = await search(sizes)
    best = max((at for at, size in enumerate(sizes) if size <= 1), default=None)
    assert measured <= 12
    if best is None:
        assert found is None
    else:
        assert found is not None
        assert sizes[found] <= 1
        assert found == best or sizes[found] >= 0.97


async def test_a_text_of_even_density_takes_two_or_three() -> None:
    found, measured = await search([at / 2000 for at in range(30_001)])
    assert found is not None
    assert found >= 0.97 * 2000
    assert measured <= 3
