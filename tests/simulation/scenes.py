"""What is played: a calm time and then a flood, several keys, a batch flood, somebody unimportant, engines that die."""

from __future__ import annotations

from gateway.admission.gate import Rank
from tests.simulation.world import Caller, Scene

#: In the flood these three ask for far more than there is, and should get one, two and three parts of it.
ONE = Caller("one", (0.15, 1.2))
TWO = Caller("two", (0.15, 1.2), share=2.0, median=100)
THREE = Caller("three", (0.15, 2.5), share=3.0, median=400)
#: Unimportant and few: without aging they would wait for ever.
LATE = Caller("late", (0.02, 0.02), rank=Rank(priority=9))
#: Batch that takes what it can get.
NIGHT = Caller("night", (0.2, 0.6), rank=Rank(batch=True), median=600)

PHASES = (15.0, 30.0)
FAIR = Scene((ONE, TWO, THREE, LATE), engines=60, phases=PHASES)
#: A batch flood beside interactive callers who, by themselves, are no trouble.
BATCH = Scene((Caller("people", (0.1, 0.15)), NIGHT._replace(load=(0.2, 6.0))), engines=60, phases=PHASES)
#: A busy fleet of which a tenth dies at once.
DEATH = Scene((Caller("people", (1.0, 1.0)), NIGHT._replace(load=(0.1, 0.1))), phases=PHASES, dies=(20.0, 20))
#: All 50,000 requests a second: engines of eight cards.
FULL_KV_TOKENS = 1_500_000
