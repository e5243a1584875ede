"""Files of run forms, sent by a script or in a form, which are stored as uploads of the account."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.media.media import MEDIA_PATH, Upload
from sixfold.core.predictions.history import titles
from sixfold.core.provenance.formats import media_types
from sixfold.core.temporary_files import temporary_path
from sixfold.ui.auth import PageUser
from sixfold.web import responses, uploads
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload


class FormUploads:
    """Stores the files of run forms."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._folder = services.settings.data_dir / "tmp"

    async def upload(self, request: Request, user: PageUser) -> Response:
        """Store a file of a form and return its URL.

        `kind` is the type of the input that it is for, and `name` its name on the user's device.
        """
        kind = request.query_params.get("kind", "")
        async with temporary_path(self._folder) as path:
            received = await uploads.receive(request, path)
            received.filename = request.query_params.get("name", "")
            upload = await self._store(user, received, kind)
        document = {"url": self._url(upload), "media_type": upload.content_type, "bytes": upload.size}
        return responses.json(document, 201)

    async def store(self, user: PageUser, file: UploadFile, kind: str) -> str:
        """Store a file of a form without JavaScript for an input of type `kind`; return its URL."""
        async with temporary_path(self._folder) as path:
            await asyncio.to_thread(_write, path, file)
            head = await file.read(media_types.HEAD_BYTES)
            claimed_type = (file.content_type or "").partition(";")[0].strip()
            upload = ReceivedUpload(path, file.size or 0, head, claimed_type, filename=file.filename or "")
            return self._url(await self._store(user, upload, kind))

    async def _store(self, user: PageUser, received: ReceivedUpload, kind: str) -> Upload:
        heads = media_types.heads_of(kind)
        if heads and not re.match(heads.encode(), received.head, re.DOTALL):
            raise errors.BadRequest(f"This file is not a supported {kind} file ({received.content_type})")
        upload = await self._services.media.upload(user.tenant, received.path, received.content_type)
        await self._services.database.write(titles.record(upload.name, received.filename))
        return upload

    def _url(self, upload: Upload) -> str:
        return f"{self._services.settings.base_url}{MEDIA_PATH}{upload.name}"


def _write(path: Path, file: UploadFile) -> None:
    with path.open("xb") as target:
        shutil.copyfileobj(file.file, target)
    file.file.seek(0)
