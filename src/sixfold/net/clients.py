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
from pathlib import Path

import httpcore
import httpx

from sixfold.net.addresses import AllowList
from sixfold.net.fetch import Fetcher
from sixfold.net.response_heads import LimitedBackend

_TIMEOUT = httpx.Timeout(600.0, connect=10.0)
_USUAL_TIMEOUT = httpx.Timeout(5.0)
_CONNECTIONS, _IDLE_CONNECTIONS, _GUARDED_CONNECTIONS = 256, 64, 64
# httpx's time limit for idle connections, in seconds.
_IDLE_SECONDS = 5.0


class HttpClients:
    """The HTTP clients; each is created at first use, and all are closed together."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self._opened: list[httpx.AsyncClient | Fetcher] = []

    def own(self, fetcher: Fetcher) -> Fetcher:
        """Close another fetcher together with these clients; return that fetcher."""
        self._opened.append(fetcher)
        return fetcher

    @cached_property
    def upstream(self) -> httpx.AsyncClient:
        """The client for configured servers, with keep-alive connections."""
        client = limited_client(timeout=_TIMEOUT)
        self._opened.append(client)
        return client

    @cached_property
    def configured(self) -> Fetcher:
        """The fetcher for URLs that the operator has configured; they may point to any address."""
        return Fetcher(AllowList.parse("0.0.0.0/0 ::/0"))

    @cached_property
    def guarded(self) -> httpx.AsyncClient:
        """The client for libraries that call URLs from requests."""
        # A foreign server may close an idle connection at any time.
        pool = httpcore.AsyncConnectionPool(
            ssl_context=_authorities(),
            max_connections=_GUARDED_CONNECTIONS,
            max_keepalive_connections=0,
            network_backend=self.fetcher.backend,
        )
        client = httpx.AsyncClient(transport=_PoolTransport(pool), timeout=_TIMEOUT, trust_env=False)
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


def limited_client(
    *, timeout: httpx.Timeout = _USUAL_TIMEOUT, socket: Path | None = None
) -> httpx.AsyncClient:
    """Return a client for servers at any address, or at a Unix socket, which limits the heads of responses.

    The caller must limit sizes, times and compressed bodies. Proxies of the environment are not used.
    """
    pool = httpcore.AsyncConnectionPool(
        ssl_context=_authorities(),
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_IDLE_CONNECTIONS,
        keepalive_expiry=_IDLE_SECONDS,
        uds=None if socket is None else str(socket),
        network_backend=LimitedBackend(),
    )
    return httpx.AsyncClient(transport=_PoolTransport(pool), timeout=timeout, trust_env=False)


class _PoolTransport(httpx.AsyncBaseTransport):
    """An httpx transport over connections of a backend that limits heads, or also checks addresses."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

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
    except httpcore.PoolTimeout as error:
        raise httpx.PoolTimeout(str(error)) from error
    except httpcore.TimeoutException as error:
        raise httpx.ReadTimeout(str(error)) from error
    except httpcore.ConnectError as error:
        raise httpx.ConnectError(str(error)) from error
    except httpcore.NetworkError as error:
        raise httpx.ReadError(str(error)) from error
    except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise httpx.RemoteProtocolError(str(error)) from error
