"""In which order sentences are kept: first what is least like the others, by TF-IDF or by embeddings.

A long text says most things more than once; what it says once, in words of its own, is what cannot be spared. Words are
compared where a script parts them by spaces, pairs of characters where it does not (Chinese, Japanese, Thai): no
dictionary, no model.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Sequence

#: Scripts without spaces between words: Thai, Lao, Burmese, Khmer, and the East Asian ones.
_UNPARTED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffef\U00020000-\U0003ffff"
_runs = re.compile(rf"([{_UNPARTED}]+)|[^\W{_UNPARTED}]+").finditer
_marks = re.compile(r"[\W_]+").sub

_READ = 400  # characters of a sentence
_FEW = 2  # with fewer terms it is a heading or a separator, and unlike everything


def terms(sentence: str) -> Counter[str]:
    """Count the words of a sentence, or its pairs of characters."""
    found: Counter[str] = Counter()
    for match in _runs(sentence[:_READ].casefold()):
        if match[1] is None:
            found[match[0]] += 1
        else:
            run = _marks("", match[0])
            found.update(run[at : at + 2] for at in range(max(1, len(run) - 1)) if run)
    return found


def ranked(parts: Sequence[str], outliers: int) -> list[int]:
    """Return the indices of all parts, the dearest first.

    First and last lead; then come the ``outliers`` that are least like the first, then the others, the least like the
    text as a whole before. What holds no words is last.
    """
    vectors = _vectors([terms(part) for part in parts])
    whole: dict[str, float] = {}
    for vector in vectors:
        for term, weight in vector.items():
            whole[term] = whole.get(term, 0.0) + weight
    first = vectors[0] if vectors else {}
    likeness = [(len(vector) < _FEW, _dot(vector, first), _dot(vector, whole)) for vector in vectors]
    return _order(likeness, outliers)


def ranked_by(vectors: Sequence[Sequence[float]], outliers: int) -> list[int]:
    """Return what ``ranked`` does, likeness being that of embeddings, one for each part."""
    units = [[value / length for value in vector] for vector in vectors if (length := math.hypot(*vector) or 1.0)]
    whole = [math.fsum(column) for column in zip(*units, strict=True)]
    return _order([(False, _cosine(unit, units[0]), _cosine(unit, whole)) for unit in units], outliers)


def _order(likeness: Sequence[tuple[bool, float, float]], outliers: int) -> list[int]:
    """Order parts by (is it hardly a sentence, how like is it to the first, how like to all)."""
    count = len(likeness)
    if count < 3:
        return list(range(count))

    def to_the_first(at: int) -> tuple[bool, float, float, int]:
        empty, first, whole = likeness[at]
        return empty, first, whole, at

    def to_the_whole(at: int) -> tuple[bool, float, int]:
        empty, _, whole = likeness[at]
        return empty, whole, at

    rest = sorted(range(1, count - 1), key=to_the_first)
    return [0, count - 1, *rest[:outliers], *sorted(rest[outliers:], key=to_the_whole)]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, one, other))


def _vectors(counted: Sequence[Counter[str]]) -> list[dict[str, float]]:
    """Weigh each term by its rarity, and bring each sentence to length 1."""
    among = Counter(term for counts in counted for term in counts)
    rarity = {term: math.log(len(counted) / count) + 0.01 for term, count in among.items()}
    vectors = []
    for counts in counted:
        weights = {term: (1 + math.log(count)) * rarity[term] for term, count in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        vectors.append({term: weight / length for term, weight in weights.items()})
    return vectors


def _dot(one: dict[str, float], other: dict[str, float]) -> float:
    if len(one) > len(other):
        one, other = other, one
    return sum(weight * other.get(term, 0.0) for term, weight in one.items())
