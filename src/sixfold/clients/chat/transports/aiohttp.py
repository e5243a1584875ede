"""HTTP transport over aiohttp, for platforms without pyreqwest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from sixfold.clients.chat.transport import HEADERS, MAX_RESPONSE_BYTES, USER_AGENT
from sixfold.core.gateway.ports import UpstreamFailure


class Client:
    """A transport with one aiohttp session."""

    def __init__(self, connect_seconds: float, quiet_seconds: float) -> None:
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=connect_seconds, sock_read=quiet_seconds
        )
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session, created at the first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout,
                headers={**HEADERS, "User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool) -> AiohttpStream:
        return await self._send("POST", url, headers, body)

    async def get(self, url: str, headers: Mapping[str, str]) -> AiohttpStream:
        return await self._send("GET", url, headers, None)

    async def delete(self, url: str, headers: Mapping[str, str]) -> AiohttpStream:
        return await self._send("DELETE", url, headers, None)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AiohttpStream:
        try:
            response = await self.session().request(
                method, url, headers=headers, data=body, allow_redirects=False
            )
        except TimeoutError as error:
            raise UpstreamFailure("did not respond in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailure("could not be reached") from error
        return AiohttpStream(response)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            # aiohttp closes its transports in the next iteration of the event loop.
            await asyncio.sleep(0)


class AiohttpStream:
    """A response whose headers have arrived."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after = response.headers.get("retry-after", "")

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except TimeoutError as error:
            raise UpstreamFailure("stopped responding") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailure("disconnected before the response was complete") from error

    async def read_all(self) -> bytes:
        blocks: list[bytes] = []
        size = 0
        while block := await self.read():
            blocks.append(block)
            size += len(block)
            if size > MAX_RESPONSE_BYTES:
                raise UpstreamFailure("returned a response above the size limit")
        return b"".join(blocks)

    async def aclose(self) -> None:
        """Release the connection; aiohttp reuses it if the response was read to its end."""
        self._response.close() if not self._response.content.at_eof() else self._response.release()
