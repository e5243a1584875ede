"""Files of ComfyUI clients: put by name, and seen by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.graphs.documents import mapping
from sixfold.core.graphs.keeping import KINDS, Found, Kind, Name, Run
from sixfold.core.work.engines import UnusableInput
from sixfold.core.work.media import Source
from sixfold.web import answers, multipart, sniffing
from sixfold.web.services import Services

_SHOWN = ("image/", "video/", "audio/")
_MEDIA = (*_SHOWN, "model/", "text/plain")
_DRAWN = "image/svg+xml"


@dataclass(frozen=True, slots=True)
class _Form:
    """A file by its name, its bytes, the type that it claims, and the other fields beside it."""

    name: Name
    data: bytes
    claimed: str
    told: Mapping[str, str]


class Files:
    """`/upload/image`, `/upload/mask` and `/view`."""

    def __init__(self, services: Services, enter: Callable[[HTTPConnection], Awaitable[Principal]]) -> None:
        self._services = services
        self._names = services.workshop.names
        self._enter = enter

    async def upload(self, request: Request) -> Response:
        """Keep a picture, a sound or a film under its name, or one near it."""
        principal = await self._enter(request)
        return await self._keep(principal.tenant, await _form(request))

    async def upload_mask(self, request: Request) -> Response:
        """Keep the picture that `original_ref` names with the alpha of the one that is sent."""
        principal = await self._enter(request)
        form = await _form(request)
        original = await self._names.find(principal.tenant, _original(form.told.get("original_ref", "")))
        if original is None:
            raise errors.BadRequest("There is no picture that original_ref names")
        picture = await self._services.blobs.get(original.blob)
        try:
            data = await asyncio.to_thread(self._services.workshop.masked, picture, form.data)
        except UnusableInput as error:
            raise errors.BadRequest(str(error)) from error
        return await self._keep(principal.tenant, replace(form, data=data, claimed="image/png"))

    async def _keep(self, tenant: Tenant, form: _Form) -> Response:
        name, data = form.name, form.data
        content_type = sniffing.sniff(data[: sniffing.HEAD_BYTES], form.claimed)
        if not content_type.startswith(_SHOWN):
            raise errors.UnsupportedMedia("What is uploaded here is a picture, a sound or a film")
        source = await self._kept(tenant.account_id, data, content_type)
        if form.told.get("overwrite", "").lower() not in ("true", "1"):
            name = await self._free(tenant, name, source.blob)
        await self._names.put(Run(tenant), name, source)
        return answers.json({"name": name.name, "subfolder": name.subfolder, "type": name.kind})

    async def _kept(self, account_id: str, data: bytes, content_type: str) -> Source:
        """The bytes as an upload, counted against the account's quota."""
        folder = self._services.settings.data_dir / "tmp"
        path = folder / f"upload-{secrets.token_hex(16)}"

        def write() -> None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)

        await asyncio.to_thread(write)
        try:
            upload = await self._services.media.upload(account_id, path, content_type)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        found = await self._services.media.find(upload.name)
        return Source(found.blob, content_type, len(data))

    async def _free(self, tenant: Tenant, name: Name, blob: str) -> Name:
        """The name, or the first with a number that no other file has."""
        path, at = PurePosixPath(name.name), 1
        while (found := await self._names.find(tenant, name)) is not None and found.blob != blob:
            name = Name(f"{path.stem} ({at}){path.suffix}", name.subfolder, name.kind)
            at += 1
        return name

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
        data, content_type = await self._seen(found, query)
        shown = content_type.startswith(_MEDIA) and content_type != _DRAWN
        way = "inline" if shown else "attachment"
        headers = {
            "Content-Disposition": f'{way}; filename="{_ascii(name.name)}"',
            "Content-Security-Policy": "sandbox",
            "Cache-Control": "no-cache",
        }
        return Response(data, 200, headers, content_type)

    async def _seen(self, found: Found, query: Mapping[str, str]) -> tuple[bytes, str]:
        """The file as it is; where the query asks for less of a picture, that."""
        data, channel = await self._services.blobs.get(found.blob), query.get("channel", "")
        less = "preview" in query or channel in ("rgb", "a")
        if less and found.content_type.startswith("image/") and found.content_type != _DRAWN:
            with contextlib.suppress(UnusableInput):
                viewed = self._services.workshop.viewed
                return await asyncio.to_thread(viewed, data, query.get("preview"), channel)
        return data, found.content_type


async def _form(request: Request) -> _Form:
    """A form with a file; raises `BadRequest`."""
    async with multipart.form(request, max_files=1, max_fields=20) as form:
        told = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form.get("image")
        if file is None or isinstance(file, str) or not file.filename:
            raise errors.BadRequest("The form has no part named image")
        name = _named(told.get("subfolder", ""), file.filename, told.get("type", "input"))
        return _Form(name, await file.read(), file.content_type or "", told)


def _original(text: str) -> Name:
    """The file that an `original_ref` names; raises `BadRequest`."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    told = mapping(found)
    subfolder, filename = (str(told.get(name) or "") for name in ("subfolder", "filename"))
    return _named(subfolder, filename, str(told.get("type") or "output"))


def _named(subfolder: str, filename: str, kind: str) -> Name:
    """A file's name by its parts; raises `BadRequest` for one that leads elsewhere."""
    known: Kind | None = next((each for each in KINDS if each == kind), None)
    whole = f"{subfolder}/{filename}" if subfolder else filename
    name = (
        Name.parse(whole, known) if known is not None and "/" not in filename and "\\" not in whole else None
    )
    if name is None:
        raise errors.BadRequest("This is no name of a file")
    return name


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace('"', "'").replace("\\", "_")
