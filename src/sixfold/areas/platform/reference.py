"""The route of the OpenAPI documents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.web import calls
from sixfold.web.openapi import Document

_SUFFIX = ".json"


class Reference:
    """Serves each OpenAPI document under its name; a document is encoded when it is first requested."""

    def __init__(self, documents: Mapping[str, Document], server_url: str) -> None:
        self._documents = documents
        self._server_url = server_url
        self._encoded: dict[str, tuple[bytes, str]] = {}

    async def show(self, request: Request) -> Response:
        """One document."""
        name, dot, suffix = calls.path_value(request, "area").rpartition(".")
        if f"{dot}{suffix}" != _SUFFIX or name not in self._documents:
            raise errors.NotFound("There is no such description")
        data, tag = self._encode(name)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(data, 200, headers, "application/json")

    def _encode(self, name: str) -> tuple[bytes, str]:
        if name not in self._encoded:
            data = msgspec.json.encode(self._documents[name].plain(self._server_url))
            self._encoded[name] = data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        return self._encoded[name]
