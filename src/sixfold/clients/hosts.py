"""Hosts that are probed for model servers: this machine, the host of a container, configured ones."""

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
# The name of the container's host in Docker and Podman.
CONTAINER_HOST = "host.docker.internal"
LOOKUP_SECONDS = 1.0
_SELF = frozenset({LOOPBACK, "localhost", "::1"})
_MARKERS = ("/.dockerenv", "/run/.containerenv")
_FRESH_SECONDS = 60.0


def in_container() -> bool:
    """Return whether this process runs in a Docker or Podman container."""
    return any(Path(marker).exists() for marker in _MARKERS)


class ProbeHosts:
    """The hosts to probe. Names are resolved off the event loop, within one second.

    A result is cached for a minute. Outside a container, the name of the container host is resolved only
    once, to spare the network's name server.
    """

    def __init__(self, configured: Sequence[str] = (), *, probe: bool = True) -> None:
        more = dict.fromkeys(host.lower() for host in configured)
        named = (LOOPBACK, CONTAINER_HOST, *(host for host in more if host not in _SELF))
        self.names: tuple[str, ...] = tuple(dict.fromkeys(named)) if probe else ()
        self._known: dict[str, tuple[float, bool]] = {}
        self._asking: dict[str, asyncio.Task[bool]] = {}

    async def resolves(self, host: str) -> bool:
        """Return whether a host has an address now."""
        if _is_address(host):
            return True
        known = self._known.get(host)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        asking = self._asking.get(host)
        if asking is None:
            asking = self._asking[host] = asyncio.create_task(_looked_up(host))
            asking.add_done_callback(lambda _done: self._asking.pop(host, None))
        found = await asyncio.shield(asking)
        lasting = host == CONTAINER_HOST and not found and not in_container()
        self._known[host] = (float("inf") if lasting else time.monotonic() + _FRESH_SECONDS), found
        return found

    async def reachable(self) -> tuple[str, ...]:
        """Return the hosts that have an address now, in order of preference."""
        found = await asyncio.gather(*(self.resolves(host) for host in self.names))
        return tuple(host for host, there in zip(self.names, found, strict=True) if there)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _looked_up(host: str) -> bool:
    # A daemon thread, as a resolver may take half a minute and must not hold up the end of the process.
    loop, found = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(there: bool) -> None:
        if not found.done():
            found.set_result(there)

    def ask() -> None:
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            there = True
        except (OSError, UnicodeError):
            there = False
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, there)

    threading.Thread(target=ask, name=f"look-up-{host}", daemon=True).start()
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            return await found
    except TimeoutError:
        return False
