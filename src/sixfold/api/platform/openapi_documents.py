"""The route of the OpenAPI documents."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.web import requests
from sixfold.web.openapi import OpenApiDocuments

_SUFFIX = ".json"


class OpenApiRoutes:
    """Serves OpenAPI documents by name; each is built in a thread on its first request."""

    def __init__(self, documents: OpenApiDocuments, server_url: str) -> None:
        self._documents = documents
        self._server_url = server_url
        self._lock = asyncio.Lock()
        self._encoded: dict[str, tuple[bytes, str]] = {}

    async def show(self, request: Request) -> Response:
        name, dot, suffix = requests.path_value(request, "area").rpartition(".")
        if f"{dot}{suffix}" != _SUFFIX or name not in self._documents:
            raise errors.NotFound("The OpenAPI document was not found")
        if name not in self._encoded:
            async with self._lock:
                await asyncio.to_thread(self._encode, name)
        data, tag = self._encoded[name]
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(data, 200, headers, "application/json")

    def _encode(self, name: str) -> None:
        if name not in self._encoded:
            data = msgspec.json.encode(self._documents.plain(name, self._server_url))
            self._encoded[name] = data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'
