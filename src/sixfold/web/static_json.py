"""Documents that never change while the server runs: encoded and compressed once, answered by their tag."""

from __future__ import annotations

import functools
import gzip
import hashlib
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_SMALL = 1024  # bytes that are not worth the unpacking


class StaticJson:
    """One JSON document as bytes."""

    def __init__(self, content: Any) -> None:
        self._data = msgspec.json.encode(content)
        self._tag = hashlib.sha256(self._data).hexdigest()[:32]

    @functools.cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._data, mtime=0) if len(self._data) > _SMALL else b""

    def answer(self, request: Request) -> Response:
        """Return the document, compressed if the client accepts it, or 304 if its tag matches."""
        packed = _takes_gzip(request.headers.get("accept-encoding", "")) and bool(self._packed)
        tag = f'"{self._tag}-gzip"' if packed else f'"{self._tag}"'
        headers = {"ETag": tag, "Cache-Control": "public, no-cache", "Vary": "Accept-Encoding"}
        if self._is_known(request.headers.get("if-none-match")):
            return Response(None, 304, headers)
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(self._packed if packed else self._data, 200, headers, "application/json")

    def _is_known(self, given: str | None) -> bool:
        if given is None:
            return False
        tags = {part.strip().removeprefix("W/") for part in given.split(",")}
        return bool(tags & {"*", f'"{self._tag}"', f'"{self._tag}-gzip"'})


def _takes_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
