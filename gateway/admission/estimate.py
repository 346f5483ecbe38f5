"""How many tokens a request will take, learnt from what others of the same key took.

Callers name the most that an answer may have, and mostly name far too much; who reserves that leaves the engine half
empty. So the gate reserves what answers came to: for each model and key the mean and the mean deviation, moving, as TCP
does for its round trips (Jacobson, "Congestion Avoidance and Control", 1988): mean + 2 deviations covers about nine of
ten. Until something is known the most is taken.
"""

from __future__ import annotations

_NEWEST = 0.0625
_DEVIATIONS = 2.0
#: JSON of an English chat has about four bytes a token; the rest is learnt.
_TOKENS_A_BYTE = 0.25
#: A caller's own names make no memory: so many keys are told apart.
_KEYS = 10_000


class Moving:
    """Mean and mean deviation of what came lately."""

    __slots__ = ("deviation", "mean")

    def __init__(self, first: float) -> None:
        self.mean, self.deviation = first, first / 2

    def add(self, value: float) -> None:
        """Count one more."""
        off = value - self.mean
        self.mean += off * _NEWEST
        self.deviation += (abs(off) - self.deviation) * _NEWEST

    @property
    def high(self) -> float:
        """What few will exceed."""
        return self.mean + _DEVIATIONS * self.deviation


class _Learnt:
    """What the requests of a key came to: prompt tokens a byte, tokens an answer, and the share of the most."""

    __slots__ = ("density", "output", "share")

    def __init__(self, density: float) -> None:
        self.density = Moving(density)
        self.density.deviation = 0.0
        self.output: Moving | None = None
        self.share: Moving | None = None


class Estimate:
    """The estimates of one model, by key."""

    __slots__ = ("_keys", "window")

    def __init__(self) -> None:
        self.window: int | None = None  # the engine's, in tokens: a request cannot take more for a choice
        self._keys: dict[str | None, _Learnt] = {}

    def prompt(self, key: str | None, size: int) -> int:
        """Return the tokens of a request of ``size`` bytes."""
        learnt = self._keys.get(key)
        return int(size * (_TOKENS_A_BYTE if learnt is None else learnt.density.high)) + 1

    def tokens(self, key: str | None, size: int, most: int, choices: int = 1) -> int:
        """Return what to reserve: prompt and answers of a request of ``size`` bytes, ``most`` tokens over all choices.

        The prompt's blocks are shared by the choices, as vLLM shares them.
        """
        learnt = self._keys.get(key)
        if learnt is None:
            return self._within(int(size * _TOKENS_A_BYTE) + 1, most, choices)
        prompt = int(size * learnt.density.high) + 1
        if learnt.output is not None and learnt.share is not None:
            # Answers cut off at a small limit say nothing of a large one but that they fill it: hence the share.
            expected = max(learnt.output.high * choices, learnt.share.high * most)
            most = min(most, int(expected) + 1)
        return self._within(prompt, most, choices)

    def _within(self, prompt: int, answers: int, choices: int) -> int:
        return prompt + answers if self.window is None else min(prompt + answers, self.window * choices)

    def learn(self, key: str | None, size: int, most: int, choices: int, prompt: int, output: int) -> None:
        """Count a request that was answered to its end: the engine's own figures for prompt and all its answers."""
        learnt = self._keys.get(key)
        if learnt is None:
            if len(self._keys) >= _KEYS:
                self._keys.clear()
            learnt = self._keys[key] = _Learnt(prompt / size if size else _TOKENS_A_BYTE)
        elif size:
            learnt.density.add(prompt / size)
        if most:
            each, share = output / choices, min(1.0, output / most)
            if learnt.output is None or learnt.share is None:
                learnt.output, learnt.share = Moving(each), Moving(share)
            else:
                learnt.output.add(each)
                learnt.share.add(share)
