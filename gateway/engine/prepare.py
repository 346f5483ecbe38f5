"""Gets the model: makes the default one, checks a directory, fetches from a hub."""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.engine import model as models
from gateway.engine.failure import CannotStart
from gateway.engine.machine import GIB
from gateway.engine.model import Model
from gateway.engine.process import end, lines, spawn
from gateway.engine.progress import Progress

DEFAULT = "SmolLM2-135M-Instruct"
DEFAULT_SERVED = "smollm2"
#: The default model takes 0.27 GB, and for a moment an older one may stand beside it.
_DEFAULT_DISK = GIB
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_SCRIPTS = Path(__file__).parent


def served_name(model: str | None) -> str:
    """Return the name clients use unless told otherwise: the directory's, or the hub's."""
    if model is None:
        return DEFAULT_SERVED
    return _directory(model).name if is_directory(model) else model


async def prepare(
    model: str | None, *, name: str, python: Path, cache: Path, environ: Mapping[str, str], progress: Progress
) -> Model:
    """Have the model in a directory and read it there.

    ``model`` is a directory, a hub's name, or None for the default, which is kept in ``cache``. Raises ``CannotStart``.
    """
    if model is None:
        directory = _directory(str(cache / DEFAULT))
        if models.faults(directory):
            await _make_default(directory, python, environ, progress)
    elif is_directory(model):
        directory = _directory(model)
    elif _HUB_NAME.fullmatch(model):
        progress.phase(f"fetching {model}")
        output = await _script(python, "fetch_model.py", model, environ, progress)
        directory = Path(output[-1] if output else "")
    else:
        raise CannotStart(f"{model!r} is neither a directory nor a hub's name (owner/model)")
    return models.read(directory, name)


def tokenizer_of(model: str | None, cache: Path) -> Path | None:
    """Return the folder to count tokens with as the engine does; None where it is not here yet, or has no fast one."""
    if model is not None and not is_directory(model):
        return None
    folder = _directory(model if model is not None else str(cache / DEFAULT))
    return folder if (folder / "tokenizer.json").is_file() else None


def is_directory(model: str) -> bool:
    """Tell a directory from a hub's name: it looks like one, or it is there."""
    return model.startswith(("/", "./", "../", "~")) or (model != "" and Path(model).is_dir())


def _directory(model: str) -> Path:
    return Path(model).expanduser().resolve()


async def _make_default(directory: Path, python: Path, environ: Mapping[str, str], progress: Progress) -> None:
    """Make it beside its place and move it there whole, so that a half-made one is never taken for a model."""
    progress.phase(f"making {DEFAULT} (once, about half a minute)")
    making = directory.with_name(f".making-{os.getpid()}-{directory.name}")
    try:
        _make_room(directory.parent)
        await _script(python, "make_smollm2.py", str(making), environ, progress)
        if found := models.faults(making):
            raise CannotStart(f"making {DEFAULT} left it unfinished: {'; '.join(found)}")
        if models.faults(directory):  # else somebody else was quicker
            shutil.rmtree(directory, ignore_errors=True)
            making.rename(directory)
    except OSError as failure:
        raise CannotStart(f"cannot keep the model in {directory.parent}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _make_room(cache: Path) -> None:
    """Have the directory, without what runs that were killed left in it, and enough disk."""
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob(".making-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    if (free := shutil.disk_usage(cache).free) < _DEFAULT_DISK:
        raise CannotStart(f"the model needs 1 GiB of disk, {free / GIB:.1f} GiB are free at {cache}")


async def _script(
    python: Path, script: str, argument: str, environ: Mapping[str, str], progress: Progress
) -> Sequence[str]:
    """Run one of our scripts in the engine's environment and return its last lines. Raises ``CannotStart``."""
    kept: deque[str] = deque(maxlen=20)
    process = await spawn([str(python), str(_SCRIPTS / script), argument], environ, grace_s=2)
    try:
        async for line in lines(process):
            if line:
                kept.append(line)
                progress.log_line(line)
    finally:
        status = await end(process, grace_s=2)
    if status:
        reason = kept[-1] if kept else f"exit status {status}"
        raise CannotStart(f"cannot get the model: {reason}", tuple(kept))
    return tuple(kept)
