"""The programs that only Debian packages and that tests use for real: where they are, and how an nginx is run.

Where one is missing, the tests that need it are not run, and the end of the run lists them by name (tests/conftest.py);
in CI, which installs them all, that makes the run red. There is no other reason for which a test of ours is not run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import until

SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])


def tool(name: str) -> str:
    """Return a program's path; for tests that carry its ``needs``."""
    found = shutil.which(name, path=SEARCHED)
    assert found is not None, f"{name} is not installed"
    return found


def needs(*names: str, root: bool = False) -> pytest.MarkDecorator:
    """Mark tests that need these programs, and perhaps to be ``root``."""
    missing = [f"{name} is not installed" for name in names if shutil.which(name, path=SEARCHED) is None]
    missing += ["nobody but root may"] if root and os.geteuid() != 0 else []
    return pytest.mark.skipif(bool(missing), reason=", ".join(missing))


def listens(port: int) -> bool:
    """Tell whether somebody does."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def running_nginx(configuration: str, port: int, folder: Path) -> Iterator[None]:
    """Run an nginx that listens at ``port``."""
    file = folder / "nginx.conf"
    file.write_text(configuration)
    process = subprocess.Popen([tool("nginx"), "-c", file, "-p", folder, "-e", "stderr"])
    try:
        until(lambda: listens(port), otherwise="nginx does not listen")
        yield
    finally:
        process.terminate()
        process.wait(10)
