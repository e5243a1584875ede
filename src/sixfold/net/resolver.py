"""Names to addresses: asked once, answered once, in threads of its own."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sixfold.errors import FetchFailed, FetchRefused
from sixfold.net import urls
from sixfold.net.addresses import Address, AllowList

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Asks for the addresses of a name and a port; [] where there are none, OSError where asking failed."""

# One sentence for a name that does not exist and for one that exists only on our own network: two
# would let a stranger ask which internal names there are.
_NOT_PUBLIC = "This URL may not be fetched: its host has no public address, or its port is not 80 or 443."

_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
_ABSENT = frozenset((socket.EAI_NONAME, socket.EAI_NODATA))


class SystemLookup:
    """The C library's getaddrinfo. Its threads are its own: names that a stranger's name server
    answers slowly must not fill the pool in which the rest of the server works."""

    def __init__(self, *, threads: int = 16) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="sixfold-resolver")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _getaddrinfo, host, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Resolver:
    """Gives the addresses that a connection may be made to, or refuses the whole host."""

    def __init__(
        self, allow: AllowList, lookup: Lookup | None = None, *, timeout_seconds: float = 5.0
    ) -> None:
        self._allow = allow
        self._system: SystemLookup | None = None
        if lookup is None:
            lookup = self._system = SystemLookup()
        self._lookup = lookup
        self._timeout_seconds = timeout_seconds

    async def resolve(self, host: str, port: int) -> tuple[Address, ...]:
        """Every address of a host, all of them allowed on this port; FetchRefused if one is not."""
        spelled = urls.literal(host)
        addresses = (spelled,) if spelled is not None else await self._ask(host, port)
        if not self._allow.admits(addresses, port):
            raise FetchRefused(_NOT_PUBLIC)
        return addresses

    def look(self, host: str, port: int) -> None:
        """FetchRefused for a host that spells out where no connection may be made to; no name is asked for,
        since the answer would tell which internal names there are."""
        own = host.rstrip(".").lower().rpartition(".")[2] == "localhost"
        spelled = _LOOPBACK if own else urls.literal(host)
        if spelled is not None and not self._allow.admits((spelled,), port):
            raise FetchRefused(_NOT_PUBLIC)

    async def _ask(self, host: str, port: int) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                found = await self._lookup(host, port)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise FetchFailed("This URL could not be fetched: its host could not be looked up.") from error
        return tuple(dict.fromkeys(ipaddress.ip_address(text) for text in found))

    def close(self) -> None:
        if self._system is not None:
            self._system.close()


def _getaddrinfo(host: str, port: int) -> list[str]:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except socket.gaierror as error:
        if error.errno in _ABSENT:
            return []
        raise
    return [str(row[4][0]) for row in rows]
