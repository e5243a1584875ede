"""Resolution of names to addresses, once per connection and in dedicated threads."""

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
"""Returns the addresses of a name and port, [] if there are none; raises OSError if the lookup failed."""

# The same message for unknown names and for names of the internal network: different messages would reveal to
# a caller which internal names exist.
_NOT_PUBLIC = "This URL may not be fetched: its host has no public address, or its port is not 80 or 443."

_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
_ABSENT = frozenset((socket.EAI_NONAME, socket.EAI_NODATA))


class SystemLookup:
    """The C library's getaddrinfo, in separate threads.

    Slow foreign name servers must not occupy the thread pool of the rest of the server.
    """

    def __init__(self, *, threads: int = 16) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="sixfold-resolver")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _getaddrinfo, host, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Resolver:
    """Returns the addresses that a connection may use, or rejects the host."""

    def __init__(
        self, allow: AllowList, lookup: Lookup | None = None, *, timeout_seconds: float = 5.0
    ) -> None:
        self._allow = allow
        self._system: SystemLookup | None = None
        if lookup is None:
            lookup = self._system = SystemLookup()
        self.lookup = lookup
        self._timeout_seconds = timeout_seconds

    async def resolve(self, host: str, port: int) -> tuple[Address, ...]:
        """Return every address of a host; raises `FetchRefused` unless all are allowed on this port."""
        literal_address = urls.literal(host)
        addresses = (literal_address,) if literal_address is not None else await self._look_up(host, port)
        if not self._allow.admits(addresses, port):
            raise FetchRefused(_NOT_PUBLIC)
        return addresses

    def check_literal(self, host: str, port: int) -> None:
        """Raise FetchRefused for a host that is a forbidden address itself; names are not looked up.

        The result of a lookup would reveal which internal names exist.
        """
        is_localhost = host.rstrip(".").lower().rpartition(".")[2] == "localhost"
        literal_address = _LOOPBACK if is_localhost else urls.literal(host)
        if literal_address is not None and not self._allow.admits((literal_address,), port):
            raise FetchRefused(_NOT_PUBLIC)

    async def _look_up(self, host: str, port: int) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                addresses = await self.lookup(host, port)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise FetchFailed("This URL could not be fetched: its host could not be looked up.") from error
        return tuple(dict.fromkeys(ipaddress.ip_address(text) for text in addresses))

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
