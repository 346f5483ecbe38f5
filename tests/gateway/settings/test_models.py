"""The shape of the configuration and what it fills in by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.settings.models import EngineEntry, EngineSettings, Key, LimitsSettings, Model, Settings
from gateway.upstream.origin import Origin

MODELS = [{"name": "m", "engines": [{"url": "http://127.0.0.1:8100"}]}]
DIGEST = "ab" * 32


def test_the_defaults_are_those_of_the_design() -> None:
    settings = Settings.model_validate({"models": MODELS})
    server, timeouts, model, engine = settings.server, settings.timeouts, settings.models[0], settings.engine
    assert (server.port, server.workers, server.max_body_bytes) == (8080, 1, 10_485_760)
    assert (server.media_hosts, server.metrics, server.heartbeat_s, server.drain_s) == ([], "open", 15, 120)
    assert (timeouts.connect_s, timeouts.first_token_s, timeouts.idle_s, timeouts.total_s) == (3, 120, 60, 1800)
    assert (model.max_output_tokens, model.max_in_flight, model.max_choices, model.max_prompts) == (1024, 64, 8, 64)
    assert (engine.model, engine.tensor_parallel, engine.gpu_memory_utilization, engine.args) == (None, "auto", 0.9, [])
    assert (settings.keys, settings.chain, model.isolate_prefix_cache) == ([], [], False)


def test_without_keys_only_this_machine_is_served() -> None:
    assert Settings.model_validate({"models": MODELS}).server.host == "127.0.0.1"
    key = {"name": "a", "sha256": DIGEST}
    assert Settings.model_validate({"models": MODELS, "keys": [key]}).server.host == "0.0.0.0"
    assert Settings.model_validate({"models": MODELS, "server": {"host": "::1"}}).server.host == "::1"


def test_engines_are_named_after_their_model() -> None:
    engines = [{"url": "http://a"}, {"url": "http://b", "name": "big", "served_model": "x"}, {"url": "http://c"}]
    model = Model.model_validate({"name": "m", "engines": engines})
    assert [engine.name for engine in model.engines] == ["m-0", "big", "m-2"]
    assert [engine.served_model for engine in model.engines] == ["m", "x", "m"]


def test_the_model_that_is_whatever_runs_has_no_served_name() -> None:
    (engine,) = Model.model_validate({"name": "*", "engines": [{"url": "http://a"}]}).engines
    assert (engine.name, engine.served_model) == ("engine-0", None)


def test_a_section_without_content_is_its_default() -> None:
    data = {"models": MODELS, "keys": None, "chain": None, "server": None, "timeouts": {"idle_s": None}}
    settings = Settings.model_validate(data)
    assert settings.keys == []
    assert settings.timeouts.idle_s == 60
    assert Model.model_validate({**MODELS[0], "max_output_tokens": None}).max_output_tokens is None


def test_secrets_do_not_show() -> None:
    engine = EngineEntry.model_validate({"name": "a", "url": "http://a", "api_key": "hunter2"})
    assert "hunter2" not in repr(engine)
    assert engine.api_key is not None
    assert engine.api_key.get_secret_value() == "hunter2"
    assert EngineEntry.model_validate({"url": "http://a", "api_key": ""}).api_key is None
    assert DIGEST not in repr(Key(name="a", sha256=DIGEST))


def test_flags_for_the_engine_may_be_written_as_numbers() -> None:
    assert EngineSettings.model_validate({"args": ["--max-num-seqs", 8, 0.5]}).args == ["--max-num-seqs", "8", "0.5"]


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


@pytest.mark.parametrize("key", ["sk-a\n", "sk-a\r\nx-evil: 1", " sk-a", "sk-\u00e9"])
def test_an_engines_key_that_no_header_can_hold_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValidationError, match="plain characters") as caught:
        EngineEntry.model_validate({"url": "http://a", "api_key": key})
    assert "sk-" not in str(caught.value)


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


@pytest.mark.parametrize(
    "digest", ["", "abc", "g" * 64, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
)
def test_only_a_real_digest_is_a_key(digest: str) -> None:
    with pytest.raises(ValidationError, match="sluice keys new"):
        Key(name="a", sha256=digest)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "http://x", "x" * 201])
def test_names_can_stand_in_logs(name: str) -> None:
    with pytest.raises(ValidationError):
        Key(name=name, sha256=DIGEST)
