"""Control tokens of chat templates: those of the common families and a model's own, looked for in what will be left.

What cleaning removes may stand between a token's characters, or else removing it would make a token that nobody has
looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from plugins.clean_text.patterns import ESCAPES, OPEN_ESCAPES, REMOVED

#: ChatML, Llama, Phi, GLM, Qwen, Command, gpt-oss, DeepSeek in two forms. The others go by their names; <s> and </s>
#: are left alone unless they are the model's own: they are HTML too.
_NAME = "[^<>|｜\\s\\[\\]]"
_barred = re.compile(rf"<(?:[|｜]{_NAME}{{1,48}}[|｜]|unused[0-9]{{1,4}})>").match
_barred_begun = re.compile(rf"<(?:[|｜]{_NAME}{{0,48}}[|｜]?|unused[0-9]{{0,4}})?").fullmatch
FAMILIES = (
    # Llama 2, Mistral
    *("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CALLS]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[CALL_ID]"),
    # ChatGLM, Gemma, StarCoder and SmolLM
    *("[gMASK]", "[sMASK]", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<|turn>", "<turn|>"),
    *("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<reponame>", "<file_sep>"),
    *("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>"),
    *("<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>", "<commit_before>", "<commit_msg>"),
    *("<commit_after>", "[IMG_BREAK]", "[IMG_END]", "[BEGIN_AUDIO]", "<sop>", "<eop>", "<start_of_image>"),
    *("<end_of_image>", "<image_soft_token>", "<unused0>"),
)
#: Mistral's, and words as well: usage texts, BBCode, templates. They count in requests, where it costs a space.
WORDS = ("[ARGS]", "[IMG]", "[AUDIO]", "[PREFIX]", "[SUFFIX]", "[MIDDLE]", "[THINK]", "[/THINK]")
_KEPT = frozenset({"<s>", "</s>", *WORDS})  # in an answer, which may be HTML, or say how a program is called

_NARROW = range(0x21, 0x7F)
_WIDE = {code + 0xFEE0: chr(code) for code in _NARROW}
_BARRED_LENGTH = 52
_DEEP = 4  # characters of a name that are looked at before all of it is
_SHORTEST = 3  # of a model's own tokens; a shorter one is text

_removed = re.compile(f"{ESCAPES}|[{REMOVED}]+")
_any_removed = re.compile(f"[{REMOVED}\x1b\x9b]").search
_escape_begun = re.compile(rf"(?:{OPEN_ESCAPES})\Z").match

_HIDDEN = rf"(?:[{REMOVED}]|(?=[\x1b\x9b])(?!(?:{OPEN_ESCAPES})\Z)(?:{ESCAPES}))*+"
_OPEN = r"\Z|[\x1b\x9b]"  # only more text can tell

OPEN = -1


class Tokens:
    """The tokens to look for: the families' and ``own``. ``wide``: full-width forms too, which another step may fold.

    ``starts`` holds the characters with which one can begin.
    """

    __slots__ = ("_begun", "_lengths", "_names", "_stops", "_wide", "begins", "longest", "starts")

    def __init__(self, own: Iterable[str] = (), *, wide: bool = False) -> None:
        self._names = frozenset({*FAMILIES, *own})
        self._begun = frozenset(name[:end] for name in self._names for end in range(1, len(name)))
        #: By their first two characters: how long names are, the longest first.
        self._lengths = {
            start: sorted({len(name) for name in names}, reverse=True)
            for start, names in groupby(sorted(self._names), lambda name: name[:2])
        }
        self.longest = max(_BARRED_LENGTH, *map(len, self._names))
        self._wide = wide
        #: With these another token may begin, and this one goes no further: so every character is looked at once.
        self._stops = frozenset("<[＜［" if wide else "<[").difference(*(name[2:] for name in self._names))
        self.starts = frozenset({"<", *(name[0] for name in self._names)} | ({"＜", "［"} if wide else set()))
        self.begins = _begins(self._names, wide=wide)

    def look(self, text: str, at: int, *, final: bool) -> tuple[int, str]:
        """Return where the token ends that begins at a place, and its characters; OPEN where only more text can tell,
        0 where there is none.
        """
        seen, ends, is_all = self._seen(text, at, final=final)
        folded = seen.translate(_WIDE) if self._wide and not seen.isascii() else seen
        if is_all and not final and self._is_begun(folded):
            return OPEN, ""
        length = self._length(folded)
        return (ends[length - 1], seen[:length]) if length else (0, "")

    def is_open_after(self, text: str) -> bool:
        """Say whether a token may be under way at the end of a text that is clean."""
        text = _removed.sub("", text)
        return any(
            character in self.starts and self._is_begun(text[at:])
            for at, character in enumerate(text[-self.longest :], max(0, len(text) - self.longest))
        )

    def _is_begun(self, text: str) -> bool:
        return text in self._begun or _barred_begun(text) is not None

    def _length(self, text: str) -> int:
        barred = _barred(text)
        if barred is not None:
            return barred.end()
        lengths = self._lengths.get(text[:2], ())
        return next((length for length in lengths if length <= len(text) and text[:length] in self._names), 0)

    def _seen(self, text: str, at: int, *, final: bool) -> tuple[str, range | list[int], bool]:
        """Return what will be left of the text from a place on, as far as a token reaches, where each of its characters
        ends, and whether that is all there is.
        """
        end = at + self.longest
        if _any_removed(text, at, end) is None:
            return text[at:end], range(at + 1, end + 1), end >= len(text)
        seen: list[str] = []
        ends: list[int] = []
        while at < len(text) and len(ends) < self.longest:
            if not final and _escape_begun(text, at) is not None:
                return "".join(seen), ends, True
            gone = _removed.match(text, at)
            if gone is not None:
                at = gone.end()
                continue
            if len(ends) > 1 and text[at] in self._stops:
                break
            seen.append(text[at])
            at += 1
            ends.append(at)
        return "".join(seen), ends, at >= len(text)


def _begins(names: Iterable[str], *, wide: bool) -> str:
    """Write what says, behind the first character of a token, that one may begin there: few that can be none pass."""
    roots: dict[str, set[str]] = {"<": set()}
    for name in names:
        roots.setdefault(name[0], set()).add(name[1:_DEEP])

    def one(character: str) -> str:
        forms = character + chr(ord(character) + 0xFEE0) if wide and ord(character) in _NARROW else character
        return f"[{re.escape(forms)}]"

    def rest(tails: Iterable[str]) -> str:
        branches = [
            one(first) + rest({tail[1:] for tail in same})
            for first, same in groupby(sorted(tails), lambda tail: tail[:1])
            if first
        ]
        return f"{_HIDDEN}(?:{'|'.join([_OPEN, *branches])})" if branches else ""

    others = "＜＞［］" if wide else ""
    barred = rf"{_HIDDEN}[|｜](?:{_HIDDEN}[^<>|｜\s\[\]\x1b\x9b{others}]){{0,48}}+{_HIDDEN}(?:{_OPEN}|[|｜])"
    looks = [f"(?<={one(root)})(?={rest(tails)})" for root, tails in sorted(roots.items())]
    return "|".join([*looks, f"(?<={one('<')})(?={barred})"])


def own_tokens(folder: Path) -> frozenset[str]:
    """Read a model's own control tokens from its tokenizer. Raises ValueError with one line that names the file."""
    found: set[str] = set()
    read = False
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        if not file.is_file():
            continue
        read = True
        try:
            found.update(_special(json.loads(file.read_text("utf-8"))))
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{file}: is not a tokenizer's file: {' '.join(str(error).split())}") from None
    if not read:
        raise ValueError(f"{folder}: there is no tokenizer.json in it, and no tokenizer_config.json")
    return frozenset(found)


def _special(described: dict[str, Any]) -> Iterable[str]:
    tokens = [*(described.get("added_tokens") or ()), *(described.get("added_tokens_decoder") or {}).values()]
    for token in tokens:
        text = str(token["content"]).strip() if token.get("special") else ""
        if len(text) >= _SHORTEST and not text.isalnum():
            yield text


def removable(own: Iterable[str]) -> frozenset[str]:
    """Return those of a model's own tokens that are removed from answers."""
    return frozenset(own) - _KEPT
