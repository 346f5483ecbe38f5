"""Real containers without a registry: podman as root, and a base image made of Debian's packages.

As a command it makes the base image, or says why no container can be had here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.chart import ROOT

BASE = "localhost/sluice/base:bookworm"
GATEWAY = "localhost/sluice/gateway:0.1.0"
PROBE, TRUE = "localhost/sluice/probe:1", "/usr/bin/true"
PACKAGES = "ca-certificates,python3,python3-venv,libnuma1,prometheus,redis-server"
CERTIFICATES = Path("/etc/ssl/certs")

CONFIGURATION = """
[engine]
cgroup_manager = "cgroupfs"
runtime = "plain"
runtime_supports_nocgroupv2 = ["plain"]
runtime_supports_json = ["plain"]
[engine.runtimes]
plain = ["{runtime}"]
[network]
network_backend = "netavark"
"""


@dataclass(frozen=True, slots=True)
class Podman:
    """podman with images, containers and a configuration of its own, under ``home``."""

    home: Path

    @property
    def command(self) -> Path:
        """The script that is podman as it is used here."""
        return self.home / "podman"

    def configure(self) -> None:
        """Write the configuration."""
        self.home.mkdir(parents=True, exist_ok=True)
        runtime = ROOT / "tests" / "deploy" / "runc-without-rlimits"
        configuration = self.home / "containers.conf"
        configuration.write_text(CONFIGURATION.format(runtime=runtime))
        self.command.write_text(
            f"#!/bin/sh\nCONTAINERS_CONF={configuration} exec /usr/bin/podman --storage-driver overlay"
            f' --root {self.home}/root --runroot {self.home}/run "$@"\n'
        )
        self.command.chmod(0o755)

    def fault(self) -> str | None:
        """Return why no container can be had here: some machines are containers that may have none inside."""
        if (fault := self._does_not_start()) is not None:
            return fault
        try:
            self.prepare()
        except (OSError, subprocess.SubprocessError) as fault:
            return f"no base image: {fault}"
        return None

    def _does_not_start(self) -> str | None:
        self.configure()
        with tempfile.TemporaryDirectory() as folder:
            linked = subprocess.run(["ldd", TRUE], capture_output=True, text=True, check=True).stdout
            for file in (TRUE, *re.findall(r"/\S+", linked)):
                Path(folder + file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, folder + file)
            tar = Path(folder, "image.tar")
            subprocess.run(["tar", "-C", folder, "-cf", tar, "usr", "lib64", "lib"], check=False, capture_output=True)
            made = self.run("import", "-q", str(tar), PROBE, check=False)
            done = made if made.returncode else self.run("run", "--rm", "--network", "none", PROBE, TRUE, check=False)
            self.run("rmi", "-f", PROBE, check=False)
        return (done.stdout + done.stderr).strip() or str(done.returncode) if done.returncode else None

    def prepare(self) -> None:
        """Write the configuration and make the base image, if they are not there."""
        self.configure()
        if self.run("image", "exists", BASE, check=False).returncode:
            tree = self.home / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            debian = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tree)]
            subprocess.run(debian, check=True, stdout=subprocess.DEVNULL, timeout=600)
            with subprocess.Popen(["tar", "-C", tree, "-c", "."], stdout=subprocess.PIPE) as packed:
                subprocess.run(
                    [self.command, "import", "-q", "-", BASE], stdin=packed.stdout, check=True, capture_output=True
                )
            assert packed.returncode == 0
            shutil.rmtree(tree)

    def build(self, dockerfile: Path, tag: str) -> None:
        """Build one of our images on the base image; pip inside reaches its index as it does outside."""
        done = self.run(
            *(
                "build",
                "--format",
                "docker",
                "--isolation",
                "chroot",
                "--network",
                "host",
                "--build-arg",
                f"BASE={BASE}",
            ),
            *("-v", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--env", f"PIP_CERT={CERTIFICATES}/ca-certificates.crt"),
            *("-f", str(dockerfile), "-t", tag, str(ROOT)),
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    def run(self, *arguments: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run podman."""
        done = subprocess.run([self.command, *arguments], capture_output=True, text=True, check=False, timeout=timeout)
        assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    def compose(self, *arguments: str, files: tuple[Path, ...], environ: Mapping[str, str]) -> str:
        """Run podman-compose."""
        named = [part for file in files for part in ("-f", str(file))]
        command = ["podman-compose", "--podman-path", str(self.command), "--in-pod", "false", *named, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environ}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


if __name__ == "__main__":
    sys.exit(Podman(ROOT / ".cache" / "containers").fault())
