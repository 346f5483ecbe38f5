"""What the gateway connects to is held to its form, told with the mend and without being repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.settings.models import EngineEntry, LimitsSettings
from gateway.upstream.origin import Origin


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:8100", "http://127.0.0.1:8100"),
        ("http://vllm:8000/", "http://vllm:8000"),
        ("http://vllm:8000/v1/", "http://vllm:8000"),
        ("https://host/prefix", "https://host/prefix"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://vllm.prod.:8000", "http://vllm.prod.:8000"),
        ("unix:/run/vllm.sock", "unix:/run/vllm.sock"),
        ("unix:///run/vllm.sock", "unix:/run/vllm.sock"),
    ],
)
def test_an_engines_address(url: str, kept: str) -> None:
    engine = EngineEntry.model_validate({"url": url})
    assert engine.url == kept
    Origin.parse(kept)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("vllm:8000", "has to be http://host:port"),
        ("ftp://vllm", "has to be http://host:port"),
        ("http://", "has to be http://host:port"),
        ("http://a b", "has to be http://host:port"),
        ("http://a..b", "has to be http://host:port"),
        ("http://" + "a" * 64, "has to be http://host:port"),
        ("http://vllm:0", "cannot be"),
        ("http://vllm:99999", "cannot be"),
        ("http://[::1", "cannot be"),
        ("http://u:secret@vllm", "api_key"),
        ("http://vllm?a=secret", "query"),
        ("http://vllm/#", "query or a fragment"),
        ("unix:run.sock", "absolute path"),
        ("unix:/", "absolute path"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused_without_being_repeated(url: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as caught:
        EngineEntry.model_validate({"url": url})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://:p@h:6379/1",
        "redis://h/",
        "redis://[::1]:6379/0",
        "unix:///s?db=1",
        "rediss://h?ssl_ca_certs=/ca.pem",
    ],
)
def test_an_address_of_redis(url: str) -> None:
    redis = LimitsSettings.model_validate({"redis": url}).redis
    assert redis is not None
    assert redis.get_secret_value() == url


@pytest.mark.parametrize(
    "option", ["foo=bar", "decode_responses=true", "socket_timeout=abc", "encoding=utf-16", "db=", "db=x", "timeout"]
)
def test_an_option_of_redis_that_would_break_what_we_do_with_it_is_refused(option: str) -> None:
    with pytest.raises(ValidationError, match="leave it out"):
        LimitsSettings.model_validate({"redis": f"redis://h/0?{option}"})


@pytest.mark.parametrize(
    "url", ["http://h", "redis:h", "redis://h:99999", "redis://h:0/0", "redis://h/first", "redis://[h"]
)
def test_an_address_of_redis_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="has to be redis://host:port/0"):
        LimitsSettings.model_validate({"redis": url})


@given(
    st.sampled_from(["http://", "https://", "unix:/", "unix:///", "http:", ""]),
    st.text("ab.:-_%[]@/?#1 \\é", max_size=12),
    st.sampled_from(["", ":80", "/v1", "/x/v1/", ":x"]),
)
def test_every_address_that_is_accepted_is_one_for_the_client_too(scheme: str, host: str, end: str) -> None:
    try:
        engine = EngineEntry.model_validate({"url": scheme + host + end})
    except ValidationError:
        return
    Origin.parse(engine.url)
