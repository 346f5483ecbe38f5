"""Two hundred engines and a flood in virtual time: shares, waits and bounds of the policy classes of production."""

from __future__ import annotations

import dataclasses
from collections import Counter
from statistics import quantiles

import pytest

from tests.simulation.scenes import BATCH, DEATH, FAIR, PHASES
from tests.simulation.world import Asked, Scene, Told, World

assert DEATH.dies is not None
DEAD = DEATH.dies[0]


@pytest.fixture(scope="module")
def fair() -> Told:
    return World(FAIR).play()


@pytest.fixture(scope="module")
def batch() -> Told:
    return World(BATCH).play()


@pytest.fixture(scope="module")
def death() -> Told:
    return World(DEATH).play()


def flooded(told: Told, key: str, settle: float = 8.0) -> list[Asked]:
    """Return a key's requests that came in the flood, when it had settled."""
    return [asked for asked in told.asked if asked.caller.key == key and asked.came > PHASES[0] + settle]


def let_in(asked: list[Asked]) -> list[float]:
    return [each.wait for each in asked if each.wait >= 0]


def test_keys_that_flood_get_their_shares_within_a_few_per_cent(fair: Told) -> None:
    end = sum(PHASES)
    tokens: Counter[str] = Counter()
    for asked in fair.asked:
        if asked.wait >= 0 and PHASES[0] + 8 < asked.came + asked.wait < end:
            tokens[asked.caller.key] += asked.reserved
    whole = tokens["one"] + tokens["two"] + tokens["three"]
    parts = {key: tokens[key] / whole * 6 for key in ("one", "two", "three")}
    print(parts)
    assert parts["one"] == pytest.approx(1, rel=0.08)
    assert parts["two"] == pytest.approx(2, rel=0.08)
    assert parts["three"] == pytest.approx(3, rel=0.08)


def test_nobody_waits_longer_than_max_wait_s_and_a_turn(fair: Told) -> None:
    late = flooded(fair, "late", settle=0.0)
    until = sum(PHASES) - FAIR.policy.max_wait_s - 1
    assert len(late) > 50
    assert all(asked.wait >= 0 for asked in late if asked.came < until)
    assert max(let_in(late)) <= FAIR.policy.max_wait_s + 1.0


def test_batch_fills_what_is_free_and_people_do_not_notice_it(batch: Told) -> None:
    people, night = flooded(batch, "people"), flooded(batch, "night")
    assert all(asked.wait >= 0 for asked in people)
    assert quantiles(let_in(people), n=100)[-1] < 0.05
    assert let_in(night)
    assert max(batch.reserved.values()) > 0.8


@pytest.mark.parametrize("scene", ["fair", "batch", "death"])
def test_no_engine_ever_holds_more_than_it_can(scene: str, request: pytest.FixtureRequest) -> None:
    told: Told = request.getfixturevalue(scene)
    print(max(told.fullest.values()))
    assert max(told.fullest.values()) <= 1.0
    assert max(told.reserved.values()) <= 1.25  # for a moment after a death more is inside than there is room for


def test_engines_that_die_cost_what_ran_on_them_and_no_more(death: Told) -> None:
    running = [each for each in death.asked if each.wait >= 0 and not each.served and each.came + each.wait < DEAD]
    share = len(running) / len([each for each in death.asked if DEAD - 10 < each.came < DEAD])
    assert 0 < share < 0.2
    after = [each for each in death.asked if DEAD + 4 < each.came < sum(PHASES) - 8 and each.caller.key == "people"]
    assert all(each.wait >= 0 for each in after)
    assert quantiles(let_in(after), n=20)[-1] < 1.0


def test_the_same_seed_is_the_same_world() -> None:
    small = dataclasses.replace(FAIR, engines=10, phases=(3.0, 3.0))

    def played(scene: Scene) -> list[tuple[float, float]]:
        return [(asked.came, asked.wait) for asked in World(scene).play().asked]

    assert played(small) == played(small)
    assert played(small) != played(dataclasses.replace(small, seed=2))
