"""A model's folder: is it whole, what are its weights, does it bring tokenizer, template, defaults, code of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.engine import model as models
from gateway.engine.doctor.finding import Finding, fine, odd, wrong
from gateway.engine.failure import CannotStart, Uncounted
from gateway.engine.machine import GIB
from gateway.engine.shape import Shape, shape

#: What vLLM takes from generation_config.json as defaults of every request that says nothing.
DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens")


def look_at_model(folder: Path) -> Iterator[Finding]:
    """Look at everything in a model's folder."""
    if faults := models.faults(folder):
        for fault in faults:
            yield wrong("model", f"{folder}: {fault}", "fetch it again (hf download, git lfs pull)")
        return
    config = _json(folder / "config.json")
    try:
        its = shape(config)
        yield weights(folder, its)
        yield precision(its)
    except Uncounted as fault:
        yield odd("weights", str(fault), "sluice plan and this command know nothing of its size")
    except CannotStart as fault:
        yield wrong("model", str(fault), "another checkpoint, or mend config.json")
        return
    yield tokenizer(folder)
    yield template(folder)
    yield generation(folder)
    yield remote_code(config)


def weights(folder: Path, its: Shape) -> Finding:
    """Whether they are safetensors, and as large as the shape says."""
    files = models.weight_files(folder)
    size = sum(path.stat().st_size for path in files)
    told = f"{len(files)} files, {size / GIB:.2f} GiB, {its.layers} layers, {its.attention}"
    if files and files[0].suffix != ".safetensors":
        mend = "a checkpoint in safetensors: pickles run code when they are read, and load slowly"
        return odd("weights", f"{told}, pickled ({files[0].name})", mend)
    wanted = its.weight_bytes()
    if not 0.7 < size / wanted < 1.5:
        mend = "does config.json belong to these weights?"
        return odd("weights", f"{told}; by its shape it should be {wanted / GIB:.2f} GiB", mend)
    return fine("weights", told)


def precision(its: Shape) -> Finding:
    """Whether dtype and quantisation go together."""
    if its.quantisation is None:
        if its.dtype == "float32":
            mend = "convert it: vLLM loads it in bfloat16"
            return odd("dtype", "float32: twice the disk and the time to load for nothing", mend)
        return fine("dtype", its.dtype)
    how = its.quantisation
    told = f"{how.method}, {how.bits} bit" + (f", groups of {how.group}" if how.group else "")
    if how.method in {"awq", "gptq"} and its.dtype == "bfloat16":
        return odd(
            "dtype", f"{told}, activations in bfloat16", "--dtype float16 where the kernels of the card ask for it"
        )
    return fine("dtype", f"{told}, activations in {its.dtype}")


def tokenizer(folder: Path) -> Finding:
    """Whether there is a fast one, and how special tokens are set."""
    if not (folder / "tokenizer.json").is_file():
        found = next(name for name in models.TOKENIZERS if (folder / name).is_file())
        mend = "convert it (AutoTokenizer.from_pretrained(…).save_pretrained): the gateway counts with tokenizer.json"
        return odd("tokenizer", f"only {found}, no tokenizer.json", mend)
    config = _json(folder / "tokenizer_config.json")
    missing = [name for name in ("eos_token",) if not config.get(name)]
    if missing:
        return odd(
            "tokenizer", f"tokenizer_config.json has no {missing[0]}", "answers may not end: set it as the makers do"
        )
    return fine("tokenizer", "tokenizer.json and its special tokens")


def template(folder: Path) -> Finding:
    """Whether chats can be rendered."""
    if (folder / "chat_template.jinja").is_file() or _json(folder / "tokenizer_config.json").get("chat_template"):
        return fine("chat template", "the model brings one")
    mend = "a chat-tuned checkpoint, or --chat-template FILE; without one /v1/chat/completions answers 400"
    return odd("chat template", "none", mend)


def generation(folder: Path) -> Finding:
    """What is sampled with where a request says nothing."""
    said = {name: value for name, value in _json(folder / "generation_config.json").items() if name in DEFAULTS}
    if not said:
        return fine("generation defaults", "none: temperature 1, top_p 1")
    told = ", ".join(f"{name} {value}" for name, value in said.items())
    if (penalty := said.get("repetition_penalty", 1)) and isinstance(penalty, int | float) and penalty > 1.3:
        return odd(
            "generation defaults", told, "a repetition_penalty over 1.3 garbles JSON and code: models[].sampling"
        )
    return fine("generation defaults", f"{told} (vLLM takes them where a request says nothing)")


def remote_code(config: Mapping[str, Any]) -> Finding:
    """Whether the model wants code of its own to be run."""
    if config.get("auto_map"):
        mend = "read it; vLLM often has the architecture itself, else --trust-remote-code after --"
        return odd("remote code", f"config.json names code of its own ({', '.join(config['auto_map'])})", mend)
    return fine("remote code", "none wanted")


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}
