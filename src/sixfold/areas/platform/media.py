"""Files by their URLs: results and uploads at `/media/`, what callers named at `/uploads/`."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.work import savepaths
from sixfold.core.work.media import digest_of
from sixfold.core.work.ports import BlobStore
from sixfold.web import calls, files, sniffing
from sixfold.web.services import Services

_MAX_NAME = 128
_TAG_CHARS = 32
_LINKED = ("image/", "video/", "audio/")  # nothing in these runs, wherever they are served from


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
        kind = found.content_type or sniffing.UNKNOWN
        tag = digest_of(found.blob)[:_TAG_CHARS]
        if request.method == "HEAD" and await store.stat(found.blob) is None:
            raise errors.NotFound("There is no such file")
        if request.method == "GET" and _is_inert(kind) and not files.is_known(request, tag):
            link = await store.link(found.blob)
            if link is not None:
                return self._elsewhere(link)
        return await files.answer(
            request, files.Shown(store, found.blob, found.size, kind, tag, files.FOREVER)
        )

    def _elsewhere(self, link: str) -> Response:
        """Send the caller to the object store itself, for as long as half of the link's life."""
        age = self._services.settings.blob_link_seconds // 2
        return RedirectResponse(link, 307, {"Cache-Control": f"private, max-age={age}"})

    async def uploaded(self, request: Request) -> Response:
        """One file at the path that a caller gave; it may be replaced."""
        key = savepaths.key(calls.path_value(request, "path"))
        if key is None:
            raise errors.NotFound("There is no such file")
        store = self._services.uploads
        try:
            stored, head = await asyncio.gather(store.stat(key), _head(store, key))
        except KeyError:
            stored, head = None, b""
        if stored is None:
            raise errors.NotFound("There is no such file")
        kind = sniffing.sniff(head)
        tag = stored.tag or f"{stored.modified_at:x}-{stored.size:x}"
        return await files.answer(request, files.Shown(store, key, stored.size, kind, tag, files.REVALIDATE))


def _is_inert(kind: str) -> bool:
    return kind in sniffing.INLINE and kind.startswith(_LINKED)


async def _head(store: BlobStore, key: str) -> bytes:
    head = b""
    async for piece in store.stream(key, 0, sniffing.HEAD_BYTES):
        head += piece
    return head
