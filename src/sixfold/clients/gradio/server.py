"""Client of a Gradio application: its description, its files, its queue.

Sources: the routes of Gradio 4.44, 5.50 and 6.31 (`/config`, `/info`, `/upload`, `/queue/join`,
`/queue/data`, `/file=`); from version 5 they are under the prefix in `/config`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec

from sixfold import errors
from sixfold.core.catalog.engines import EngineError
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.disk_space import SpaceLimitedFile
from sixfold.net.fetch import in_turns
from sixfold.net.response_memory import ResponseMemory

MAX_DOCUMENT_BYTES = 8 * 2**20
MAX_EVENT_BYTES = 32 * 2**20
MAX_FILE_BYTES = 512 * 2**20
# All files of a run: they do not count towards the quota of an account while the run is in progress.
MAX_RUN_BYTES = 2**30
# Lines of the events of one run.
MAX_LINES = 200_000
_TURN_LINES = 250
_DATA = b"data:"
_CALL_SECONDS = 30.0
_FILE_SECONDS = 300.0


class SpaceError(EngineError):
    """Raised if the space fails or rejects a request; `status` is that of its response, or 0."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


class GradioServer:
    """A Gradio application at `base`, called with `token` if set; redirects are not followed."""

    def __init__(self, client: httpx.AsyncClient, base: str, token: str = "", prefix: str = "") -> None:
        self._client = client
        self._base = base.rstrip("/")
        self._headers = {"Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self.prefix = prefix

    async def describe(
        self, memory: ResponseMemory | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return `/config` and `/info`, and set the prefix of all other routes.

        Raises `TooManyRequests` if `memory` is in use.
        """
        config = _object(await self._json("GET", "/config", memory=memory))
        prefix = config.get("api_prefix")
        if isinstance(prefix, str) and prefix.startswith("/") and ".." not in prefix:
            self.prefix = prefix.rstrip("/")
        return config, _object(await self._json("GET", f"{self.prefix}/info", memory=memory))

    async def upload(self, path: Path, name: str) -> str:
        """Send a file, in parts of 64 KiB, and return its path in the space."""
        with await asyncio.to_thread(path.open, "rb") as file:
            paths = await self._json("POST", f"{self.prefix}/upload", files={"files": (name, file)})
        if not isinstance(paths, list) or not paths or not isinstance(paths[0], str):
            raise SpaceError("The space did not return the path of the uploaded file.")
        return cast("str", paths[0])

    async def download(self, path: str, target: Path, max_bytes: int) -> str:
        """Download an output file of at most `max_bytes` and return the stated content type."""
        url = f"{self._base}{self.prefix}/file={quote(path, safe='/')}"
        async with self._open("GET", url, _FILE_SECONDS) as response:
            size = 0
            with await asyncio.to_thread(target.open, "wb") as file:
                limited_file = SpaceLimitedFile(file, target.parent)
                async for chunk in _chunks(response):
                    size += len(chunk)
                    if size > max_bytes:
                        raise SpaceError(
                            "The space returned files that are too large: "
                            f"one may have {MAX_FILE_BYTES >> 20} MiB, "
                            f"and all files of a run {MAX_RUN_BYTES >> 20:,} MiB in total."
                        )
                    await asyncio.to_thread(_write, limited_file, chunk)
            return response.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def join(self, function: int, data: list[Any], session: str) -> str:
        """Queue a run and return the event id."""
        body = {"data": data, "fn_index": function, "session_hash": session, "event_data": None}
        response = await self._json("POST", f"{self.prefix}/queue/join", document=body)
        event_id = _object(response).get("event_id")
        if not isinstance(event_id, str):
            raise SpaceError("The space did not return the id of the run.")
        return event_id

    async def events(
        self, session: str, event: str, seconds: float, memory: ResponseMemory
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the messages of a run until its end; raises `TooManyRequests` if `memory` is in use."""
        url = f"{self._base}{self.prefix}/queue/data?session_hash={session}"
        async with self._open("GET", url, seconds) as response:
            async for message in _messages(_chunks(response), memory):
                if message.get("event_id") in (event, None):
                    yield message

    async def cancel(self, function: int, session: str, event: str) -> None:
        body = {"fn_index": function, "session_hash": session, "event_id": event}
        await self._json("POST", f"{self.prefix}/cancel", document=body)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        document: Any = None,
        files: Any = None,
        memory: ResponseMemory | None = None,
    ) -> Any:
        url = f"{self._base}{path}"
        async with self._open(method, url, _CALL_SECONDS, document=document, files=files) as response:
            body = bytearray()
            async for chunk in _chunks(response):
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise SpaceError(f"The space returned more than {MAX_DOCUMENT_BYTES >> 20} MiB.")
                if memory is not None:
                    # The first of two documents remains in memory.
                    await memory.resize(2 * len(body))
        return await _decoded(bytes(body), "returned a response", 200)

    @asynccontextmanager
    async def _open(
        self, method: str, url: str, seconds: float, *, document: Any = None, files: Any = None
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(
                    method, url, headers=self._headers, json=document, files=files, follow_redirects=False
                ) as response,
            ):
                if response.status_code != 200:
                    raise SpaceError(await _error_message(response), response.status_code)
                yield response
        except (TimeoutError, httpx.TimeoutException) as error:
            raise SpaceError("The space did not respond in time.") from error
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            raise SpaceError("The space could not be reached.") from error


def _write(file: SpaceLimitedFile, chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        raise SpaceError(f"A file of the space was not stored: {error.strerror}.") from error


def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    return in_turns(cast("AsyncGenerator[bytes, None]", response.aiter_raw()))


async def _error_message(response: httpx.Response) -> str:
    if response.status_code == 503:
        return "The space is asleep or its queue is full: try again later."
    body = b""
    async for chunk in _chunks(response):
        body += chunk
        if len(body) > 4096:
            break
    try:
        detail = _object(json.loads(body)).get("detail")
    except (ValueError, SpaceError):
        detail = None
    suffix = f": {detail[:200]}" if isinstance(detail, str) and detail else ""
    return f"The space returned status {response.status_code}{suffix}."


async def _messages(chunks: AsyncIterator[bytes], memory: ResponseMemory) -> AsyncIterator[dict[str, Any]]:
    async for data in _events(chunks, memory):
        yield _object(await _decoded(data, "sent an event"))


async def _events(chunks: AsyncIterator[bytes], memory: ResponseMemory) -> AsyncIterator[bytes]:
    """Yield the data of each event in linear time, however the stream is divided into chunks.

    Other tasks run between a few hundred lines, since a chunk may have thousands.
    """
    buffer, searched, count = bytearray(), 0, 0
    async for chunk in chunks:
        buffer += chunk
        await memory.resize(len(buffer))
        while (end := buffer.find(b"\n", searched)) >= 0:
            count += 1
            if count > MAX_LINES:
                raise SpaceError(f"The space sent more than {MAX_LINES:,} lines of events.")
            if count % _TURN_LINES == 0:
                await asyncio.sleep(0)
            is_data = buffer.startswith(_DATA)
            # A slice of the buffer would be a second copy of an event of up to 32 MiB.
            with memoryview(buffer) as view:
                data = bytes(view[len(_DATA) : end]) if is_data else b""
            del buffer[: end + 1]
            searched = 0
            if is_data:
                yield data
        searched = len(buffer)
        if searched > MAX_EVENT_BYTES:
            raise SpaceError(f"The space sent an event of more than {MAX_EVENT_BYTES >> 20} MiB.")


async def _decoded(body: bytes, failure: str, status: int = 0) -> Any:
    """Return the value of a JSON document; raises `SpaceError` if it is invalid or too large."""
    try:
        return await PARSER.run_large(len(body), _decode, body)
    except errors.InputTooLarge as error:
        raise SpaceError(f"The space {failure} with too many values: {error.message}.") from error
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise SpaceError(f"The space {failure} that is not JSON.", status) from error


def _decode(body: bytes) -> Any:
    json_limits.GRAPH.check(body)
    return json_decoding.decode(body)


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise SpaceError("The space returned an unexpected response.", 200)
    return cast("dict[str, Any]", document)
