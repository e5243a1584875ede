"""The guarded fetcher for every URL that a request can set.

The fetcher uses httpcore directly. A higher-level client would add unwanted features (proxies and passwords
from the environment, cookies, decompression), and its import would take several times as long.

Each exchange has a separate connection, so that a slow server of one account does not delay other accounts,
and a webhook never uses a connection that the other side has just closed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import certifi
import httpcore
import msgspec

from sixfold.core import humanize
from sixfold.core.media import ports as media_ports
from sixfold.disk_space import SpaceLimitedFile
from sixfold.errors import FetchFailed, TooLarge
from sixfold.net import data_uris, urls
from sixfold.net.addresses import AllowList
from sixfold.net.guard import GuardedBackend
from sixfold.net.resolver import Lookup, Resolver
from sixfold.net.response_heads import READ_TURNS

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))
_OWN_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_BLOCK_BYTES = 1 << 20
_TURN_SECONDS = 0.005


class FetchLimits(msgspec.Struct, frozen=True):
    """The limits for requests to other servers; each call sets its own size and total time."""

    redirects: int = 5
    resolve_seconds: float = 5.0
    connect_seconds: float = 10.0
    # Until the response headers are complete.
    head_seconds: float = 30.0
    # Between two chunks of a body.
    idle_seconds: float = 15.0
    # After this much time waiting for chunks, the minimum rate applies.
    grace_seconds: float = 10.0
    floor_bytes_per_second: int = 1024
    # Concurrent exchanges; other exchanges wait within their time limit.
    concurrent: int = 64


DEFAULT_LIMITS = FetchLimits()


class FetchResult(msgspec.Struct, frozen=True):
    """A fetched resource: `body`, or `path` if it was saved to a file. `content_type` is not verified."""

    body: bytes
    path: Path | None
    content_type: str
    final_url: str
    size: int


class FetchResponse(msgspec.Struct, frozen=True):
    """The response to `send`, with any status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class FetchStream(msgspec.Struct, frozen=True):
    """A response whose body is still arriving."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class _FetchRequest(msgspec.Struct, frozen=True):
    method: str
    headers: Mapping[str, str]
    content: bytes
    head_seconds: float
    idle_seconds: float


class Fetcher:
    """Sends requests to public addresses and to those that the operator allows."""

    def __init__(
        self,
        allow: AllowList,
        limits: FetchLimits = DEFAULT_LIMITS,
        *,
        lookup: Lookup | None = None,
        user_agent: str = "Sixfold",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits
        self.resolver = Resolver(allow, lookup, timeout_seconds=limits.resolve_seconds)
        self._backend = GuardedBackend(self.resolver, connect_seconds=limits.connect_seconds)
        self._slots = asyncio.Semaphore(limits.concurrent)
        self._user_agent = user_agent
        self._tls = tls

    @property
    def backend(self) -> GuardedBackend:
        """The guard, for a client that is built on top of it."""
        return self._backend

    def check_url(self, url: str) -> None:
        """Raise `FetchRefused` for a URL that is forbidden regardless of the addresses of its host."""
        target = urls.parse(url)
        self.resolver.check_literal(target.host, target.port)

    async def fetch(
        self,
        url: str,
        *,
        into: Path | None = None,
        max_bytes: int,
        timeout_seconds: float,
        accept: str = "*/*",
    ) -> FetchResult:
        """Send a GET request and store the body in memory or in a file.

        A file is removed if the fetch fails. `timeout_seconds` includes the wait for a slot, redirects and
        the whole body. Raises FetchRefused, FetchFailed or TooLarge.
        """
        target = urls.parse(url)
        request = _FetchRequest(
            "GET", {"accept": accept}, b"", self._limits.head_seconds, self._limits.idle_seconds
        )
        async with _deadline(timeout_seconds), self._slots:
            for _ in range(self._limits.redirects + 1):
                async with self._exchange(request, target) as response:
                    if response.status not in _REDIRECTS:
                        return await self._read(response, target, into, max_bytes)
                    target = _next(target, response)
        raise FetchFailed(
            f"This URL could not be fetched: it redirects more than {self._limits.redirects} times."
        )

    async def fetch_bytes(
        self, url: str, *, max_bytes: int, timeout_seconds: float
    ) -> media_ports.FetchedFile:
        """Fetch a URL, or decode a `data:` URI, into memory, as the port in core requires."""
        if data_uris.is_data_uri(url):
            inline = await asyncio.to_thread(data_uris.parse_data_uri, url, max_bytes)
            return media_ports.FetchedFile(inline.body, inline.content_type, "")
        result = await self.fetch(url, max_bytes=max_bytes, timeout_seconds=timeout_seconds)
        return media_ports.FetchedFile(result.body, result.content_type, result.final_url)

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        """Fetch a URL, or decode a `data:` URI, into a file; return the content type that the server sent."""
        if data_uris.is_data_uri(url):
            inline = await asyncio.to_thread(data_uris.parse_data_uri, url, max_bytes)
            await asyncio.to_thread(into.write_bytes, inline.body)
            return inline.content_type
        return (
            await self.fetch(url, into=into, max_bytes=max_bytes, timeout_seconds=timeout_seconds)
        ).content_type

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout_seconds: float,
        max_bytes: int,
    ) -> FetchResponse:
        """Send one request and return the response, with any status; redirects are not followed.

        If `max_bytes` is 0, the body is not read.
        """
        exchange = self.stream(method, url, headers=headers, content=content, timeout_seconds=timeout_seconds)
        async with _deadline(timeout_seconds), self._slots, exchange as response:
            body = b""
            if max_bytes > 0:
                _check_length(response.headers, max_bytes)
                body = await _gather(_capped(response.chunks, max_bytes))
            return FetchResponse(response.status, response.headers, body)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout_seconds: float,
    ) -> AsyncGenerator[FetchStream, None]:
        """Send one request and stream the response, for example server-sent events.

        `timeout_seconds` limits the whole exchange; the caller must limit the size.
        """
        if method not in _METHODS:
            raise ValueError(f"{method!r} is not a supported method")
        target = urls.parse(url)
        request = _FetchRequest(method, headers or {}, content, timeout_seconds, timeout_seconds)
        async with _deadline(timeout_seconds), self._exchange(request, target) as response:
            if method != "HEAD":
                _check_encoding(_headers(response))
            async with aclosing(_chunks(response)) as chunks:
                yield FetchStream(response.status, _headers(response), chunks)

    async def aclose(self) -> None:
        """Stop the resolver's threads; each connection closes at the end of its exchange."""
        self.resolver.close()

    @asynccontextmanager
    async def _exchange(
        self, request: _FetchRequest, target: urls.UrlTarget
    ) -> AsyncGenerator[httpcore.Response, None]:
        connection = httpcore.AsyncHTTPConnection(
            origin=httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port),
            ssl_context=await self._context() if target.scheme == "https" else None,
            network_backend=self._backend,
        )
        try:
            with _fetch_errors():
                async with _deadline(request.head_seconds):
                    response = await connection.handle_async_request(self._outgoing(request, target))
            yield response
        finally:
            await connection.aclose()

    def _outgoing(self, request: _FetchRequest, target: urls.UrlTarget) -> httpcore.Request:
        custom_headers = [
            (name, value) for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS
        ]
        names = {name.lower() for name, _ in custom_headers}
        own_headers = [("Host", target.netloc), ("Connection", "close"), ("Accept-Encoding", "identity")]
        if "user-agent" not in names:
            own_headers.append(("User-Agent", self._user_agent))
        if request.content or request.method in ("POST", "PUT", "PATCH"):
            own_headers.append(("Content-Length", str(len(request.content))))
        try:
            headers = [
                (name.encode("ascii"), value.encode("latin-1"))
                for name, value in own_headers + custom_headers
            ]
        except UnicodeEncodeError as error:
            raise FetchFailed(
                "This URL could not be fetched: a request header contains characters that HTTP does not "
                "allow."
            ) from error
        idle_seconds = request.idle_seconds
        return httpcore.Request(
            method=request.method.encode(),
            url=httpcore.URL(
                scheme=target.scheme.encode(),
                host=target.host.encode(),
                port=target.port,
                target=target.path.encode(),
            ),
            headers=headers,
            content=request.content,
            extensions={
                "timeout": {
                    "connect": self._limits.connect_seconds,
                    "read": idle_seconds,
                    "write": idle_seconds,
                }
            },
        )

    async def _read(
        self, response: httpcore.Response, target: urls.UrlTarget, into: Path | None, max_bytes: int
    ) -> FetchResult:
        if response.status != 200:
            raise FetchFailed(f"This URL could not be fetched: its server returned status {response.status}.")
        headers = _headers(response)
        _check_encoding(headers)
        _check_length(headers, max_bytes)
        body, size = b"", 0
        async with aclosing(_chunks(response, self._limits)) as chunks:
            if into is None:
                body = await _gather(_capped(chunks, max_bytes))
                size = len(body)
            else:
                size = await _save(_capped(chunks, max_bytes), into)
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        return FetchResult(body, into, content_type, target.url, size)

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(_default_tls)
        return self._tls


def _default_tls() -> ssl.SSLContext:
    """Return the certificate authorities of the system and of certifi, as slim containers lack the former."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncGenerator[None, None]:
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise FetchFailed(
            f"This URL could not be fetched: it took longer than {seconds:g} seconds."
        ) from error


@contextmanager
def _fetch_errors() -> Generator[None, None, None]:
    """Convert network errors to `FetchFailed`, with messages that do not reveal the host's network."""
    try:
        yield
    except httpcore.TimeoutException as error:
        raise FetchFailed("This URL could not be fetched: its server did not respond in time.") from error
    except httpcore.ProtocolError as error:
        raise FetchFailed(
            "This URL could not be fetched: its response was cut off or is not valid HTTP."
        ) from error
    except (httpcore.NetworkError, OSError) as error:
        reason = "could not be reached"
        if isinstance(error, ssl.SSLError) or isinstance(error.__context__, ssl.SSLError):
            reason = "does not have a valid certificate"
        raise FetchFailed(f"This URL could not be fetched: its server {reason}.") from error


async def in_turns(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield chunks, and let other tasks run after each 5 ms of processor time.

    Of all responses that are read, one continues in each turn of the event loop.

    One read of 64 KiB can have ten thousand chunks of one byte, whose processing takes a quarter of a second,
    and the HTTP parser does not wait between them.
    """
    end = time.thread_time() + _TURN_SECONDS
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if time.thread_time() > end:
                await READ_TURNS.next()
                end = time.thread_time() + _TURN_SECONDS


async def _chunks(
    response: httpcore.Response, limits: FetchLimits | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the body as it arrives; if `limits` is set, a server that sends too slowly is disconnected.

    Only the time spent waiting for the server counts.
    """
    now = asyncio.get_running_loop().time
    waited, received = 0.0, 0
    with _fetch_errors():
        body = cast("AsyncGenerator[bytes, None]", response.aiter_stream())
        async with aclosing(in_turns(body)) as stream:
            last_time = now()
            async for chunk in stream:
                waited += now() - last_time
                received += len(chunk)
                if limits and _is_too_slow(waited, received, limits):
                    raise FetchFailed(
                        "This URL could not be fetched: its server sent data too slowly "
                        f"(less than {limits.floor_bytes_per_second:,} bytes per second)."
                    )
                yield chunk
                last_time = now()


def _is_too_slow(waited: float, received: int, limits: FetchLimits) -> bool:
    return waited > limits.grace_seconds and received < waited * limits.floor_bytes_per_second


async def _capped(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


async def _gather(chunks: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
    return bytes(body)


async def _save(chunks: AsyncIterator[bytes], path: Path) -> int:
    """Write a body to a file in large blocks, outside the event loop; remove the file on errors.

    A part of the disk remains free.
    """
    file = _open(path)
    target = SpaceLimitedFile(file, path.parent)
    size, block = 0, bytearray()
    try:
        async for chunk in chunks:
            block += chunk
            size += len(chunk)
            if len(block) >= _BLOCK_BYTES:
                await asyncio.to_thread(_write, target, block)
                block = bytearray()
        await asyncio.to_thread(_write, target, block)
        await asyncio.to_thread(file.close)
    except BaseException:
        _discard(file, path)
        raise
    return size


def _open(path: Path) -> BinaryIO:
    """Open the file without a thread, because a canceled fetch would leave the file open."""
    return path.open("wb")


def _write(file: SpaceLimitedFile, block: bytearray) -> None:
    try:
        file.write(block)
    except OSError as error:
        raise FetchFailed(f"This URL could not be fetched: {error.strerror}.") from error


def _discard(file: BinaryIO, path: Path) -> None:
    try:
        file.close()
    finally:
        path.unlink(missing_ok=True)


def _headers(response: httpcore.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check_encoding(headers: Mapping[str, str]) -> None:
    """Reject compressed bodies, because their uncompressed size is known only after decompression."""
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise FetchFailed(
            "This URL could not be fetched: its server sent a compressed body, which is not supported."
        )


def _check_length(headers: Mapping[str, str], max_bytes: int) -> None:
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > max_bytes):
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The content of this URL is larger than {humanize.limit(max_bytes)}.")


def _next(target: urls.UrlTarget, response: httpcore.Response) -> urls.UrlTarget:
    locations = [value for name, value in response.headers if name.lower() == b"location"]
    if len(locations) != 1:
        raise FetchFailed("This URL could not be fetched: it redirects without a Location header.")
    try:
        return urls.follow(target, locations[0].decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FetchFailed("This URL could not be fetched: its redirect target is not a valid URL.") from error
