"""The way to a model server: plain HTTP on the event loop itself, else whichever HTTP client is installed.

Of those pyreqwest costs a third of what others do for a call; where it cannot be installed, aiohttp does the
same. One client of each kind serves all servers of the configuration. It follows no redirect, reads no proxy
from the environment, and takes answers as they are sent.
"""

from __future__ import annotations

import importlib
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from sixfold import __version__
from sixfold.core.gateway.ports import UpstreamStream

MAX_ANSWER = 64 * 2**20
USER_AGENT = f"Sixfold/{__version__}"
HEADERS = {"X-Sixfold-Hop": "1"}
PLAIN = "asyncio_http"
CLIENTS = ("pyreqwest", "aiohttp")  # the cheapest first


class Transport(Protocol):
    """Opens streams; its client is made at its first use, and closed with the server."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST `body`; raises `Broken`. Of a stream nothing is waited for but its head."""
        ...

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """GET; raises `Broken`."""
        ...

    async def aclose(self) -> None:
        """Let go of the connections."""
        ...


class SchemeTransport:
    """Plain HTTP by the one, everything else by the other."""

    def __init__(self, plain: Transport, other: Transport) -> None:
        self._plain = plain
        self._other = other

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST `body`."""
        return self._for(url).post(url, headers, body, stream=stream)

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """GET."""
        return await self._for(url).get(url, headers)

    def _for(self, url: str) -> Transport:
        return self._plain if url.startswith("http://") and "@" not in url and url.isascii() else self._other

    async def aclose(self) -> None:
        """Let go of the connections of both."""
        await self._plain.aclose()
        await self._other.aclose()


def open_transport(connect_seconds: float, quiet_seconds: float) -> Transport:
    """The way to any server."""
    plain = open_client(connect_seconds, quiet_seconds, (PLAIN,))
    return SchemeTransport(plain, open_client(connect_seconds, quiet_seconds))


def open_client(
    connect_seconds: float, quiet_seconds: float, clients: tuple[str, ...] = CLIENTS
) -> Transport:
    """Over the first of these clients that is there; `quiet_seconds` is how long a server may say nothing."""
    *others, last = clients
    for name in others:
        try:
            return _over(name, connect_seconds, quiet_seconds)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name:
                raise
    return _over(last, connect_seconds, quiet_seconds)


def _over(name: str, connect_seconds: float, quiet_seconds: float) -> Transport:
    module = importlib.import_module(f"sixfold.clients.chat.transports.{name}")
    transport: Transport = module.Client(connect_seconds, quiet_seconds)
    return transport
