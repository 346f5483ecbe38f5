"""Faults that show only when the sections are seen together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.settings import ConfigurationError, load

ENGINE = {"url": "http://127.0.0.1:8100"}
KEY = {"name": "a", "sha256": "ab" * 32}


def lines(tmp_path: Path, **sections: Any) -> list[str]:
    """Write a configuration, one section a line, and return the faults without the folder's name."""
    file = tmp_path / "sluice.yaml"
    sections = {"models": [{"name": "m", "engines": [ENGINE]}], **sections}
    file.write_text("".join(f"{name}: {value!r}\n" for name, value in sections.items()))
    try:
        load(file, {})
    except ConfigurationError as error:
        return [line.removeprefix(f"{file}:") for line in error.lines]
    return []


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"models": [{"name": "m", "aliases": ["n"], "engines": [ENGINE]}, {"name": "n", "engines": [ENGINE]}]},
            "1: models[1].name: 'n' is already taken: a model's name or alias leads to one model",
        ),
        (
            {"models": [{"name": "m", "aliases": ["m"], "engines": [ENGINE]}]},
            "1: models[0].aliases[0]: 'm' is already taken: a model's name or alias leads to one model",
        ),
        (
            {"models": [{"name": "m", "engines": [{**ENGINE, "name": "e"}, {**ENGINE, "name": "e"}]}]},
            "1: models[0].engines[1].name: 'e' is already taken: each engine needs a name of its own",
        ),
        (
            {"keys": [KEY, {**KEY, "sha256": "cd" * 32}]},
            "2: keys[1].name: 'a' is already taken: each key needs a name of its own",
        ),
        (
            {"keys": [KEY, {**KEY, "name": "b"}]},
            "2: keys[1].sha256: is the same key as 'a': sluice keys new makes another",
        ),
        ({"keys": [{**KEY, "models": ["n"]}]}, "2: keys[0].models[0]: there is no model 'n'; known here: m"),
        ({"keys": [{**KEY, "models": []}]}, "2: keys[0].models: names no model: leave it out for all of them"),
        (
            {"keys": [KEY], "chain": [{"plugin": "x", "keys": ["aa"]}]},
            "3: chain[0].keys[0]: there is no key 'aa'; did you mean 'a'?",
        ),
        ({"chain": [{"plugin": "x", "models": ["n"]}]}, "2: chain[0].models[0]: there is no model 'n'; known here: m"),
        (
            {"server": {"host": "0.0.0.0"}},
            (
                "2: server.host: 0.0.0.0 without keys would be open to everyone: "
                "add a key (sluice keys new --name NAME), or listen on 127.0.0.1"
            ),
        ),
        (
            {"server": {"metrics": "operator"}, "keys": [KEY]},
            "2: server.metrics: operator needs a key with role: operator",
        ),
        ({"server": {"port": 8100}}, "1: models[0].engines[0].url: is Sluice itself, which listens on port 8100"),
        (
            {"models": [{"name": "*", "aliases": ["x"], "engines": [ENGINE]}]},
            '1: models[0].name: the model "*" takes every name: it has to be the only one, without aliases',
        ),
    ],
)
def test_each_is_one_line_with_its_place(tmp_path: Path, sections: dict[str, Any], told: str) -> None:
    assert lines(tmp_path, **sections) == [told]


def test_a_tokenizer_lies_beside_the_configuration(tmp_path: Path) -> None:
    models = [{"name": "m", "engines": [ENGINE], "tokenizer": "tok"}]
    (line,) = lines(tmp_path, models=models)
    assert line == f"1: models[0].tokenizer: there is no tokenizer.json in {tmp_path / 'tok'}"
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "tokenizer.json").write_text("{}")
    assert lines(tmp_path, models=models) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
def test_loopback_needs_no_keys(tmp_path: Path, host: str) -> None:
    assert lines(tmp_path, server={"host": host}) == []


def test_keys_open_every_address(tmp_path: Path) -> None:
    assert lines(tmp_path, server={"host": "0.0.0.0"}, keys=[KEY]) == []


def test_beside_a_model_that_takes_every_name_no_other_can_be_named_for_it_would_match_nothing(tmp_path: Path) -> None:
    models, told = [{"name": "*", "engines": [ENGINE]}], 'the model "*" is all there is: leave '
    chain = [{"plugin": "sensitive_words", "models": ["foo"]}]
    assert told in "".join(lines(tmp_path, models=models, keys=[{**KEY, "models": ["anything"]}]))
    assert told in "".join(lines(tmp_path, models=models, chain=chain))
    assert lines(tmp_path, models=models, keys=[{**KEY, "models": ["*"]}]) == []
