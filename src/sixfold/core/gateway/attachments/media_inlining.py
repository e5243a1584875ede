"""Fetching of the media URLs of a chat for model servers in the local network.

A remote provider fetches URLs from its own network. A server in the local network would fetch them from
inside, and a caller could make it access internal services. Therefore the guarded fetcher downloads the
files, as for all inputs, and the server receives their bytes. MCP servers cannot be replaced in this way, so
requests that name one are refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import ChatRequest, ImagePart, ToolResult
from sixfold.core.input_limits import byte_search, json_decoding

# Maximum number of URLs in one request, and maximum bytes of all their files.
MAX_URLS = 32
_MAX_BYTES = 64 * 2**20
_URL_NAME, _SOURCE_NAME = re.compile(rb'_url"'), re.compile(rb'"source"')
_MCP_NAME = re.compile(rb'"mcp_servers"')
# This includes local paths, because some servers open local files.
_FETCHED_URL = re.compile(r"\s*+(?!data:)\S", re.IGNORECASE)
_KINDS = {
    "image_url": "image",
    "audio_url": "audio",
    "video_url": "video",
    "source": "image",
    "image": "image",
    "audio": "audio",
    "video": "video",
    "ref_audio": "audio",
}
# Further fields of other requests than chats, such as embeddings and speech, if they contain a URL.
_OTHER_NAMES = re.compile(rb'"(?:image|audio|video|ref_audio|url)"')
_OTHERS = frozenset({"image", "audio", "video", "ref_audio", "url"})
_WITH_SCHEME = re.compile(r"\s*+(?:https?|ftp|file):", re.IGNORECASE)
# Called with a tenant, an input's name and type, a URL, and the number of the URL in the request; returns the
# content type and the bytes. Raises `InvalidInput`.
Fetch = Callable[[Tenant, str, str, str, int], Awaitable[tuple[str, bytes]]]
_decode = json_decoding.decode_whole
_encode = msgspec.json.encode


class MediaInliner:
    """Replaces the media URLs in requests with the bytes of the files."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def inline(self, tenant: Tenant, body: bytes, *, is_chat: bool = True) -> bytes:
        """Return the request with its media inlined; raises `InvalidInput`, also for an MCP server.

        A chat has URLs in the parts of its messages; in other requests, all fields are searched.
        """
        try:
            document, fields = await PARSER.run_large(len(body), _read, body, is_chat)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise errors.BadRequest("The request body is not valid JSON") from error
        if not fields:
            return body
        if len(fields) > MAX_URLS:
            raise errors.InvalidInput.of(
                "messages", f"messages may have at most {MAX_URLS} media URLs (got {len(fields)})"
            )
        budget = _Budget()
        for part, name in fields:
            url = _url(part[name]).strip()
            kind, data = await self._fetch(tenant, name, _KINDS.get(name, "file"), url, budget.count)
            budget.spend(len(data))
            encoded = await PARSER.run(_base64, data)
            if name == "source":
                part[name] = {"type": "base64", "media_type": kind, "data": encoded}
            else:
                data_uri = f"data:{kind};base64,{encoded}"
                part[name] = {**part[name], "url": data_uri} if isinstance(part[name], dict) else data_uri
        return await PARSER.run(_encode, document)

    async def inline_chat(self, tenant: Tenant, chat: ChatRequest) -> ChatRequest:
        """Return a chat whose images are bytes instead of URLs; raises `InvalidInput`."""
        if not any(_has_url(part) for message in chat.messages for part in message.parts):
            return chat
        budget = _Budget()
        messages = [
            replace(
                message,
                parts=tuple([await self._inline_part(tenant, part, budget) for part in message.parts]),
            )
            for message in chat.messages
        ]
        return replace(chat, messages=tuple(messages))

    async def _inline_part(self, tenant: Tenant, part: Any, budget: _Budget) -> Any:
        if isinstance(part, ToolResult):
            inner = [await self._inline_part(tenant, each, budget) for each in part.parts]
            return replace(part, parts=tuple(inner))
        if not _has_url(part):
            return part
        kind, data = await self._fetch(tenant, "image_url", "image", part.url, budget.count)
        budget.spend(len(data))
        return ImagePart(media_type=kind, data=await PARSER.run(_base64, data))


class _Budget:
    """The number of media files that one request has fetched, and the bytes that it may still fetch."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = _MAX_BYTES

    def spend(self, size: int) -> None:
        """Count one file; raises `InvalidInput` above the limits."""
        self.count += 1
        self._bytes -= size
        if self.count > MAX_URLS:
            raise errors.InvalidInput.of("messages", f"messages may have at most {MAX_URLS} media URLs")
        if self._bytes < 0:
            raise errors.InvalidInput.of(
                "messages", f"the media of messages must be at most {_MAX_BYTES:,} bytes in total"
            )


def _read(body: bytes, is_chat: bool) -> tuple[Any, list[tuple[dict[str, Any], str]]]:
    names = byte_search.has_match(_URL_NAME, body) or byte_search.has_match(_MCP_NAME, body)
    names = names or (not is_chat and byte_search.has_match(_OTHER_NAMES, body))
    if not names and not byte_search.may_have_name(_SOURCE_NAME, body):
        return None, []
    document = _decode(body)
    _refuse_mcp_servers(document)
    return document, _url_fields(document) if is_chat else _all_url_fields(document)


def _refuse_mcp_servers(document: Any) -> None:
    """Raise `InvalidInput` if a request names the address of an MCP server."""
    request = cast("dict[str, Any]", document if isinstance(document, dict) else {})
    tools = request.get("tools")
    rows = cast("list[Any]", tools) if isinstance(tools, list) else []
    has_address = any(isinstance(row, dict) and "server_url" in row for row in rows)
    name = "tools" if has_address else "mcp_servers" if request.get("mcp_servers") else ""
    if name:
        raise errors.InvalidInput.of(
            name,
            f"{name}: a model server in the local network may not connect to an MCP server that a request "
            "names: omit it, or use a model of a hosted provider",
        )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _has_url(part: Any) -> bool:
    parts = part.parts if isinstance(part, ToolResult) else (part,)
    return any(isinstance(part, ImagePart) and bool(part.url) for part in parts)


def _url_fields(document: Any) -> list[tuple[dict[str, Any], str]]:
    """Return the message parts with a URL, each with the name of the field that contains it."""
    fields: list[tuple[dict[str, Any], str]] = []
    request = cast("dict[str, Any]", document if isinstance(document, dict) else {})
    pending: list[Any] = [request.get("messages"), request.get("input")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += cast("list[Any]", value)
        elif isinstance(value, dict):
            part = cast("dict[str, Any]", value)
            pending += [part.get("content"), part.get("output")]
            fields += [
                (part, name)
                for name, field_value in part.items()
                if (name.endswith("_url") or (name == "source" and isinstance(field_value, dict)))
                and _FETCHED_URL.match(_url(field_value))
            ]
    return fields


def _all_url_fields(document: Any) -> list[tuple[dict[str, Any], str]]:
    """Return all objects with a URL, each with the name of the field that contains it."""
    fields: list[tuple[dict[str, Any], str]] = []
    pending: list[Any] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += cast("list[Any]", value)
            continue
        part = cast("dict[str, Any]", value if isinstance(value, dict) else {})
        for name, field_value in part.items():
            is_url = name.endswith("_url") and _FETCHED_URL.match(_url(field_value))
            if is_url or (name in _OTHERS and _WITH_SCHEME.match(_url(field_value))):
                fields.append((part, name))
            else:
                pending.append(field_value)
    return fields


def _url(value: Any) -> str:
    """Return the URL of a field that is a string or an object with `url`."""
    inner = cast("dict[str, Any]", value).get("url") if isinstance(value, dict) else value
    return inner if isinstance(inner, str) else ""
