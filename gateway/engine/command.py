"""From a model, a machine and wishes to vLLM's command line and environment. Pure: asks nothing, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.engine.failure import CannotStart
from gateway.engine.machine import GIB, Machine
from gateway.engine.model import Model
from gateway.engine.quantised import check

#: Requests of full length for which a CPU engine gets KV cache, where memory allows.
FULL_LENGTH = 8
#: No number of devices, and no port, is longer.
MOST_DIGITS = 9
#: What a vLLM worker takes beside weights and KV cache: on a CPU the interpreter and torch; on a card the context,
#: activations and captured graphs.
CPU_WORKER = GIB
CARD_WORKER = 2 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The ``engine`` section of the configuration and the flags after ``--``. None leaves the choice to us."""

    model: str | None = None
    tensor_parallel: int | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    args: tuple[str, ...] = ()

    def give(self, *flags: str) -> bool:
        """Tell whether one of vLLM's ``flags`` is among ``args`` (vLLM takes ``_`` for ``-`` and ``--flag=value``)."""
        return any(_spelled(word) in flags for word in self.args)

    def value(self, *flags: str) -> str | None:
        """Return what ``args`` give one of ``flags``, the last time, as vLLM reads it."""
        given = None
        for word, following in zip(self.args, (*self.args, "")[1:], strict=True):
            if _spelled(word) in flags:
                given = word.partition("=")[2] or following
        return given

    def number(self, *flags: str) -> int | None:
        """Return the value of one of ``flags`` that has to be a number. Raises ``CannotStart`` where it is none."""
        given = self.value(*flags)
        if given is None:
            return None
        if not (given.isascii() and given.isdecimal()) or len(given) > MOST_DIGITS or int(given) < 1:
            raise CannotStart(f"{flags[0]} {given!r}: has to be a whole number, more than 0")
        return int(given)


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: the words, the whole environment, and over how many devices the model is split."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    tensor_parallel: int


def build(
    model: Model, machine: Machine, wishes: Wishes, *, python: Path, port: int, environ: Mapping[str, str]
) -> Command:
    """Return the command. Raises ``CannotStart`` where the model cannot fit the machine.

    The engine listens on loopback, trusts no code from a model, and reports to nobody. ``wishes.args`` come last, so
    that vLLM lets them win; what we set beside them makes room where they say otherwise.
    """
    if wishes.give("--host", "--uds"):
        raise CannotStart(
            "the engine of sluice up listens on loopback, where no key is needed; leave out --host and --uds"
        )
    check(wishes.value("--quantization", "-q") or "", model.quantisation)
    degree = wishes.number("--tensor-parallel-size", "-tp") or wishes.tensor_parallel
    degree = degree or split(model, machine, wishes.gpu_memory_utilization)
    argv = [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model.source, "--served-model-name", model.name),
        *("--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log"),
        *("--tensor-parallel-size", str(degree)),
        # auto: the model's whole context, or as much of it as the KV cache holds for one request.
        *("--max-model-len", str(wishes.max_model_len or "auto")),
    ]
    settings = {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore", "VLLM_NO_USAGE_STATS": "1"}
    settings["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] = "0"  # a host that media may come from must not send it elsewhere
    if Path(model.source).is_absolute():
        settings["HF_HUB_OFFLINE"] = "1"  # all is here: nothing is to wait for a hub
    if machine.cards:
        argv += ["--gpu-memory-utilization", str(wishes.gpu_memory_utilization)]
    else:
        argv += _cpu_arguments(model, machine, wishes, degree, environ)
        settings |= _cpu_environment(machine, degree, wishes)
    # Ours are for the gateway alone, and may be secrets; the engine gets everything else, and what is set there wins.
    passed = {name: value for name, value in environ.items() if not name.startswith("SLUICE_")}
    return Command((*argv, *wishes.args), settings | passed, degree)


def split(model: Model, machine: Machine, utilization: float) -> int:
    """Choose the tensor parallel degree: 1 where the model fits, else the smallest that fits and divides its heads.

    On a CPU always 1: splitting one processor's cores only adds messages between them.
    """
    if not machine.cards:
        return 1
    card = min(machine.cards) * utilization
    allowed = [degree for degree in range(1, len(machine.cards) + 1) if divides(model, degree)]
    for degree in allowed:
        if model.weights / degree + CARD_WORKER <= card:
            return degree
    raise CannotStart(
        f"{model.name} has {model.weights / GIB:.1f} GiB of weights and {model.heads} heads: it does not fit "
        f"{len(machine.cards)} cards of {min(machine.cards) / GIB:.0f} GiB split over at most {allowed[-1]} "
        "(--tensor-parallel says otherwise)"
    )


def divides(model: Model, degree: int) -> bool:
    """Tell whether vLLM can split the model so: query heads evenly, key-value heads evenly or each several times."""
    kv_heads = model.kv_heads or model.heads
    return model.heads % degree == 0 and (not kv_heads or kv_heads % degree == 0 or degree % kv_heads == 0)


def kv_cache_bytes(model: Model, machine: Machine, wishes: Wishes, degree: int) -> int:
    """Return the KV cache of each worker on a CPU: for eight requests of full length, 1 GiB at least.

    A third of the free memory at most, and within ``gpu_memory_utilization`` of all of it.
    Raises ``CannotStart`` where the weights alone leave nothing.
    """
    share = machine.memory * wishes.gpu_memory_utilization
    room = min(machine.free, share) - model.weights - CPU_WORKER * degree
    if room <= 0:
        raise CannotStart(
            f"{model.name} needs {(model.weights + CPU_WORKER * degree) / GIB:.1f} GiB of memory, "
            f"{min(machine.free, share) / GIB:.1f} GiB are free"
        )
    given = wishes.value("--max-model-len") or ""
    length = int(given) if given.isdecimal() else wishes.max_model_len or model.context
    wanted = max(GIB, FULL_LENGTH * length * model.kv_per_token // degree)
    return int(min(wanted, machine.free / 3 / degree, room / degree))


def _cpu_arguments(
    model: Model, machine: Machine, wishes: Wishes, degree: int, environ: Mapping[str, str]
) -> Sequence[str]:
    eager = ("--enforce-eager",)  # compiling for the CPU takes minutes and wins little
    # An explicit size, so that vLLM neither takes 92 % of the memory nor refuses to start because that is not free.
    if "VLLM_CPU_KVCACHE_SPACE" in environ or wishes.give("--kv-cache-memory-bytes", "--gpu-memory-utilization"):
        return eager
    return (*eager, "--kv-cache-memory-bytes", str(kv_cache_bytes(model, machine, wishes, degree)))


def _cpu_environment(machine: Machine, degree: int, wishes: Wishes) -> dict[str, str]:
    """Choose threads: one core stays for the gateway and the engine's scheduler.

    vLLM's own choice binds threads to cores, which is right on a machine of its own with cores to spare. Under a
    quota, on a few cores or for several workers on one node it would fight over them (or refuse): there the kernel
    schedules, and we only say how many.
    """
    settings: dict[str, str] = {}
    if degree > 1 or machine.cores <= 4 or not machine.whole:
        settings |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(max(1, (machine.cores - 1) // degree)),
        }
    if not wishes.give("--no-enforce-eager", "--compilation-config", "-cc", "-O", "--optimization-level"):
        # Nothing else is compiled then, but a helper of logprobs: 13 s at its first use, and it wants a C++ compiler.
        settings["TORCHDYNAMO_DISABLE"] = "1"
    return settings


def _spelled(word: str) -> str:
    flag = word.partition("=")[0]
    if flag.startswith("--"):
        return flag.replace("_", "-")
    return next((short for short in ("-O", "-cc", "-tp") if flag.startswith(short)), flag)
