"""Fetch the media URLs of a chat for model servers in the local network.

A remote provider fetches URLs from its own network. A server in ours would fetch them from inside, and a
caller could point it at internal services. So the guarded fetcher gets the files, as for all inputs, and the
server receives the bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core import json_decoding
from sixfold.core.accounts.tenants import Tenant

# URLs in one request, and the bytes of all their files.
MOST = 32
_BYTES = 64 * 2**20
# JSON may escape the characters of a name.
_MAYBE = re.compile(rb'_url"|"source"|\\u')
# This includes local paths, as some servers open their own files.
_ADDRESS = re.compile(r"\s*(?!data:)\S", re.IGNORECASE)
_KINDS = {"image_url": "image", "audio_url": "audio", "video_url": "video", "source": "image"}
# Takes a tenant, an input's name and type, and a URL; returns the content type and the bytes. Raises
# `InvalidInput`.
Fetch = Callable[[Tenant, str, str, str], Awaitable[tuple[str, bytes]]]
_decode = json_decoding.decode_whole
_encode = msgspec.json.encode


class MediaInliner:
    """Replaces media URLs in requests with the files' bytes."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def inline(self, tenant: Tenant, body: bytes) -> bytes:
        """Return the request with its media inlined; raises `InvalidInput`."""
        if _MAYBE.search(body) is None:
            return body
        try:
            document = _decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise errors.BadRequest("The request is no JSON that can be read") from error
        found = _addresses(document)
        if not found:
            return body
        if len(found) > MOST:
            raise errors.InvalidInput.of("messages", f"messages may show {MOST} files by their addresses")
        room = _BYTES
        for place, name in found:
            address = _address(place[name]).strip()
            kind, data = await self._fetch(tenant, name, _KINDS.get(name, "file"), address)
            room -= len(data)
            if room < 0:
                raise errors.InvalidInput.of("messages", f"messages may show {_BYTES >> 20} MiB of files")
            text = base64.b64encode(data).decode()
            if name == "source":
                place[name] = {"type": "base64", "media_type": kind, "data": text}
            else:
                shown = f"data:{kind};base64,{text}"
                place[name] = {**place[name], "url": shown} if isinstance(place[name], dict) else shown
        return _encode(document)


def _addresses(document: Any) -> list[tuple[dict[str, Any], str]]:
    """Return the message parts with a URL, each with the name of the field that has it."""
    found: list[tuple[dict[str, Any], str]] = []
    whole = cast("dict[str, Any]", document if isinstance(document, dict) else {})
    left: list[Any] = [whole.get("messages"), whole.get("input")]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += cast("list[Any]", one)
        elif isinstance(one, dict):
            part = cast("dict[str, Any]", one)
            left += [part.get("content"), part.get("output")]
            found += [
                (part, name)
                for name, value in part.items()
                if (name.endswith("_url") or (name == "source" and isinstance(value, dict)))
                and _ADDRESS.match(_address(value))
            ]
    return found


def _address(value: Any) -> str:
    """Return the URL of a field that is a string or an object with `url`."""
    inner = cast("dict[str, Any]", value).get("url") if isinstance(value, dict) else value
    return inner if isinstance(inner, str) else ""
