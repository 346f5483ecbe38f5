"""What is compared: a URL with a model, or a model's name at one gateway, and what its requests carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from gateway.upstream.origin import Origin


@dataclass(frozen=True, slots=True)
class Target:
    """``label`` is what people gave; ``model`` empty: the only one there. Prices are of a million tokens."""

    label: str
    url: str
    model: str = ""
    key: str | None = field(default=None, repr=False)
    preset: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    price: tuple[float, float] | None = None

    def body(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what is sent for a case."""
        chosen = {"sluice": {"preset": self.preset}} if self.preset else {}
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": self.model, **request, **chosen, **stream}

    def cost(self, prompt: float, completion: float) -> float | None:
        """Return what so many tokens cost, where there is a price."""
        return None if self.price is None else (prompt * self.price[0] + completion * self.price[1]) / 1e6


def parse(given: str, url: str, key: str | None) -> Target:
    """Read ``URL[#model]`` or a model's name, with ``,preset=… ,key=… ,header=name:value ,price=IN/OUT`` behind it.

    ``url`` and ``key`` are of the gateway that bare names are models of. Raises ValueError.
    """
    where, *options = given.split(",")
    if not where.strip():
        raise ValueError("a target has no name: URL[#model], or a model's")
    address, _, model = where.partition("#") if "://" in where or where.startswith("unix:") else (url, "", where)
    Origin.parse(address)
    said: dict[str, Any] = {}
    headers = []
    for option in options:
        name, equals, value = option.partition("=")
        match name:
            case _ if not (value.isascii() and value.isprintable()):
                raise ValueError(f"{name}= has to be plain characters")
            case "preset" | "key" if value:
                said[name] = value
            case "price":
                said["price"] = _price(value)
            case "header" if ":" in value:
                headers.append((value.partition(":")[0].strip().lower(), value.partition(":")[2].strip()))
            case _:
                told = option if name != "key" else "key"
                raise ValueError(
                    f"{told!r}{'' if equals else ' without a value'}: preset=, key=, header=name:value, price=IN/OUT"
                )
    shown = ",".join([where, *(option for option in options if not option.startswith(("key=", "header=")))])
    return Target(shown, address, model, said.pop("key", key), headers=tuple(headers), **said)


def _price(value: str) -> tuple[float, float]:
    try:
        prompt, completion = (float(each) for each in value.split("/"))
    except ValueError:
        prompt = completion = -1.0
    if not (0 <= prompt < inf and 0 <= completion < inf):
        raise ValueError(f"price={value}: has to be IN/OUT, what a million tokens cost")
    return prompt, completion
