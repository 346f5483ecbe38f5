"""Why an engine died: from vLLM's own words to the cause, the numbers, and the flags to change.

A table, most telling first. The messages are vLLM 0.32's and torch's; tests provoke those that a CPU engine can be made
to say. What no entry knows is told in the engine's own last words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "other processes", "weights", "KV cache", "activations", "fragmentation", "memory limit",
    "split", "context", "missing files", "dtype", "own code", "architecture", "port", "flags",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What it was, told with its numbers, and what to do."""

    cause: Cause
    told: str
    mend: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.cause}: {self.told}; {self.mend}"


@dataclass(frozen=True, slots=True)
class _Entry:
    cause: Cause
    pattern: re.Pattern[str]
    told: str  # with the pattern's groups
    mend: str | Callable[[re.Match[str]], str]


def _entry(cause: Cause, pattern: str, told: str, mend: str | Callable[[re.Match[str]], str]) -> _Entry:
    return _Entry(cause, re.compile(pattern, re.DOTALL), told, mend)


def _shorter(found: re.Match[str]) -> str:
    longest = re.search(r"estimated maximum model length is (\d+)", found.string)
    least = f"--max-model-len {longest[1]}" if longest else "a smaller --max-model-len"
    more = "more memory for the cache (--gpu-memory-utilization, --kv-cache-dtype fp8)"
    return f"{least}, or {more}; sluice plan computes it"


def _torch(found: re.Match[str]) -> Cause:
    """Tell the causes of a failed allocation apart: what others hold, what torch cannot use, or where it was."""
    unused = _mib(re.search(r"([\d.]+) (GiB|MiB) is reserved by PyTorch but unallocated", found.string))
    wanted = _mib(re.search(r"Tried to allocate ([\d.]+) (GiB|MiB)", found.string))
    others = sum(_mib(each) for each in re.finditer(r"Process \d+ has ([\d.]+) (GiB|MiB) memory in use", found.string))
    total = _mib(re.search(r"total capacity of ([\d.]+) (GiB|MiB)", found.string))
    if others > 0.1 * total > 0:
        return "other processes"
    if unused > wanted > 0:
        return "fragmentation"
    return "weights" if re.search(r"load_weights|load_model|Loading|create_weights", found.string) else "activations"


_MENDS: dict[Cause, str] = {
    "other processes": "end them (sluice doctor names them), or --gpu-memory-utilization 0.5",
    "fragmentation": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "weights": "a quantised checkpoint, or more cards (--tensor-parallel-size); sluice plan computes it",
    "activations": "a smaller --max-num-batched-tokens or --max-num-seqs, or --gpu-memory-utilization 0.85",
}

TABLE: tuple[_Entry, ...] = (
    _entry(
        "other processes",
        r"(?:Free|Available) memory on (?P<where>device \S+|node \d+) \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) "
        r"on startup is less than desired \w+ memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
        "{free} of {total} GiB are free on {where}, and {wanted} are to be taken",
        lambda found: (
            f"end what holds the rest (sluice doctor names it), or --gpu-memory-utilization "
            f"{max(0.05, int(float(found['free']) / float(found['total']) * 20) / 20):.2f}"
        ),
    ),
    _entry(
        "weights",
        r"requested memory for kv \((?P<left>-[\d.]+)/(?P<share>[\d.]+) GiB\)",
        "of the {share} GiB that the engine may take, weights and workers leave {left} for the KV cache",
        "a larger --gpu-memory-utilization (a share of the memory, on a CPU too)",
    ),
    _entry(
        "other processes",
        r"Available memory on (?P<where>node \d+) \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on kv cache allocation "
        r"is less than requested memory for kv \((?P<wanted>[\d.]+)",
        "{free} of {total} GiB are free on {where}, and the KV cache is to have {wanted}",
        "a smaller --kv-cache-memory-bytes (VLLM_CPU_KVCACHE_SPACE), or end what holds the rest",
    ),
    _entry(
        "KV cache",
        r"max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<have>[\d.]+) GiB\)",
        "one request of {length} tokens needs {needed} GiB of cache, and {have} are left for it",
        _shorter,
    ),
    _entry(
        "weights",
        r"No available memory for the cache blocks",
        "weights and activations leave nothing for the KV cache",
        "--gpu-memory-utilization 0.95, a quantised checkpoint, or more cards (-tp); sluice plan computes it",
    ),
    _entry(
        "activations",
        r"out of memory occurred when warming up (?:sampler|pooler) with (?P<count>\d+) dummy requests",
        "sampling for {count} requests at once has no room",
        lambda found: f"--max-num-seqs {max(1, int(found['count']) // 2)}, or --gpu-memory-utilization 0.85",
    ),
    _entry(
        "activations",
        r"(?:CUDA out of memory|OutOfMemoryError).*?Tried to allocate (?P<size>[\d.]+ \w+)",
        "{size} could not be had",
        "",
    ),
    _entry(
        "split",
        r"number of attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<degree>\d+)\)",
        "{heads} attention heads cannot be split over {degree}",
        lambda found: f"--tensor-parallel-size one of {', '.join(_divisors(int(found['heads'])))}",
    ),
    _entry(
        "context",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
        r"\((?P<key>\w+)=(?P<own>\d+)",
        "--max-model-len {asked} is longer than the model's context, {own} ({key})",
        "a smaller one; answers beyond what it was trained for are nonsense",
    ),
    _entry(
        "dtype",
        r"(?:torch\.)?(?P<dtype>\w+) is not supported for quantization method (?P<method>\w+)\. "
        r"Supported dtypes: \[(?P<dtypes>[^\]]*)\]",
        "{method} weights do not go with activations in {dtype}",
        lambda found: f"--dtype {found['dtypes'].split(',')[0].strip().removeprefix('torch.')}",
    ),
    _entry(
        "dtype",
        r"Bfloat16 is only supported on .*?compute capability of at least",
        "the card has no bfloat16",
        "--dtype float16",
    ),
    _entry(
        "dtype",
        r"dtype\.literal\[|argument --dtype: invalid choice",
        "there is no such dtype",
        "--dtype auto, bfloat16, float16 or float32",
    ),
    _entry(
        "missing files",
        r"Cannot find any model weights with `(?P<model>[^`]*)`",
        "no weights in {model}",
        "fetch the model again (hf download, git lfs pull)",
    ),
    _entry(
        "missing files",
        r"(?:does not appear to have a file named|no file named|No such file or directory:) '?(?P<file>[\w./-]*\w)",
        "{file} is missing",
        "fetch the model again; sluice doctor looks at the whole folder",
    ),
    _entry(
        "missing files",
        r"Can't load the (?:configuration|tokenizer)|Couldn't instantiate the backend tokenizer"
        r"|Invalid repository ID or local directory",
        "the model has no configuration or tokenizer that can be read",
        "fetch the model again; sluice doctor looks at the whole folder",
    ),
    _entry(
        "own code",
        r"trust_remote_code=True|contains custom code",
        "the model wants code of its own to be run",
        "read it, then --trust-remote-code after --",
    ),
    _entry(
        "architecture",
        r"Model architectures \[(?P<names>[^\]]*)\] (?:are not supported|failed to be inspected)",
        "this vLLM does not know {names}",
        "a newer vLLM, or another model",
    ),
    _entry(
        "architecture",
        r"model type `(?P<name>[^`]*)` but Transformers does not recognize",
        "this engine's transformers does not know the model type {name}",
        "a newer vLLM, or another model",
    ),
    _entry(
        "port",
        r"address already in use|Errno 98",
        "its port is taken",
        "leave --port out: sluice up chooses a free one",
    ),
    _entry(
        "flags",
        r"api_server\.py: error: (?P<what>[^\n]+)",
        "{what}",
        "see vllm serve --help=all",
    ),
)


def diagnose(lines: Sequence[str], status: int | None = None) -> Diagnosis | None:
    """Return what the last lines of an engine's log, and its exit status, say about its death; None: no entry knows."""
    text = "\n".join(lines)
    for entry in TABLE:
        if found := entry.pattern.search(text):
            named = {name: value for name, value in found.groupdict().items() if value is not None}
            told = entry.told.format_map(_Known(named))
            if not entry.mend:
                cause = _torch(found)
                return Diagnosis(cause, told, _MENDS[cause])
            return Diagnosis(entry.cause, told, entry.mend if isinstance(entry.mend, str) else entry.mend(found))
    if status in {137, -9}:
        mend = (
            "more memory for the container, or less for the engine: --kv-cache-memory-bytes, --max-num-batched-tokens"
        )
        return Diagnosis("memory limit", "most likely the kernel, for lack of memory", mend)
    return None


class _Known(dict[str, str]):
    """Names that a message did not have are left out."""

    def __missing__(self, key: str) -> str:
        return "?"


def _divisors(number: int) -> list[str]:
    return [str(each) for each in range(1, min(number, 16) + 1) if number % each == 0]


def _mib(found: re.Match[str] | None) -> float:
    return 0.0 if found is None else float(found[1]) * (1024 if found[2] == "GiB" else 1)
