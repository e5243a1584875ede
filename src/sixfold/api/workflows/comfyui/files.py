"""Files of ComfyUI clients: put by name, and seen by name."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.media.media import MediaSource, digest_of
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.storage import KINDS, FoundFile, Kind, Run, StoredName
from sixfold.web import bodies, files, multipart, responses, uploads
from sixfold.web.services import WebServices

_SHOWN = ("image/", "video/", "audio/")
_MEDIA = (*_SHOWN, "model/", "text/plain")
_DRAWN = "image/svg+xml"
_PART = b"image"
_MAX_FIELDS = 20
_TAG_CHARS = 32
_NO_IMAGE = "The form has no part named image"


@dataclass(frozen=True, slots=True)
class _ComfyUploadForm:
    """A file by its name, the path that its bytes are staged at, its type, and the other fields beside it."""

    name: StoredName
    path: Path
    content_type: str
    told: Mapping[str, str]


class ComfyFileRoutes:
    """`/upload/image`, `/upload/mask` and `/view`."""

    def __init__(
        self, services: WebServices, enter: Callable[[HTTPConnection], Awaitable[Principal]]
    ) -> None:
        self._services = services
        self._names = services.workflows.names
        self._enter = enter

    async def upload(self, request: Request) -> Response:
        """Keep a picture, a sound or a film under its name, or one near it."""
        principal = await self._enter(request)
        async with self._staged() as path:
            return await self._keep(principal.tenant, await _form(request, path))

    async def upload_mask(self, request: Request) -> Response:
        """Keep the picture that `original_ref` names with the alpha of the one that is sent."""
        principal = await self._enter(request)
        async with self._staged() as path, self._staged() as result:
            form = await _form(request, path)
            original = await self._names.find(principal.tenant, _original(form.told.get("original_ref", "")))
            if original is None:
                raise errors.BadRequest("There is no picture that original_ref names")
            picture = await self._services.blobs.local_path(original.blob)
            try:
                await self._services.workflows.images.masked(picture, path, result)
            except UnusableInput as error:
                raise errors.BadRequest(str(error)) from error
            return await self._keep(principal.tenant, replace(form, path=result, content_type="image/png"))

    @contextlib.asynccontextmanager
    async def _staged(self) -> AsyncGenerator[Path]:
        """The path of a file that is removed at the end."""
        folder = self._services.settings.data_dir / "tmp"
        path = folder / f"upload-{secrets.token_hex(16)}"
        try:
            await asyncio.to_thread(folder.mkdir, 0o700, parents=True, exist_ok=True)
            yield path
        except OSError as error:
            raise errors.StoreFailed from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _keep(self, tenant: Tenant, form: _ComfyUploadForm) -> Response:
        """Keep a file as an upload, counted against the account's quota, and under its name."""
        name = form.name
        if not form.content_type.startswith(_SHOWN):
            raise errors.UnsupportedMedia("What is uploaded here is a picture, a sound or a film")
        upload = await self._services.media.upload(tenant, form.path, form.content_type)
        found = await self._services.media.find(upload.name)
        source = MediaSource(found.blob, form.content_type, upload.size)
        replaces = form.told.get("overwrite", "").lower() in ("true", "1")
        if not replaces or await self._names.find(tenant, name) is None:
            name = await self._free(tenant, name, source.blob)
        await self._names.put(Run(tenant), name, source)
        return responses.json({"name": name.name, "subfolder": name.subfolder, "type": name.kind})

    async def _free(self, tenant: Tenant, name: StoredName, blob: str) -> StoredName:
        """The name, or the first with a number that no other file has."""
        path, at = PurePosixPath(name.name), 1
        while await self._is_taken(tenant, name, blob):
            name = StoredName(f"{path.stem} ({at}){path.suffix}", name.subfolder, name.kind)
            at += 1
        return name

    async def _is_taken(self, tenant: Tenant, name: StoredName, blob: str) -> bool:
        """Whether a name is another file's: of other bytes, or another credential's."""
        if await self._names.find(tenant.whole, name) is None:
            return False
        own = await self._names.find(tenant, name)
        return own is None or own.blob != blob

    async def view(self, request: Request) -> Response:
        """A file by its name; a picture as `preview` or `channel` ask for it."""
        principal = await self._enter(request)
        query = request.query_params
        try:
            name = _named(query.get("subfolder", ""), query.get("filename", ""), query.get("type", "output"))
        except errors.BadRequest:
            return Response(status_code=400)
        found = await self._names.find(principal.tenant, name)
        if found is None:
            return Response(status_code=404)
        response = await self._reduced(found, query) or await self._whole(request, found)
        content_type = response.media_type or ""
        shown = content_type.startswith(_MEDIA) and content_type != _DRAWN
        way = "inline" if shown else "attachment"
        response.headers["Content-Disposition"] = f'{way}; filename="{_ascii(name.name)}"'
        response.headers["Content-Security-Policy"] = "sandbox"
        response.headers["Cache-Control"] = "no-cache"
        return response

    async def _reduced(self, found: FoundFile, query: Mapping[str, str]) -> Response | None:
        """A picture as a preview or by its channels; None where the query does not ask for it."""
        channel = query.get("channel", "")
        less = "preview" in query or channel in ("rgb", "a")
        if not less or not found.content_type.startswith("image/") or found.content_type == _DRAWN:
            return None
        load = functools.partial(self._services.blobs.local_path, found.blob)
        try:
            seen = await self._services.workflows.images.viewed(load, query.get("preview"), channel)
        except UnusableInput:
            return None
        return Response(seen[0], 200, media_type=seen[1])

    async def _whole(self, request: Request, found: FoundFile) -> Response:
        """The file as it is, or a range of it, a piece at a time."""
        tag = digest_of(found.blob)[:_TAG_CHARS]
        shown = files.ServedFile(
            self._services.blobs, found.blob, found.size, found.content_type, tag, files.REVALIDATE
        )
        return await files.serve(request, shown)


async def _form(request: Request, path: Path) -> _ComfyUploadForm:
    """A form whose file is written to `path`; raises `BadRequest`."""
    if bodies.media_type(request) != multipart.TYPE:
        raise errors.BadRequest(_NO_IMAGE)
    received = await uploads.receive(request, path, _PART, max_fields=_MAX_FIELDS)
    if not received.filename:
        raise errors.BadRequest(_NO_IMAGE)
    told = received.fields
    name = _named(told.get("subfolder", ""), received.filename, told.get("type", "input"))
    return _ComfyUploadForm(name, path, received.content_type, told)


def _original(text: str) -> StoredName:
    """The file that an `original_ref` names; raises `BadRequest`."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    told = mapping(found)
    subfolder, filename = (str(told.get(name) or "") for name in ("subfolder", "filename"))
    return _named(subfolder, filename, str(told.get("type") or "output"))


def _named(subfolder: str, filename: str, kind: str) -> StoredName:
    """A file's name by its parts; raises `BadRequest` for one that leads elsewhere."""
    known: Kind | None = next((each for each in KINDS if each == kind), None)
    whole = f"{subfolder}/{filename}" if subfolder else filename
    name = (
        StoredName.parse(whole, known)
        if known is not None and "/" not in filename and "\\" not in whole
        else None
    )
    if name is None:
        raise errors.BadRequest("This is no name of a file")
    return name


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "_")
