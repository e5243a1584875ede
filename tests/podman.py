"""Podman's service for one test, on a socket of its own, with an image that was made from nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

IMAGE = "localhost/sixfold-probe"
CONFIGURATION = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
helper_binaries_dir = ["/usr/lib/podman", "/usr/libexec/podman"]
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=10000:10000"]
[network]
network_backend = "netavark"
"""


class Podman:
    """Podman's service on a socket of its own; `said` runs one of its commands."""

    def __init__(self, folder: Path) -> None:
        (folder / "containers.conf").write_text(CONFIGURATION)
        self.socket = folder / "podman.sock"
        self._folder = folder

    def said(self, *words: str) -> str:
        """What a command printed; skips the test where it cannot be done on this machine."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"podman {words[0]} cannot run here: {done.stderr.strip()[-300:]}")
        return done.stdout

    @property
    def command(self) -> list[str]:
        """Podman with its store in the test's folder."""
        configured = f"CONTAINERS_CONF={self._folder / 'containers.conf'}"
        return [
            "env",
            configured,
            "podman",
            "--root",
            str(self._folder / "store"),
            "--runroot",
            str(self._folder / "run"),
        ]

    def build(self) -> None:
        """The image: one program, and nothing else."""
        source = Path(__file__).parent / "fakes" / "cog.c"
        context = self._folder / "image"  # beside the store: a build that reads its own store may never end
        context.mkdir()
        subprocess.run(["gcc", "-static", "-Os", "-w", source, "-o", context / "cog"], check=True)
        (context / "Dockerfile").write_text('FROM scratch\nCOPY cog /cog\nENTRYPOINT ["/cog"]\n')
        self.said("build", "-q", "-t", "sixfold-probe", str(context))
        self.said("run", "--rm", "--entrypoint", "/cog", "sixfold-probe", "--once")


@contextmanager
def served() -> Iterator[Podman]:
    """Podman with the image, and its service; skips the test where that cannot be."""
    missing = [program for program in ("podman", "runc", "gcc", "iptables") if not shutil.which(program)]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs {missing[0]}" if missing else "needs root: rootless containers have no address")
    with tempfile.TemporaryDirectory(prefix="pod") as folder:  # Podman's own paths must be short
        made = Podman(Path(folder))
        made.build()
        service = [*made.command, "system", "service", "--time=0", f"unix://{made.socket}"]
        with subprocess.Popen(service, stderr=subprocess.DEVNULL) as process:
            try:
                asking = ["podman", "--remote", "--url", f"unix://{made.socket}", "version"]
                for _ in range(100):  # the service says nowhere that it listens
                    if not subprocess.run(asking, check=False, capture_output=True).returncode:
                        break
                yield made
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                mounted = Path(folder) / "store" / "overlay"  # which a service that is ended leaves
                subprocess.run(["umount", "-q", mounted], check=False, capture_output=True)
