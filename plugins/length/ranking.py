"""In which order sentences are kept: first what is least like the others, by n-gram TF-IDF.

A long text says most things more than once; what it says once, in words of its own, is what cannot be spared. Words are
compared where a script parts them by spaces, pairs of characters where it does not (Chinese, Japanese, Thai): no
dictionary, no model.
"""

from __future__ import annotations

import math
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
    if len(parts) < 3:
        return list(range(len(parts)))
    vectors = _vectors([terms(part) for part in parts])
    whole: dict[str, float] = {}
    for vector in vectors:
        for term, weight in vector.items():
            whole[term] = whole.get(term, 0.0) + weight
    norm = math.sqrt(sum(weight * weight for weight in whole.values())) or 1.0
    unlike = [(len(vector) < _FEW, _dot(vector, whole) / norm) for vector in vectors]
    first = vectors[0]
    rest = sorted(range(1, len(parts) - 1), key=lambda at: (unlike[at][0], _dot(vectors[at], first), unlike[at], at))
    leading, others = rest[:outliers], rest[outliers:]
    return [0, len(parts) - 1, *leading, *sorted(others, key=lambda at: (*unlike[at], at))]


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
