"""HTTP transport to model servers: plain HTTP on the event loop, HTTPS through an installed client.

pyreqwest needs a third of the time of other clients; aiohttp replaces it where it cannot be installed. One
client of each kind serves all servers. It follows no redirects, ignores proxy variables of the environment,
and does not decompress.
"""

from __future__ import annotations

import importlib
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from sixfold import __version__
from sixfold.core.gateway.ports import UpstreamStream

MAX_RESPONSE_BYTES = 64 * 2**20
USER_AGENT = f"Sixfold/{__version__}"
HEADERS = {"X-Sixfold-Hop": "1"}
PLAIN = "asyncio_http"
# In order of preference: the fastest first.
CLIENTS = ("pyreqwest", "aiohttp")


class Transport(Protocol):
    """Opens response streams; the client is created at its first use and closed with the server."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST `body`; raises `UpstreamFailure`. With `stream`, wait only for the response headers."""
        ...

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """GET; raises `UpstreamFailure`."""
        ...

    async def delete(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """DELETE; raises `UpstreamFailure`."""
        ...

    async def aclose(self) -> None: ...


class SchemeTransport:
    """Uses one transport for plain HTTP and another for everything else."""

    def __init__(self, plain: Transport, other: Transport) -> None:
        self._plain = plain
        self._other = other

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        return self._for(url).post(url, headers, body, stream=stream)

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        return await self._for(url).get(url, headers)

    async def delete(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        return await self._for(url).delete(url, headers)

    def _for(self, url: str) -> Transport:
        return self._plain if url.startswith("http://") and "@" not in url and url.isascii() else self._other

    async def aclose(self) -> None:
        await self._plain.aclose()
        await self._other.aclose()


def open_transport(connect_seconds: float, quiet_seconds: float) -> Transport:
    plain = open_client(connect_seconds, quiet_seconds, (PLAIN,))
    return SchemeTransport(plain, open_client(connect_seconds, quiet_seconds))


def open_client(
    connect_seconds: float, quiet_seconds: float, clients: tuple[str, ...] = CLIENTS
) -> Transport:
    """Return a transport with the first installed client; `quiet_seconds` is the read timeout."""
    *preferred, last = clients
    for name in preferred:
        try:
            return _load_client(name, connect_seconds, quiet_seconds)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name:
                raise
    return _load_client(last, connect_seconds, quiet_seconds)


def _load_client(name: str, connect_seconds: float, quiet_seconds: float) -> Transport:
    module = importlib.import_module(f"sixfold.clients.chat.transports.{name}")
    transport: Transport = module.Client(connect_seconds, quiet_seconds)
    return transport
