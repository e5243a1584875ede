"""The guard: a network backend that connects only to addresses that it has checked.

The guard works below HTTP, so that no client, redirect, retry or setting can bypass it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn, cast

import httpcore

from sixfold.errors import FetchRefused
from sixfold.net.addresses import Address
from sixfold.net.resolver import Resolver
from sixfold.net.response_heads import LimitedStream

MAX_ATTEMPTS = 4
"""Addresses of one host that are tried in turn; every address is checked first."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, checks every address, and connects to one of these addresses.

    TLS still verifies the name: httpcore passes it to `start_tls` from the URL.
    """

    def __init__(self, resolver: Resolver, *, connect_seconds: float = 10.0) -> None:
        self._resolver = resolver
        self._connect_seconds = connect_seconds
        self._sockets = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = (await self._resolver.resolve(host, port))[:MAX_ATTEMPTS]
        seconds = min(timeout or self._connect_seconds, self._connect_seconds) / len(addresses)
        failure: Exception = httpcore.ConnectError("no address")
        for address in addresses:
            try:
                return await self._connect(address, port, seconds, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _connect(
        self,
        address: Address,
        port: int,
        seconds: float,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._sockets.connect_tcp(
            str(address), port, timeout=seconds, socket_options=socket_options
        )
        return LimitedStream(stream)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's signature
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> NoReturn:
        raise FetchRefused("This URL may not be fetched: Unix sockets are not allowed.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
