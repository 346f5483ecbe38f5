"""Asks as a caller of the load tests does, and prints what Locust was told; in a process that Locust may patch.

asking.py URL '[{"leaves_after": 2, "deadline": 10.0}, …]'
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from locust.env import Environment

from loadtests.scenarios import Chat
from loadtests.speaking import Manners


def main() -> None:
    url, said = sys.argv[1:]
    options = {"model": "smollm2", "key": "none", "max_tokens": 8, "timeout": 5.0}
    told: list[list[Any]] = []
    for each in json.loads(said):
        environment = Environment(user_classes=[Chat])
        environment.parsed_options = SimpleNamespace(**options, deadline=each.pop("deadline", 10.0))
        fired: list[Any] = []

        def hear(request_type: str, exception: Exception | None, into: list[Any] = fired, **_: object) -> None:
            into.append([request_type, None if exception is None else str(exception)])

        environment.events.request.add_listener(hear)  # type: ignore[no-untyped-call]  # Locust has no types there
        caller = Chat(environment)
        caller.host = each.pop("url", url)
        caller.on_start()
        caller.ask([{"role": "user", "content": "hi"}], Manners(**each))
        caller.on_stop()
        told.append(fired)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
