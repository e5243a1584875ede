"""HTTP transport over pyreqwest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from pyreqwest.client import Client as HttpClient
from pyreqwest.client import ClientBuilder
from pyreqwest.exceptions import BodyDecodeError, PyreqwestError, RequestTimeoutError
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from sixfold.clients.chat.transport import HEADERS, USER_AGENT
from sixfold.core.gateway.ports import UpstreamFailure


class PyreqwestTransport:
    """A transport with one pyreqwest client."""

    def __init__(self, connect_seconds: float, quiet_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._quiet_seconds = quiet_seconds
        self._client: HttpClient | None = None

    def client(self) -> HttpClient:
        """Return the client, created at the first use."""
        if self._client is None:
            self._client = (
                ClientBuilder()
                .connect_timeout(timedelta(seconds=self._connect_seconds))
                .read_timeout(timedelta(seconds=self._quiet_seconds))
                .follow_redirects(enable=False)
                .no_proxy()
                .user_agent(USER_AGENT)
                .default_headers(HEADERS)
                .gzip(enable=False)
                .brotli(enable=False)
                .zstd(enable=False)
                .deflate(enable=False)
                .build()
            )
        return self._client

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> PyreqwestStream:
        request = self.client().post(url).headers(headers).body_bytes(body)
        # The request has the body; it is not kept while the response is awaited.
        del body
        if stream:
            # By default, the client buffers the first 64 KiB of a response.
            request = request.streamed_read_buffer_limit(0)
        return await self._send(request.build_streamed())

    async def get(self, url: str, headers: Mapping[str, str]) -> PyreqwestStream:
        return await self._send(self.client().get(url).headers(headers).build_streamed())

    async def delete(self, url: str, headers: Mapping[str, str]) -> PyreqwestStream:
        return await self._send(self.client().delete(url).headers(headers).build_streamed())

    async def _send(self, request: StreamRequest) -> PyreqwestStream:
        try:
            return PyreqwestStream(request, await request.__aenter__())
        except RequestTimeoutError as error:
            raise UpstreamFailure("did not respond in time") from error
        except BodyDecodeError as error:
            raise UpstreamFailure("disconnected before the response was complete") from error
        except PyreqwestError as error:
            raise UpstreamFailure("could not be reached") from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


class PyreqwestStream:
    """A response whose headers have arrived."""

    def __init__(self, request: StreamRequest, response: Response) -> None:
        self._request: StreamRequest | None = request
        self._reader = response.body_reader
        self._complete = False
        self.status = response.status
        self.retry_after = response.get_header("retry-after") or ""

    async def read(self) -> bytes:
        try:
            while (block := await self._reader.read_chunk()) is not None:
                _check_canceled()
                if block:
                    return bytes(block)
        except RequestTimeoutError as error:
            raise UpstreamFailure("stopped responding") from error
        except PyreqwestError as error:
            raise UpstreamFailure("disconnected before the response was complete") from error
        self._complete = True
        return b""

    async def aclose(self) -> None:
        """Release the connection; it is reused if the response was read to its end."""
        request, self._request = self._request, None
        if request is None:
            return
        closing = request.__aexit__(None, None, None)
        await (closing if self._complete else asyncio.shield(closing))


def _check_canceled() -> None:
    """Raise if the task was canceled, which the client ignores if the next bytes have already arrived."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
