"""Stored files: results and uploads at `/media/`, files at paths that callers chose at `/uploads/`."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.media import save_paths, thumbnails
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.media.ports import BlobStore
from sixfold.core.provenance.formats import media_types
from sixfold.web import auth, files, requests
from sixfold.web.services import ServiceHandlers

_MAX_NAME = 128
_TAG_CHARS = 32
_PRIVATE = "private, no-cache"
_NO_FILE = "The file was not found"
# These types cannot contain scripts, so the object store may serve them.
_LINKED = ("image/", "video/", "audio/")


class StoredFileRoutes(ServiceHandlers):
    """Handlers for stored files; an unguessable URL is sufficient to read a file."""

    async def named(self, request: Request) -> Response:
        """Return an immutable file by its unguessable name; with `w`, a small image of it.

        The database is read first, so a withdrawn file is not found even if its bytes still exist. Browsers
        and caches in between may keep a copy for a year (`files.FOREVER`).
        """
        name = requests.path_value(request, "name")
        if len(name) > _MAX_NAME:
            raise errors.NotFound
        file = await self._services.media.find(name, served=True)
        store = self._services.blobs
        width = request.query_params.get("w")
        if width is not None:
            number = int(width) if width.isascii() and width.isdigit() and len(width) < 6 else 0
            small = await self._services.media.thumbnails.find(file.blob, file.content_type, number)
            if small is not None:
                tag = f"{digest_of(file.blob)[:_TAG_CHARS]}-{number}"
                served = files.ServedFile(
                    store, small.key, small.size, thumbnails.MEDIA_TYPE, tag, files.FOREVER
                )
                return await files.serve(request, served)
        kind = file.content_type or media_types.UNKNOWN
        tag = digest_of(file.blob)[:_TAG_CHARS]
        if request.method == "HEAD" and await store.stat(file.blob) is None:
            raise errors.NotFound("The file was not found")
        if request.method == "GET" and _is_inert(kind) and not files.is_known(request, tag):
            link = await store.link(file.blob)
            if link is not None:
                return self._elsewhere(link)
        return await files.serve(
            request, files.ServedFile(store, file.blob, file.size, kind, tag, files.FOREVER)
        )

    def _elsewhere(self, link: str) -> Response:
        """Redirect to the object store, cacheable for half of the link's lifetime."""
        age = self._services.settings.blob_link_seconds // 2
        return RedirectResponse(link, 307, {"Cache-Control": f"private, max-age={age}"})

    async def uploaded(self, request: Request) -> Response:
        """Return a file at a path that its owner chose; it may be replaced."""
        key, cache = await self._key(request, requests.path_value(request, "path"))
        store = self._services.uploads
        try:
            stored, head = await asyncio.gather(store.stat(key), _head(store, key))
        except KeyError:
            stored, head = None, b""
        if stored is None:
            raise errors.NotFound(_NO_FILE)
        kind = media_types.sniff(head)
        tag = stored.tag or f"{stored.modified_at:x}-{stored.size:x}"
        return await files.serve(request, files.ServedFile(store, key, stored.size, kind, tag, cache))

    async def _key(self, request: Request, path: str) -> tuple[str, str]:
        """Return the key of an uploaded file and its cache policy; raises `NotFound`.

        The folder names in URLs are secret. URLs without such names can be guessed, so only the owner may
        read those files. Files written without a key can be read by any program on this machine.
        """
        cache = files.REVALIDATE
        if (secret := await self._services.media.uploaded_files.served_path(path)) is not None:
            path = secret
        elif (local := await self._local(request, path)) is not None:
            path, cache = local, _PRIVATE
        elif await self._is_owner(request, save_paths.owner_of(path)):
            cache = _PRIVATE
        else:
            raise errors.NotFound(_NO_FILE)
        key = save_paths.key(path)
        if key is None:
            raise errors.NotFound(_NO_FILE)
        return key, cache

    async def _local(self, request: Request, path: str) -> str | None:
        """Return the path in the store of a file written without a key, for a request without a key."""
        authenticator = self._services.authenticator
        if auth.bearer_token(request) is not None or not authenticator.keyless.admits(request):
            return None
        await authenticator.without_key(request)
        return await self._services.media.uploaded_files.keyless_path(path)

    async def _is_owner(self, request: Request, account_id: str) -> bool:
        """Return whether the caller is the account, or the operator if `account_id` is empty."""
        asking: Principal | Account | None = None
        if auth.bearer_token(request) is not None:
            with contextlib.suppress(errors.Unauthenticated):
                principal = await self._enter(request)
                asking = principal if principal.has(Rights.RUN | Rights.ACCOUNT_READ) else None
        elif (session := await self._services.sessions.of(request)) is not None:
            asking = session.account
        if asking is None:
            return False
        own_id = asking.account_id if isinstance(asking, Principal) else asking.id
        return own_id == account_id if account_id else asking.is_operator


def _is_inert(kind: str) -> bool:
    return kind in media_types.INLINE and kind.startswith(_LINKED)


async def _head(store: BlobStore, key: str) -> bytes:
    head = b""
    async for piece in store.stream(key, 0, media_types.HEAD_BYTES):
        head += piece
    return head
