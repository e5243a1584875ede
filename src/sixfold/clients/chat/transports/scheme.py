"""The transport to model servers over HTTP and HTTPS."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from sixfold.clients.chat.transport import Transport
from sixfold.clients.chat.transports.asyncio_http import AsyncioTransport
from sixfold.clients.chat.transports.pyreqwest import PyreqwestTransport
from sixfold.core.gateway.ports import UpstreamStream


class SchemeTransport:
    """Sends plain HTTP on the event loop, and HTTPS over pyreqwest, with one client of each for all servers.

    pyreqwest needs a third of the CPU time of other clients with TLS.
    """

    def __init__(self, connect_seconds: float, quiet_seconds: float) -> None:
        self._plain = AsyncioTransport(connect_seconds, quiet_seconds)
        self._other = PyreqwestTransport(connect_seconds, quiet_seconds)

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
