"""How faults are told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.settings.faults import Source, Where, did_you_mean, explain, known_at, truths


class Listed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str
    action: str = "block"


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lists: list[str | Listed] = []
    max_skip: int = 3
    threshold: float | None = None


class Nested(BaseModel):
    more: Options = Options()
    many: tuple[Options, ...] = ()
    by_name: dict[str, int | float] = {}
    either: bool | int = 0
    text: dict[str, bool] = {}


def told(data: object) -> list[tuple[Where, str]]:
    try:
        Options.model_validate(data)
    except ValidationError as error:
        return explain(error, Options, data)
    return []


def test_a_place_is_written_as_people_write_it() -> None:
    source = Source("sluice.yaml", {("models",): 3, ("models", 0): 4})
    assert source.fault(("models", 0, "engines", 1, "url"), "is missing") == (
        "sluice.yaml:4: models[0].engines[1].url: is missing"
    )
    assert source.fault((), "is empty") == "sluice.yaml: is empty"


def test_a_value_from_elsewhere_is_told_by_that_name() -> None:
    source = Source("sluice.yaml", {("server", "port"): 3}, {("server", "port"): "SLUICE_SERVER__PORT"})
    assert source.fault(("server", "port"), "no") == "SLUICE_SERVER__PORT: no"


def test_faults_come_in_the_order_of_the_file() -> None:
    source = Source("f", {("a",): 9, ("b",): 2})
    assert source.faults([(("a",), "x"), (("b",), "y")]) == ["f:2: b: y", "f:9: a: x"]


def test_of_several_shapes_the_one_that_got_furthest_is_told() -> None:
    assert told({"lists": [{"pth": "x"}]}) == [
        (("lists", 0, "path"), "is missing"),
        (("lists", 0, "pth"), "unknown key; did you mean 'path'?"),
    ]


def test_shapes_that_all_fail_at_once_are_told_together() -> None:
    ((where, message),) = told({"lists": [7]})
    assert where == ("lists", 0)
    assert message == "has to be text (put it into quotes) or a mapping (key: value)"


def test_the_input_never_shows() -> None:
    lines = told({"lists": [{"path": 12345678}], "max_skip": "hunter2", "threshold": "hunter2"})
    assert lines
    assert not any("hunter2" in message or "12345678" in message for _, message in lines)


def test_the_nearest_known_word_is_offered_or_all_of_them() -> None:
    assert did_you_mean("prot", ["port", "host"]) == "did you mean 'port'?"
    assert did_you_mean("xyz", ["port", "host"]) == "known here: host, port"
    assert known_at(Options, ("lists", 0)) == {"path", "action"}


def test_true_and_false_are_no_numbers_wherever_they_stand() -> None:
    data = {
        "more": {"max_skip": True},
        "many": [{}, {"threshold": False, "max_skip": "4"}],
        "by_name": {"a": 1, "b": True},
        "either": True,
        "text": {"a": True},
    }
    assert list(truths(Nested.model_validate(data), data, ("chain", 0))) == [
        (("chain", 0, "more", "max_skip"), "has to be a number"),
        (("chain", 0, "many", 1, "threshold"), "has to be a number"),
        (("chain", 0, "by_name", "b"), "has to be a number"),
    ]
