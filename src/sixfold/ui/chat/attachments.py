"""Files of chats, which are stored with a message and served to their account."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.files.files import AccountFile, FileDetails
from sixfold.core.media.blob_keys import digest_of
from sixfold.core.provenance.formats import media_types
from sixfold.ui.auth import PageUser
from sixfold.ui.chat import messages
from sixfold.ui.chat.messages import IMAGE_BYTES, IMAGE_TYPES
from sixfold.web import requests
from sixfold.web.files import REVALIDATE_PRIVATE, is_known
from sixfold.web.services import WebServices

_PURPOSE = "user_data"
_NAME_CHARS = 200
# Other files are downloaded, as an untrusted document must not run as a page of this server.
_HEADERS = {
    "Cache-Control": REVALIDATE_PRIVATE,
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class ChatFiles:
    """Stores and serves the files of chats."""

    def __init__(self, services: WebServices) -> None:
        self._files = services.files

    async def store(self, tenant: Tenant, uploads: Sequence[UploadFile]) -> tuple[AccountFile, ...]:
        """Store the files of a form; raises `BadRequest` for an unsupported type, or `TooLarge`."""
        stored: list[AccountFile] = []
        try:
            for upload in uploads:
                stored.append(await self._store(tenant, upload))
        except errors.SixfoldError:
            await self.discard(tenant, stored)
            raise
        return tuple(stored)

    async def _store(self, tenant: Tenant, upload: UploadFile) -> AccountFile:
        name = " ".join((upload.filename or "").split())[-_NAME_CHARS:] or "file"
        head = await upload.read(media_types.HEAD_BYTES)
        await upload.seek(0)
        kind = media_types.sniff(head, upload.content_type or "")
        size = upload.size or 0
        if kind in IMAGE_TYPES and size > IMAGE_BYTES:
            raise errors.TooLarge(f"{name} must be at most {IMAGE_BYTES:,} bytes (got {size:,})")
        if not messages.can_attach(name, kind):
            raise errors.BadRequest(
                f"{name} cannot be attached: attach images (PNG, JPEG, WebP, GIF), "
                "PDF, DOCX, EPUB or text files"
            )
        async with self._files.temporary_path() as path:
            await asyncio.to_thread(_save, upload.file, path)
            return await self._files.create(tenant, FileDetails(name, _PURPOSE, kind), path)

    async def discard(self, tenant: Tenant, stored: Sequence[AccountFile]) -> None:
        """Delete the files of a message that was refused."""
        for file in stored:
            await self._files.delete(tenant, file.id)

    async def show(self, request: Request, user: PageUser) -> Response:
        """Return an attached image, or another file as a download; raises `NotFound`."""
        file = await self._files.get(user.tenant, requests.path_value(request, "file_id"))
        is_image = file.content_type in IMAGE_TYPES
        disposition = f"{'inline' if is_image else 'attachment'}; filename*=UTF-8''{quote(file.filename)}"
        tag = digest_of(file.blob)
        headers = {**_HEADERS, "Content-Disposition": disposition, "ETag": f'"{tag}"'}
        if is_known(request, tag):
            return Response(None, 304, headers)
        headers["Content-Length"] = str(file.size)
        return StreamingResponse(self._files.read(file), 200, headers, file.content_type)


def _save(source: BinaryIO, path: Path) -> None:
    with path.open("xb") as target:
        shutil.copyfileobj(source, target)
