"""The OpenAPI documents, encoded once."""

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
    """Serves every area's document by the area's name."""

    def __init__(self, documents: Mapping[str, Document], server_url: str) -> None:
        encoded = {name: msgspec.json.encode(found.plain(server_url)) for name, found in documents.items()}
        self._documents = {
            name: (data, f'"{hashlib.sha256(data).hexdigest()[:32]}"') for name, data in encoded.items()
        }

    async def show(self, request: Request) -> Response:
        """One document."""
        name = calls.path_value(request, "area")
        found = self._documents.get(name.removesuffix(_SUFFIX))
        if found is None or not name.endswith(_SUFFIX):
            raise errors.NotFound("There is no such description")
        data, tag = found
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(data, 200, headers, "application/json")
