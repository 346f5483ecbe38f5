"""The command that says beforehand whether a model fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli.command import WRONG, Commands, Stopped

if TYPE_CHECKING:
    import argparse

    from gateway.engine.plan import Machine, Plan, Wanted
    from gateway.engine.shape import Shape


#: Lengths of requests that people ask about.
USUAL = (1024, 4096, 16384, 65536)
#: No number on the command line is larger, and no name longer.
MOST, LONGEST = 10**15, 1024
#: What commands and values say where a bare config.json was given.
STAND_IN = "MODEL"


def add(commands: Commands) -> None:
    """Declare plan."""
    said = commands.add("plan", plan, "Say whether a model fits a machine, and with which flags.", config=False)
    said.add_argument("model", metavar="MODEL", help="a folder, a config.json, or a hub's name that is in the cache")
    said.add_argument(
        "--gpu", metavar="NAME", help="a card such as H100, or its memory: 96GB (default: this machine's)"
    )
    said.add_argument("--gpus", metavar="N", type=int, help="how many of them (default: as many as are here, or 1)")
    said.add_argument("--cpu", metavar="GB", type=float, help="no card, but so many GB of memory")
    said.add_argument("--max-model-len", metavar="N", type=int, help="longest prompt and answer (default: the model's)")
    said.add_argument(
        "-tp", "--tensor-parallel", metavar="N", type=int, help="cards to split it over (default: fewest)"
    )
    said.add_argument("-pp", "--pipeline-parallel", metavar="N", type=int, default=1, help="stages, one a node")
    said.add_argument("--kv-cache-dtype", metavar="TYPE", default="auto", help="fp8, or auto for the model's own")
    said.add_argument("--kv-cache-memory-bytes", metavar="N", type=int, help="of each worker, instead of what is left")
    said.add_argument("--block-size", metavar="N", type=int, help="tokens in a block (default: the engine's own)")
    said.add_argument("--gpu-memory-utilization", metavar="SHARE", type=float, default=0.9, help="(default: 0.9)")
    said.add_argument("--json", action="store_true", help="for machines")


def plan(arguments: argparse.Namespace) -> int:
    """Plan, and print what comes of it; the exit code is 2 where it does not fit."""
    from gateway.engine import plan as plans
    from gateway.engine.failure import CannotStart

    try:
        wanted = _wanted(arguments)
        machine = _machine(arguments)
        path = _config_of(arguments.model)
        checkpoint = _shape(path)
        shape = plans.loaded(checkpoint, machine)
        found = plans.plan(shape, machine, wanted)
    except (CannotStart, ValueError) as fault:
        raise Stopped([f"sluice plan: {fault}"]) from None
    others = [] if found.fits else list(plans.changes(shape, machine, wanted))
    notes = [*shape.notes, *_renamed(arguments.model, path)]
    if shape.dtype != checkpoint.dtype:
        notes.append(f"the checkpoint is in {checkpoint.dtype}; vLLM loads it in {shape.dtype}")
    model = STAND_IN if _renamed(arguments.model, path) else arguments.model
    if arguments.json:
        _print_json(shape, machine, found, others, model, notes)
    else:
        print("\n".join([*_told(shape, machine, found, arguments.model, model), *(f"note: {note}" for note in notes)]))
        for change in others:
            print(f"it fits with {change.said}: {_many(shape, change.plan)}")
            if not change.plan.wanted.quantisation or plans.while_loading(change.plan):  # else it is another checkpoint
                print(f"  {_command(change.plan, model)}")
        if not found.fits and not others:
            print("no change of one thing makes it fit: a smaller model, or larger cards")
    return 0 if found.fits else WRONG


def _renamed(said: str, path: Path) -> list[str]:
    """Say that a bare config.json is nothing that an engine could load."""
    if Path(said).expanduser() != path:
        return []
    return [f"{STAND_IN} stands for the folder or the hub's name that {said} is of"]


def _shape(path: Path) -> Shape:
    import msgspec

    from gateway.engine.failure import CannotStart
    from gateway.engine.shape import shape

    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as fault:
        raise CannotStart(f"{path}: cannot be read: {fault.strerror or fault}") from None
    except msgspec.MsgspecError as fault:
        raise CannotStart(f"{path}: not a JSON object: {fault}") from None
    return shape(config)


def _config_of(said: str) -> Path:
    """Find config.json: the file itself, in a folder, or in the hub's cache."""
    from gateway.engine.failure import CannotStart
    from gateway.settings import environment

    if not 0 < len(said.strip()) <= LONGEST:
        raise CannotStart(f"{said[:40]!r} is no name of a model")
    path = Path(said).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        return path / "config.json"
    environ = environment()
    home = Path(environ.get("HF_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache/huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{said.replace('/', '--')}" / "snapshots"
    if found := sorted(cache.glob("*/config.json"), key=lambda each: each.stat().st_mtime):
        return found[-1]
    raise CannotStart(f"{said!r} is no folder, no file, and not in the hub's cache; fetch its config.json first")


def _machine(arguments: argparse.Namespace) -> Machine:
    from gateway.engine.cards import Card, named
    from gateway.engine.machine import GIB, look
    from gateway.engine.plan import Machine
    from gateway.settings import environment

    if arguments.cpu is not None:
        return Machine(card=None, memory=int(arguments.cpu * GIB))
    if arguments.gpu is not None:
        ranks = (arguments.tensor_parallel or 1) * arguments.pipeline_parallel
        return Machine(card=named(arguments.gpu), count=arguments.gpus or ranks)
    here = look(environment())
    if here.cards:
        card = Card("this machine's card", min(here.cards), 0, fp8=True)
        return Machine(card=card, count=arguments.gpus or len(here.cards))
    return Machine(card=None, memory=here.free)


def _wanted(arguments: argparse.Namespace) -> Wanted:
    from gateway.engine.kv import KV_BYTES
    from gateway.engine.plan import Wanted

    if arguments.kv_cache_dtype not in {"auto", *KV_BYTES}:
        raise ValueError(f"--kv-cache-dtype {arguments.kv_cache_dtype!r} is none of auto, {', '.join(KV_BYTES)}")
    if not 0 < arguments.gpu_memory_utilization <= 1:
        raise ValueError("--gpu-memory-utilization is a share: over 0, at most 1")
    numbers = ("gpus", "cpu", "max_model_len", "tensor_parallel", "pipeline_parallel", "block_size")
    for name in (*numbers, "kv_cache_memory_bytes"):
        if (value := getattr(arguments, name)) is not None and not 0 < value < MOST:
            raise ValueError(
                f"--{name.replace('_', '-')} has to be more than 0{'' if value <= 0 else ', and a number'}"
            )
    return Wanted(
        length=arguments.max_model_len,
        tensor_parallel=arguments.tensor_parallel,
        pipeline_parallel=arguments.pipeline_parallel,
        kv_dtype=arguments.kv_cache_dtype,
        utilization=arguments.gpu_memory_utilization,
        kv_memory=arguments.kv_cache_memory_bytes,
        block=arguments.block_size,
    )


def _told(shape: Shape, machine: Machine, found: Plan, said: str, model: str) -> list[str]:
    from gateway.engine import kv
    from gateway.engine.machine import GIB

    def gib(size: float) -> str:
        return f"{size / GIB:.2f} GiB"

    kind = f", {shape.experts} experts" if shape.experts else ""
    how = f"{shape.quantisation.method}, {shape.quantisation.bits} bit" if shape.quantisation else shape.dtype
    where = f"{machine.count} x {machine.card.name}" if machine.card else "a CPU"
    a_token, a_block = kv.token_bytes(shape, found.cache), kv.block_bytes(shape, found.cache)
    block = found.cache.block
    lines = [
        f"{said}: {shape.layers} layers, {shape.attention}{kind}, context {shape.context}",
        f"on {where}, tensor parallel {found.tensor_parallel}, pipeline parallel {found.wanted.pipeline_parallel}:",
        f"  {gib(found.total):>12}  of each device for the engine ({found.wanted.utilization:.0%})",
        f"  {gib(found.weights):>12}  weights in {how}",
        f"  {gib(found.reserve):>12}  context, activations, logits, graphs (a reserve)",
        f"  {gib(found.kv_memory):>12}  KV cache: {a_token:,} bytes a token, {a_block:,} a block of {block}",
    ]
    if found.capacity is None:
        most = f"one request of at most {found.longest} tokens would" if found.longest else "not one request would"
        return [*lines, f"it does not fit: not one request of {found.length} tokens; {most}"]
    held = found.capacity
    return [
        *lines,
        f"it fits: {held.blocks:,} blocks, {held.tokens:,} tokens, {held.concurrency:.2f} times {found.length} tokens",
        f"at once, with a fifth left free: {_many(shape, found)}",
        f"  {_command(found, model)}",
        f"  vllm serve {model} {' '.join(_flags(found))}",
        *_yaml(machine, found, model),
    ]


def _many(shape: Shape, found: Plan) -> str:
    lengths = [*(length for length in USUAL if length < found.length), found.length]
    return ", ".join(f"{found.at_once(shape, length)} of {length} tokens" for length in lengths)


def _flags(found: Plan) -> list[str]:
    from gateway.engine.plan import flags

    return flags(found)


def _command(found: Plan, model: str) -> str:
    said = _flags(found)
    split = ""
    if found.tensor_parallel > 1:
        at = said.index("--tensor-parallel-size")
        del said[at : at + 2]
        split = f" -tp {found.tensor_parallel}"
    return f"sluice up --model {model}{split} -- {' '.join(said)}"


def _yaml(machine: Machine, found: Plan, model: str) -> list[str]:
    import yaml

    from gateway.engine.plan import values

    text = yaml.safe_dump(dict(values(found, machine, model)), sort_keys=False, default_flow_style=None, width=110)
    return ["Helm values:", *(f"  {line}" for line in text.splitlines())]


def _print_json(shape: Shape, machine: Machine, found: Plan, others: list[Any], model: str, notes: list[str]) -> None:
    import msgspec

    from gateway.engine import kv
    from gateway.engine.plan import values

    told = {
        "model": model,
        "fits": found.fits,
        "attention": shape.attention,
        "tensor_parallel": found.tensor_parallel,
        "length": found.length,
        "longest": found.longest,
        "weights_bytes": found.weights,
        "reserve_bytes": found.reserve,
        "kv_bytes": found.kv_memory,
        "token_bytes": kv.token_bytes(shape, found.cache),
        "block_bytes": kv.block_bytes(shape, found.cache),
        "block_size": found.cache.block,
        "capacity": found.capacity,
        "at_once": {
            length: found.at_once(shape, length) for length in (*USUAL, found.length) if length <= found.length
        },
        "flags": _flags(found),
        "helm": values(found, machine, model),
        "notes": notes,
        "changes": [{"change": each.said, "flags": _flags(each.plan)} for each in others],
    }
    print(msgspec.json.format(msgspec.json.encode(told)).decode())
