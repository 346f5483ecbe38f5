"""The shape of the configuration and what it fills in by itself."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.settings.models import EngineEntry, EngineSettings, Key, Model, Settings

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


@pytest.mark.parametrize("key", ["sk-a\n", "sk-a\r\nx-evil: 1", " sk-a", "sk-\u00e9"])
def test_an_engines_key_that_no_header_can_hold_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValidationError, match="plain characters") as caught:
        EngineEntry.model_validate({"url": "http://a", "api_key": key})
    assert "sk-" not in str(caught.value)


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
