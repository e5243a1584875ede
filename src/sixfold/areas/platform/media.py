"""Files by their URLs: results and uploads at `/media/`, what callers named at `/uploads/`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.work import savepaths
from sixfold.core.work.media import digest_of
from sixfold.core.work.ports import BlobStore
from sixfold.web import calls, files, sniffing
from sixfold.web.services import Services

_MAX_NAME = 128
_TAG_CHARS = 32


class MediaFiles:
    """Serves stored files; whoever has the URL has the file."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def named(self, request: Request) -> Response:
        """One immutable file by its unguessable name."""
        name = calls.path_value(request, "name")
        if len(name) > _MAX_NAME:
            raise errors.NotFound
        found = await self._services.media.find(name)
        store = self._services.blobs
        stored = await store.stat(found.blob)
        if stored is None:
            raise errors.NotFound("There is no such file")
        tag = digest_of(found.blob)[:_TAG_CHARS]
        kind = found.content_type or sniffing.UNKNOWN
        return files.answer(request, files.Shown(store, found.blob, stored.size, kind, tag, files.FOREVER))

    async def uploaded(self, request: Request) -> Response:
        """One file at the path that a caller gave; it may be replaced."""
        key = savepaths.key(calls.path_value(request, "path"))
        if key is None:
            raise errors.NotFound("There is no such file")
        store = self._services.uploads
        stored = await store.stat(key)
        if stored is None:
            raise errors.NotFound("There is no such file")
        kind = sniffing.sniff(await _head(store, key))
        tag = f"{stored.modified_at:x}-{stored.size:x}"
        return files.answer(request, files.Shown(store, key, stored.size, kind, tag, files.REVALIDATE))


async def _head(store: BlobStore, key: str) -> bytes:
    head = b""
    async for piece in store.stream(key, 0, sniffing.HEAD_BYTES):
        head += piece
    return head
