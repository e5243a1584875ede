"""The files of ComfyUI clients: uploaded and viewed by name."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.media.media import MediaSource
from sixfold.core.temporary_files import temporary_path
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
_NO_IMAGE = "The form must contain a part named image"


class _ComfyUploadForm(msgspec.Struct, frozen=True):
    """An uploaded file: its name, the path of its bytes, its type, and the other form fields."""

    name: StoredName
    path: Path
    content_type: str
    fields: Mapping[str, str]


class ComfyFileRoutes:
    """The routes `/upload/image`, `/upload/mask` and `/view`."""

    def __init__(
        self, services: WebServices, enter: Callable[[HTTPConnection], Awaitable[Principal]]
    ) -> None:
        self._services = services
        self._names = services.workflows.names
        self._enter = enter
        self._folder = services.settings.data_dir / "tmp"

    async def upload(self, request: Request) -> Response:
        """Store an image, audio or video file under its name, or a similar one if that is taken."""
        principal = await self._enter(request)
        async with temporary_path(self._folder) as path:
            return await self._store(principal.tenant, await _form(request, path))

    async def upload_mask(self, request: Request) -> Response:
        """Store the image that `original_ref` names with the alpha of the uploaded one."""
        principal = await self._enter(request)
        async with temporary_path(self._folder) as path, temporary_path(self._folder) as result:
            form = await _form(request, path)
            original = await self._names.find(
                principal.tenant, _original(form.fields.get("original_ref", ""))
            )
            if original is None:
                raise errors.BadRequest("original_ref: image not found")
            image = await self._services.blobs.local_path(original.blob)
            try:
                await self._services.workflows.images.masked(image, path, result)
            except UnusableInput as error:
                raise errors.BadRequest(str(error)) from error
            return await self._store(principal.tenant, replace(form, path=result, content_type="image/png"))

    async def _store(self, tenant: Tenant, form: _ComfyUploadForm) -> Response:
        """Store a file under its name as an upload, counted against the account's quota."""
        name = form.name
        if not form.content_type.startswith(_SHOWN):
            raise errors.UnsupportedMedia("The upload must be an image, audio or video file")
        upload = await self._services.media.upload(tenant, form.path, form.content_type)
        file = await self._services.media.find(upload.name)
        source = MediaSource(file.blob, form.content_type, upload.size)
        replaces = form.fields.get("overwrite", "").lower() in ("true", "1")
        if not replaces or await self._names.find(tenant, name) is None:
            name = await self._free_name(tenant, name, source.blob)
        await self._names.put(Run(tenant), name, source)
        return responses.json({"name": name.name, "subfolder": name.subfolder, "type": name.kind})

    async def _free_name(self, tenant: Tenant, name: StoredName, blob: str) -> StoredName:
        """Return the name, or its first numbered variant that no other file has."""
        path, at = PurePosixPath(name.name), 1
        while await self._is_taken(tenant, name, blob):
            name = StoredName(f"{path.stem} ({at}){path.suffix}", name.subfolder, name.kind)
            at += 1
        return name

    async def _is_taken(self, tenant: Tenant, name: StoredName, blob: str) -> bool:
        """Return whether another file has this name: other bytes, or another credential's."""
        if await self._names.find(tenant.whole, name) is None:
            return False
        stored_file = await self._names.find(tenant, name)
        return stored_file is None or stored_file.blob != blob

    async def view(self, request: Request) -> Response:
        """Return a file by its name; an image is reduced according to `preview` or `channel`."""
        principal = await self._enter(request)
        query = request.query_params
        if "filename" not in query:  # ComfyUI distinguishes it from an invalid name
            return Response(status_code=404)
        try:
            name = _named(query.get("subfolder", ""), query.get("filename", ""), query.get("type", "output"))
        except errors.BadRequest:
            return Response(status_code=400)
        file = await self._names.find(principal.tenant, name)
        if file is None:
            return Response(status_code=404)
        response = await self._reduced(file, query) or await self._whole(request, file)
        content_type = response.media_type or ""
        is_media = content_type.startswith(_MEDIA) and content_type != _DRAWN
        disposition = "inline" if is_media else "attachment"
        response.headers["Content-Disposition"] = f'{disposition}; filename="{_ascii(name.name)}"'
        response.headers["Content-Security-Policy"] = "sandbox"
        response.headers["Cache-Control"] = "private, no-cache"
        return response

    async def _reduced(self, file: FoundFile, query: Mapping[str, str]) -> Response | None:
        """Return an image as a preview or by its channels; None if the query requests neither."""
        channel = query.get("channel", "")
        is_reduced = "preview" in query or channel in ("rgb", "a")
        if not is_reduced or not file.content_type.startswith("image/") or file.content_type == _DRAWN:
            return None
        load = functools.partial(self._services.blobs.local_path, file.blob)
        try:
            reduced = await self._services.workflows.images.viewed(load, query.get("preview"), channel)
        except UnusableInput:
            return None
        return Response(reduced[0], 200, media_type=reduced[1])

    async def _whole(self, request: Request, file: FoundFile) -> Response:
        """Return the file or a range of it, in chunks."""
        tag = digest_of(file.blob)[:_TAG_CHARS]
        served = files.ServedFile(
            self._services.blobs, file.blob, file.size, file.content_type, tag, files.REVALIDATE
        )
        return await files.serve(request, served)


async def _form(request: Request, path: Path) -> _ComfyUploadForm:
    """Parse a form whose file is written to `path`; raises `BadRequest`."""
    if bodies.media_type(request) != multipart.TYPE:
        raise errors.BadRequest(_NO_IMAGE)
    upload = await uploads.receive(request, path, _PART, max_fields=_MAX_FIELDS)
    if not upload.filename:
        raise errors.BadRequest(_NO_IMAGE)
    fields = upload.fields
    name = _named(fields.get("subfolder", ""), upload.filename, fields.get("type", "input"))
    return _ComfyUploadForm(name, path, upload.content_type, fields)


def _original(text: str) -> StoredName:
    """Return the file that an `original_ref` names; raises `BadRequest`."""
    try:
        reference: object = json.loads(text)
    except (ValueError, RecursionError):
        reference = None
    fields = mapping(reference)
    subfolder, filename = (str(fields.get(name) or "") for name in ("subfolder", "filename"))
    return _named(subfolder, filename, str(fields.get("type") or "output"))


def _named(subfolder: str, filename: str, kind: str) -> StoredName:
    """Return a file name from its parts; raises `BadRequest` if it is not valid."""
    file_kind: Kind | None = next((each for each in KINDS if each == kind), None)
    path = f"{subfolder}/{filename}" if subfolder else filename
    name = (
        StoredName.parse(path, file_kind)
        if file_kind is not None and "/" not in filename and "\\" not in path
        else None
    )
    if name is None:
        raise errors.BadRequest(
            "The file name is not valid: filename must not contain a folder, "
            f"subfolder must be relative and must not contain .., and type must be one of {', '.join(KINDS)}"
        )
    return name


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "_")
