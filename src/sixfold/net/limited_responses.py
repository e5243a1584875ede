"""Responses of servers that the operator has configured, read within limits of bytes, time and values.

httpx alone reads a body without end, unpacks a compressed one however large it becomes, and counts its
timeouts anew with every byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple, cast

import httpx
import msgspec

from sixfold import errors
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.net.fetch import in_turns

IDENTITY = {"Accept-Encoding": "identity"}
_PLAIN = frozenset({"", "identity"})


class UnreadableResponse(httpx.ReadError):
    """A response is compressed, exceeds a limit or is not a JSON object."""


class LimitedResponse(NamedTuple):
    """A response that was read to its end."""

    status: int
    body: bytes


async def request(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    max_bytes: int,
    seconds: float | None,
    headers: Mapping[str, str] | None = None,
    **arguments: Any,
) -> LimitedResponse:
    """Send a request and read the whole response within `seconds`; raises `httpx.HTTPError`."""
    all_headers = {**IDENTITY, **(headers or {})}
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream(method, url, headers=all_headers, **arguments) as response,
        ):
            body = bytearray()
            async for chunk in chunks(response):
                body += chunk
                if len(body) > max_bytes:
                    raise UnreadableResponse(f"The response has more than {max_bytes:,} bytes")
            return LimitedResponse(response.status_code, bytes(body))
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
    """Return a JSON object; raises `UnreadableResponse` for anything else, and for too many values."""
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
