"""Files of ComfyUI clients: put by name, and seen by name."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath

from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.graphs.keeping import KINDS, Kind, Name
from sixfold.core.work.media import Source
from sixfold.web import answers, sniffing
from sixfold.web.services import Services

_SHOWN = ("image/", "video/", "audio/")
_MEDIA = (*_SHOWN, "model/", "text/plain")
_DRAWN = "image/svg+xml"


class Files:
    """`/upload/image`, `/upload/mask` and `/view`."""

    def __init__(self, services: Services, enter: Callable[[HTTPConnection], Awaitable[Principal]]) -> None:
        self._services = services
        self._names = services.workshop.names
        self._enter = enter

    async def upload(self, request: Request) -> Response:
        """Keep a picture, a sound or a film under its name, or one near it."""
        principal = await self._enter(request)
        name, data, claimed, told = await _form(request)
        content_type = sniffing.sniff(data[: sniffing.HEAD_BYTES], claimed)
        if not content_type.startswith(_SHOWN):
            raise errors.UnsupportedMedia("What is uploaded here is a picture, a sound or a film")
        if told.get("overwrite", "").lower() not in ("true", "1"):
            name = await self._free(principal.account_id, name)
        source = await self._kept(principal.account_id, data, content_type)
        await self._names.put(principal.account_id, name, source)
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

    async def _free(self, account_id: str, name: Name) -> Name:
        """The name, or the first with a number that nothing else has."""
        path, at = PurePosixPath(name.name), 1
        while await self._names.find(account_id, name) is not None:
            name = Name(f"{path.stem} ({at}){path.suffix}", name.subfolder, name.kind)
            at += 1
        return name

    async def view(self, request: Request) -> Response:
        """A file by its name."""
        principal = await self._enter(request)
        query = request.query_params
        try:
            name = _named(query.get("subfolder", ""), query.get("filename", ""), query.get("type", "output"))
        except errors.BadRequest:
            return Response(status_code=400)
        found = await self._names.find(principal.account_id, name)
        if found is None:
            return Response(status_code=404)
        shown = found.content_type.startswith(_MEDIA) and found.content_type != _DRAWN
        way = "inline" if shown else "attachment"
        headers = {
            "Content-Disposition": f'{way}; filename="{_ascii(name.name)}"',
            "Content-Security-Policy": "sandbox",
            "Cache-Control": "no-cache",
        }
        return Response(await self._services.blobs.get(found.blob), 200, headers, found.content_type)


async def _form(request: Request) -> tuple[Name, bytes, str, dict[str, str]]:
    """The form's file by its name, its bytes, the type that it claims, and the other fields."""
    try:
        async with request.form(max_files=1, max_fields=20) as form:
            told = {name: value for name, value in form.items() if isinstance(value, str)}
            file = form.get("image")
            if file is None or isinstance(file, str) or not file.filename:
                raise errors.BadRequest("The form has no part named image")
            name = _named(told.get("subfolder", ""), file.filename, told.get("type", "input"))
            return name, await file.read(), file.content_type or "", told
    except MultiPartException as error:
        raise errors.BadRequest("Invalid form body") from error


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
