"""Podman service for one test, on its own socket, with an image built from scratch."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import processes

IMAGE = "localhost/sixfold-probe"
# Seconds for one command, on a loaded machine.
_SECONDS = 240
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


# Numbers of Linux's headers, which Python 3.11 does not export.
_CLONE_NEWNET, _SIOCSIFFLAGS, _IFF_UP = 0x40000000, 0x8914, 1


class Podman:
    """Podman service on its own socket; `said` runs one of its commands."""

    def __init__(self, folder: Path) -> None:
        (folder / "containers.conf").write_text(CONFIGURATION)
        self.socket = folder / "podman.sock"
        self._folder = folder

    def output_of(self, *words: str) -> str:
        """Run a command and return its output; skip the test if this machine cannot run it."""
        result = processes.run([*self.command, *words], _SECONDS)
        if result.returncode:
            pytest.skip(f"podman {words[0]} cannot run here: {result.stderr.strip()[-300:]}")
        return result.stdout

    @property
    def command(self) -> list[str]:
        """Return the Podman command line with its storage in the test's folder."""
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

    def make(self) -> None:
        """Import the image with the probe as its only file; `podman build` may hang."""
        source, compiled = Path(__file__).parents[1] / "fakes" / "cog.c", self._folder / "cog"
        result = processes.run(["gcc", "-static", "-Os", "-w", str(source), "-o", str(compiled)])
        assert result.returncode == 0, result.stderr
        packed = self._folder / "image.tar"
        with tarfile.open(packed, "w") as archive:
            archive.add(compiled, "cog")
        changes = [f"--change={line}" for line in ('ENTRYPOINT ["/cog"]', "VOLUME /data")]
        self.output_of("import", "-q", *changes, str(packed), IMAGE)
        self.output_of("run", "--rm", "--entrypoint", "/cog", IMAGE, "--once")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Start the service and wait until it accepts requests; stop it and its containers at the end."""
        service = [*self.command, "system", "service", "--time=0", f"unix://{self.socket}"]
        process = processes.start(service, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            ends = time.monotonic() + processes.PATIENCE_SECONDS
            asking = ["podman", "--remote", "--url", f"unix://{self.socket}", "version"]
            # The service does not announce when it listens.
            while processes.run(asking).returncode:
                assert time.monotonic() < ends, "Podman's service does not answer"
            yield
        finally:
            processes.stop(process)
            # Podman leaves this mount behind.
            processes.run(["umount", "-q", str(self._folder / "store" / "overlay")])


@contextmanager
def network_namespace() -> Iterator[None]:
    """Move this thread, and the programs that it starts, to a network with its own loopback interface.

    Interfaces of containers come and go there. In the network of the tests, a browser would cancel its
    requests at each of these changes (`net::ERR_NETWORK_CHANGED`).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    original = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET):
            pytest.skip(f"needs a network namespace: {os.strerror(ctypes.get_errno())}")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        try:
            yield
        finally:
            assert libc.setns(original, _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(original)


@contextmanager
def running_service(prepare: Callable[[Podman], None] = Podman.make) -> Iterator[Podman]:
    """Yield Podman with an image and its service; skip the test if this machine cannot run it."""
    missing = [program for program in ("podman", "runc", "gcc", "iptables") if not shutil.which(program)]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs {missing[0]}" if missing else "needs root: rootless containers have no address")
    # Podman's own paths must be short.
    with network_namespace(), tempfile.TemporaryDirectory(prefix="pod") as folder:
        result = Podman(Path(folder))
        prepare(result)
        with result.serving():
            yield result
