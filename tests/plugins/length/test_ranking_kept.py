"""What the documentation claims of semantic cutting."""

from __future__ import annotations

import pytest

from loadtests.bench.length import kept


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("kind", ["report, English", "report, Chinese", "log", "manual"])
def test_what_is_said_once_is_kept_more_often_than_by_any_other_way(kind: str, share: float) -> None:
    found = kept(kind, share, 40)
    assert found["semantic"] > max(found["head"], found["tail"], found["random"])
