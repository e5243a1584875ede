"""The HTTP clients of a server, which are opened and closed with the server.

`fetcher` is for every URL that a request can set. `guarded` uses the same guard in an httpx client, for
libraries that require one. `upstream` is unguarded and only for URLs that the operator has configured.
`configured` is also for such URLs, and limits the size and the duration of responses.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from functools import cache, cached_property

import httpcore
import httpx
import msgspec

from sixfold.net.addresses import AllowList
from sixfold.net.fetch import Fetcher
from sixfold.net.guard import GuardedBackend


class UpstreamOptions(msgspec.Struct, frozen=True):
    """The options for trusted servers; a proxy is set here and never taken from the environment."""

    connect_seconds: float = 10.0
    timeout_seconds: float = 600.0
    connections: int = 256
    idle_connections: int = 64
    proxy: str | None = None


class HttpClients:
    """The HTTP clients; each is created at first use, and all are closed together."""

    def __init__(self, fetcher: Fetcher, upstream: UpstreamOptions | None = None) -> None:
        self.fetcher = fetcher
        self._options = upstream or UpstreamOptions()
        self._opened: list[httpx.AsyncClient | Fetcher] = []

    def own(self, fetcher: Fetcher) -> Fetcher:
        """Close another fetcher together with these clients; return that fetcher."""
        self._opened.append(fetcher)
        return fetcher

    @cached_property
    def upstream(self) -> httpx.AsyncClient:
        """The client for configured servers, with keep-alive connections."""
        options = self._options
        client = httpx.AsyncClient(
            timeout=httpx.Timeout(options.timeout_seconds, connect=options.connect_seconds),
            limits=httpx.Limits(
                max_connections=options.connections, max_keepalive_connections=options.idle_connections
            ),
            proxy=options.proxy,
            trust_env=False,
            verify=_authorities(),
        )
        self._opened.append(client)
        return client

    @cached_property
    def configured(self) -> Fetcher:
        """The fetcher for URLs that the operator has configured; they may point to any address."""
        return Fetcher(AllowList.parse("0.0.0.0/0 ::/0"))

    @cached_property
    def guarded(self) -> httpx.AsyncClient:
        """The client for libraries that call URLs from requests."""
        client = httpx.AsyncClient(
            transport=GuardedTransport(self.fetcher.backend),
            timeout=httpx.Timeout(self._options.timeout_seconds, connect=self._options.connect_seconds),
            trust_env=False,
        )
        self._opened.append(client)
        return client

    async def aclose(self) -> None:
        for client in self._opened:
            await client.aclose()
        self._opened.clear()
        if "configured" in self.__dict__:
            await self.configured.aclose()
        await self.fetcher.aclose()


@cache
def _authorities() -> ssl.SSLContext:
    """Return the certificate authorities, which load slowly and are therefore loaded once per process."""
    return httpx.create_ssl_context(trust_env=False)


class GuardedTransport(httpx.AsyncBaseTransport):
    """An httpx transport that checks every connection with the guard.

    Only addresses and ports are checked; the caller must limit sizes, times and compressed bodies.
    """

    def __init__(self, backend: GuardedBackend) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=64,
            # A foreign server may close an idle connection at any time.
            max_keepalive_connections=0,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _as_httpx():
            response = await self._pool.handle_async_request(
                httpcore.Request(
                    method=request.method.encode(),
                    url=httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(response.status, headers=response.headers, stream=_LimitedBody(response))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _LimitedBody(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for chunk in self._response.aiter_stream():
                yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _as_httpx() -> Generator[None, None, None]:
    try:
        yield
    except httpcore.ConnectTimeout as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except httpcore.TimeoutException as error:
        raise httpx.ReadTimeout(str(error)) from error
    except httpcore.ConnectError as error:
        raise httpx.ConnectError(str(error)) from error
    except httpcore.NetworkError as error:
        raise httpx.ReadError(str(error)) from error
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise httpx.RemoteProtocolError(str(error)) from error
