"""What is compared, as it is written on the command line."""

from __future__ import annotations

import pytest

from gateway.compare.targets import parse

URL = "http://gateway:8080"


def test_a_url_with_a_model_and_what_its_requests_carry() -> None:
    found = parse("http://a:1/v1#m,preset=calm,key=sk,header=X-Canary: 1,price=0.5/1.5", URL, "other")
    assert (found.url, found.model, found.key, found.headers) == ("http://a:1/v1", "m", "sk", (("x-canary", "1"),))
    body = found.body({"messages": [], "max_tokens": 3})
    assert (body["model"], body["sluice"], body["stream"]) == ("m", {"preset": "calm"}, True)
    assert found.cost(2_000_000, 1_000_000) == 2.5
    assert "sk" not in found.label + repr(found)


def test_a_bare_name_is_a_model_of_the_gateway() -> None:
    found = parse("org/m-1", URL, "key")
    assert (found.url, found.model, found.key, found.label) == (URL, "org/m-1", "key", "org/m-1")
    assert "sluice" not in found.body({})
    assert found.cost(1, 1) is None


@pytest.mark.parametrize(
    "given",
    [
        "m,preset",
        "m,preset=",
        "m,colour=red",
        "m,header=x",
        "",
        " ,preset=calm",
        "m,price=1",
        "m,price=nan/1",
        "m,price=1/inf",
        "m,price=-1/1",
        "ftp://x#m",
        "m,key=",
        "m,key=ü",
    ],
)
def test_what_means_nothing_is_refused_and_keys_are_not_repeated(given: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse(given, URL, None)
