"""Responses of configured servers, read within limits on bytes, time and values.

httpx alone does not limit the size of a body, decompresses it to any size, and restarts its timeouts with
every byte.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple, cast

import httpx
import msgspec

from sixfold import errors
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.net.fetch import in_turns
from sixfold.net.response_memory import ResponseMemory

IDENTITY = {"Accept-Encoding": "identity"}
_PLAIN = frozenset({"", "identity"})


class UnreadableResponse(httpx.ReadError):
    """The response is compressed, exceeds a limit or is not a JSON object."""


class LimitedResponse(NamedTuple):
    """A response that was read completely."""

    status: int
    body: bytes


async def request(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    max_bytes: int,
    seconds: float | None,
    memory: ResponseMemory | None = None,
    **arguments: Any,
) -> LimitedResponse:
    """Send a request and read the whole response within `seconds`; raises `httpx.HTTPError`.

    With `memory`, a large response waits for its share; raises `TooManyRequests`. The other arguments are
    those of httpx.
    """
    headers: dict[str, str] = {**IDENTITY, **(arguments.pop("headers", None) or {})}
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream(method, url, headers=headers, **arguments) as response,
        ):
            # Its value is not a second copy.
            body = io.BytesIO()
            async for chunk in chunks(response):
                body.write(chunk)
                if body.tell() > max_bytes:
                    raise UnreadableResponse(f"The response has more than {max_bytes:,} bytes")
                if memory is not None:
                    await memory.resize(body.tell())
            return LimitedResponse(response.status_code, body.getvalue())
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"The response took more than {seconds:g} seconds") from error


async def chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the body as it arrives, and let other tasks run between small chunks.

    Raises `UnreadableResponse` if it is compressed.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN:
        raise UnreadableResponse("The response is compressed")
    async for chunk in in_turns(cast("AsyncGenerator[bytes, None]", response.aiter_bytes())):
        yield chunk


async def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; raises `UnreadableResponse` for any other value, and for too many values."""
    return await PARSER.run_large(len(body), _object, body)


def _object(body: bytes) -> dict[str, Any]:
    try:
        json_limits.RESPONSE.check(body)
        document = json_decoding.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, errors.InputTooLarge) as error:
        raise UnreadableResponse("The response is not JSON within the limits") from error
    if not isinstance(document, dict):
        raise UnreadableResponse("The response is not a JSON object")
    return cast("dict[str, Any]", document)
