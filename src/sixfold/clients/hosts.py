"""Hosts that are probed for model servers: this machine, the container host, and configured ones."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
_DOCKER, _PODMAN = "host.docker.internal", "host.containers.internal"
LOOKUP_SECONDS = 1.0
_SELF = frozenset({LOOPBACK, "localhost", "::1"})
_MARKERS = ("/.dockerenv", "/run/.containerenv")
CACHE_SECONDS = 60.0


def container_host(table: Path = Path("/etc/hosts")) -> str:
    """Return the name of the container's host. Old versions of Podman define only a different name."""
    try:
        names = set(table.read_text("utf-8", "replace").split())
    except OSError:
        names = set[str]()
    return _PODMAN if _PODMAN in names and _DOCKER not in names else _DOCKER


CONTAINER_HOST = container_host()


def in_container() -> bool:
    """Return whether this process runs in a Docker or Podman container."""
    return any(Path(marker).exists() for marker in _MARKERS)


class ProbeHosts:
    """The hosts to probe. Names are resolved off the event loop, within one second.

    A result is cached for a minute. Outside a container, the name of the container host is resolved only
    once, to limit queries to the name server.
    """

    def __init__(self, configured: Sequence[str] = (), *, probe: bool = True) -> None:
        configured_hosts = dict.fromkeys(host.lower() for host in configured)
        names = (LOOPBACK, CONTAINER_HOST, *(host for host in configured_hosts if host not in _SELF))
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names)) if probe else ()
        self._cache: dict[str, tuple[float, bool]] = {}
        self._lookups: dict[str, asyncio.Task[bool]] = {}

    async def resolves(self, host: str) -> bool:
        """Return whether the name of a host resolves to an address."""
        if _is_address(host):
            return True
        cached = self._cache.get(host)
        if cached is not None and time.monotonic() < cached[0]:
            return cached[1]
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = self._lookups[host] = asyncio.create_task(_look_up(host))
            lookup.add_done_callback(lambda _done: self._lookups.pop(host, None))
        resolved = await asyncio.shield(lookup)
        is_final = host == CONTAINER_HOST and not resolved and not in_container()
        self._cache[host] = (float("inf") if is_final else time.monotonic() + CACHE_SECONDS), resolved
        return resolved

    async def reachable(self) -> tuple[str, ...]:
        """Return the hosts whose names resolve to an address, in order of preference."""
        resolved = await asyncio.gather(*(self.resolves(host) for host in self.names))
        return tuple(host for host, is_resolved in zip(self.names, resolved, strict=True) if is_resolved)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _look_up(host: str) -> bool:
    # A daemon thread does not delay the end of the process if a resolver takes half a minute.
    loop, result = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def set_result(resolved: bool) -> None:
        if not result.done():
            result.set_result(resolved)

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            resolved = True
        except (OSError, UnicodeError):
            resolved = False
        # The event loop may have been closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, resolved)

    threading.Thread(target=look_up, name=f"look-up-{host}", daemon=True).start()
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            return await result
    except TimeoutError:
        return False
