"""Tokens are found as they will stand when the text is clean, and what only looks like one is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.clean_text.tokens import FAMILIES, OPEN, WORDS, Tokens, own_tokens, removable

COMMON = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>"),
    *("<｜begin▁of▁sentence｜>", "<｜User｜>", "<|START_OF_TURN_TOKEN|>", "<|channel|>", "<|eot|>", "<|im_user|>"),
    *("<unused94>", "<unused6241>"),
    *FAMILIES,
)


@pytest.mark.parametrize("token", COMMON)
def test_the_tokens_of_the_common_families_are_known(token: str) -> None:
    assert Tokens().look(f"a{token}b", 1, final=True) == (1 + len(token), token)
    for end in range(1, len(token)):
        assert Tokens().look(token[:end], 0, final=False) == (OPEN, "")
        assert Tokens().look(token[:end], 0, final=True)[0] == 0 or token[:end] in COMMON


@pytest.mark.parametrize(
    "text",
    [
        *("<|a b|>", "<||>", "<s>", "</s>", "[1]", "<| b |>", "<html>", f"<|{'x' * 60}|>", "<<EOF", "<-", "[x](y)"),
        *(
            "<unused>",
            "<unused12345>",
            "<unusedx>",
            "[ARGS]",
            "[IMG]",
            "<filename>",
            "<|> b",
            "<unk>",
            "[ INST]",
            "[inst]",
            "<a|b>",
            "<think>",
            "[PAD]",
            "x<|>y",
            "[",
            "<",
        ),
    ],
)
def test_what_only_looks_like_a_token_is_none(text: str) -> None:
    assert all(Tokens().look(text, at, final=True)[0] == 0 for at in range(len(text)) if text[at] in "<[")


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\0", "\x1b[31m", "\U000e0041", "\ufe0f", "\x9b0m", "\x1b]0;t\x07", "\0\u2066\0"]
)
@pytest.mark.parametrize("token", ["[INST]", "<|im_end|>", "<<SYS>>", "<end_of_turn>"])
def test_what_will_be_removed_from_between_hides_no_token(token: str, hidden: str) -> None:
    for at in range(1, len(token)):
        text = token[:at] + hidden + token[at:]
        assert Tokens().look(f"{text}!", 0, final=True) == (len(text), token)
        assert Tokens().look(text[: at + len(hidden)], 0, final=False) == (OPEN, "")


def test_full_width_forms_count_where_another_step_may_fold_them() -> None:
    for token in ("＜｜im_end｜＞", "＜|ｉｍ_end|>", "［INST］", "＜＜ＳＹＳ＞＞"):
        assert Tokens(wide=True).look(token, 0, final=True) == (len(token), token)
        assert Tokens().look(token, 0, final=True)[0] == 0


def test_a_models_own_tokens_are_found_whatever_they_begin_with() -> None:
    own = Tokens(["<s>", "]~b]", "[e~[", ">>TITLE<<"])
    for token in ("<s>", "]~b]", "[e~[", ">>TITLE<<"):
        assert own.look(token, 0, final=True) == (len(token), token)
        assert token[0] in own.starts
        assert own.is_open_after(f"x{token[:-1]}")
    assert not own.is_open_after("x")


def test_tokens_that_are_words_as_well_count_in_requests_alone() -> None:
    for token in WORDS:
        assert Tokens(WORDS).look(token, 0, final=True) == (len(token), token)
    assert removable([*WORDS, "[EOT]"]) == {"[EOT]"}


def test_the_longer_of_two_tokens_is_waited_for() -> None:
    two = Tokens(["<ab>", "<ab>c>"])
    assert two.look("<ab>", 0, final=False) == (OPEN, "")
    assert two.look("<ab>", 0, final=True) == (4, "<ab>")
    assert two.look("<ab>d", 0, final=False) == (4, "<ab>")
    assert two.look("<ab>c>d", 0, final=False) == (6, "<ab>c>")


def test_a_models_own_tokens_are_read_from_its_tokenizer(tmp_path: Path) -> None:
    added = [
        {"id": 1, "content": "<s>", "special": True},
        {"id": 2, "content": "<filename>", "special": True},
        {"id": 3, "content": "<think>", "special": False},
        {"id": 4, "content": " ", "special": True},
        {"id": 5, "content": "word", "special": True},
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}), "utf-8")
    assert own_tokens(tmp_path) == {"<s>", "<filename>"}
    decoder = {"9": {"content": "[EOT]", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}), "utf-8")
    assert own_tokens(tmp_path) == {"<s>", "<filename>", "[EOT]"}
    assert removable(own_tokens(tmp_path)) == {"<filename>", "[EOT]"}, "an answer may be HTML"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "there is no tokenizer.json in it"),
        ({"tokenizer.json": "{"}, "tokenizer.json: is not a tokenizer's file: "),
        ({"tokenizer.json": "[]"}, "tokenizer.json: is not a tokenizer's file: "),
        ({"tokenizer.json": '{"added_tokens": [1]}'}, "tokenizer.json: is not a tokenizer's file: "),
        (
            {"tokenizer_config.json": '{"added_tokens_decoder": 3}'},
            "tokenizer_config.json: is not a tokenizer's file: ",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ValueError, match=said) as caught:
        own_tokens(tmp_path)
    assert "\n" not in str(caught.value)
