"""Connections of the asynchronous client: requests, retries, uploads, downloads and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urljoin

import httpx

from sixfold.client import requests
from sixfold.client.errors import ApiError, ConnectionFailed
from sixfold.client.requests import ApiCall, FileInput
from sixfold.client.types.hosting import Prediction
from sixfold.client.types.platform import Upload
from sixfold.disk_space import SpaceLimitedFile, WritableFile

_CHUNK_BYTES = 1 << 18


class AsyncTransport:
    """Connections to one server with one key; use it as a context manager, or close it.

    Without `api_key` it uses `SIXFOLD_API_KEY`. Failed requests are repeated up to `max_retries` times where
    the server allows it; requests that charge carry an `Idempotency-Key`, so they are charged only once.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str = requests.DEFAULT_URL,
        *,
        max_retries: int = 2,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        if api_key is None:
            from sixfold import settings

            api_key = settings.api_key()
        self.base_url = requests.base_url(base_url)
        self._headers = requests.HEADERS | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._max_retries = max_retries
        self._http = http_client or httpx.AsyncClient()

    @property
    def openai_base_url(self) -> str:
        """The `base_url` for the official OpenAI client."""
        return f"{self.base_url}/v1"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def upload(self, file: FileInput, name: str | None = None) -> Upload:
        """Store a file and return its id, which inputs accept."""
        part = requests.file_part(file, name)
        try:
            return await self.request(ApiCall("POST", "/api/uploads", file=part))
        finally:
            if isinstance(file, Path) and not isinstance(part[1], bytes):
                part[1].close()

    async def prepare(self, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return inputs with every file replaced by the id of its upload."""
        result = dict(inputs or {})
        for name, value in result.items():
            if requests.is_file(value):
                result[name] = (await self.upload(value))["id"]
        return result

    async def download(self, url: str, target: str | Path | IO[bytes]) -> None:
        """Download a URL of this server to a path or an open file."""
        if isinstance(target, str | Path):
            # An existing file is replaced only when the new one is complete.
            part = Path(f"{target}.part")
            try:
                with part.open("wb") as file:
                    await self._download(url, SpaceLimitedFile(file, part.parent))
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
            return
        await self._download(url, target)

    async def _download(self, url: str, target: WritableFile) -> None:
        address = urljoin(f"{self.base_url}/", url)
        headers = self._headers if requests.is_own(url, self.base_url) else requests.HEADERS
        try:
            async with self._http.stream("GET", address, headers=headers, timeout=60) as response:
                if response.is_error:
                    raise ApiError(await self._complete(response))
                async for chunk in response.aiter_bytes(_CHUNK_BYTES):
                    target.write(chunk)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"{address}: {error or type(error).__name__}") from error

    async def save(self, prediction: Prediction, target: str | Path | IO[bytes]) -> None:
        """Write the output of a prediction, or the first of several, to a path or an open file."""
        await self.download(requests.output_url(prediction), target)

    async def request(self, call: ApiCall) -> Any:
        """Send a request and return the parsed JSON of its response, or None if it is empty."""
        response = await self.send(call)
        return requests.document(response)

    async def send(self, call: ApiCall) -> httpx.Response:
        """Send a request, with retries if they are safe; raises `ApiError` or `ConnectionFailed`."""
        options = call.options()
        options["headers"] = {**self._headers, **options.get("headers", {})}
        for attempt in range(self._max_retries + 1):
            response = None
            try:
                async with self._http.stream(call.method, self.base_url + call.path, **options) as incomplete:
                    response = await self._complete(incomplete)
                if response.is_success:
                    return response
                failure: ApiError | ConnectionFailed = ApiError(response)
            except httpx.TransportError as error:
                failure = ConnectionFailed(f"{self.base_url}: {error or type(error).__name__}")
            seconds = requests.pause(response, attempt)
            is_safe = call.method in {"GET", "DELETE", "PUT"} or call.idempotency_key is not None
            if attempt == self._max_retries or seconds is None or not is_safe or not call.rewind():
                raise failure
            await asyncio.sleep(seconds)
        raise AssertionError("unreachable")

    async def _complete(self, response: httpx.Response) -> httpx.Response:
        """Read the body of a response; raises `ClientError` if it is too large."""
        body = requests.ResponseBody(response)
        async for chunk in response.aiter_bytes():
            body.add(chunk)
        return body.response()

    async def stream(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """Yield the server-sent events of a path as name and JSON."""
        parser = requests.EventParser(self.base_url + path)
        headers = {**self._headers, "Accept": "text/event-stream"}
        try:
            async with self._http.stream(
                "GET", self.base_url + path, headers=headers, timeout=httpx.Timeout(60, read=None)
            ) as response:
                if response.is_error:
                    raise ApiError(await self._complete(response))
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event
        except httpx.TransportError as error:
            raise ConnectionFailed(f"{self.base_url}: {error or type(error).__name__}") from error
