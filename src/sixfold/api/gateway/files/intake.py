"""Receipt of files: written to disk as they arrive, and stored once for an `Idempotency-Key`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.core.accounts.keys import Principal
from sixfold.core.files.files import AccountFile
from sixfold.web import files as served_files
from sixfold.web import uploads
from sixfold.web.files import ServedFile
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload

_MAX_FIELDS = 16
Work = Callable[[Principal, ReceivedUpload], Awaitable[Response]]


class FileIntake:
    """Authenticates requests with a file, and writes the file to disk."""

    def __init__(self, services: WebServices, auth: CachedKeyAuth) -> None:
        self._services = services
        self._auth = auth

    async def receive(self, request: Request, part: bytes, error_format: ErrorFormat, work: Work) -> Response:
        """Return the response of `work` for the form's file; raises `BadRequest` and `TooLarge`."""
        principal = await self._auth.enter(request)
        async with self._services.files.temporary_path() as path:
            upload = await uploads.receive(request, path, part, max_fields=_MAX_FIELDS)

            async def answer(_idempotency_id: str | None) -> Response:
                return await work(principal, upload)

            idempotent_request = IdempotentRequest(principal.replays, upload.digest, error_format)
            return await self._services.idempotency.run(request, idempotent_request, answer)


async def content(request: Request, services: WebServices, file: AccountFile) -> Response:
    """Return the bytes of a file, or the requested range of them."""
    tag = file.blob.rpartition("/")[2]
    served_file = ServedFile(
        services.blobs, file.blob, file.size, "application/octet-stream", tag, "private, no-cache"
    )
    response = await served_files.serve(request, served_file)
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file.filename)}"
    return response
