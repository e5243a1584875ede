"""Files of the Replicate-compatible API: uploads, whose URLs can be inputs of any model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting.replicate import schemas
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import rfc3339
from sixfold.core.database import Query, Rows, Transaction, one
from sixfold.core.media.media import MEDIA_PATH
from sixfold.web import requests, responses, uploads
from sixfold.web.services import ServiceHandlers, WebServices
from sixfold.web.uploads import ReceivedUpload

# The form field that contains the file.
_PART = b"content"
PAGE = 100
_ID = re.compile(r"blob_[0-9a-z]{1,64}", re.ASCII)
# Sorts after every id.
_LAST = "~"


class ReplicateFiles(ServiceHandlers):
    """Handlers for files."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._base_url = services.settings.base_url

    async def upload(self, request: Request) -> Response:
        """Store a file; its URL can be used as an input."""
        principal = await self._enter(request)

        async def work(received: ReceivedUpload) -> Response:
            stored = await self._services.media.upload(principal.tenant, received.path, received.content_type)
            return responses.json(await self._one(principal.tenant, stored.id), 201)

        return await uploads.receive_once(
            self._services, request, principal, work, part=_PART, error_format=schemas.error
        )

    async def page(self, request: Request) -> Response:
        """Return the account's files, newest first."""
        principal = await self._enter(request)
        bound = request.query_params.get("cursor", "")
        if bound and not _ID.fullmatch(bound):
            raise errors.BadRequest("cursor is invalid: use the URL in `next`")
        rows = await self._services.database.read(_page(principal.tenant, bound))
        files = [self._file(row) for row in rows[:PAGE]]
        more = (
            f"{self._base_url}{schemas.BASE}/files?{urlencode({'cursor': files[-1]['id']})}" if files else ""
        )
        page: schemas.ReplicateFilesSchema = {
            "next": more if len(rows) > PAGE else None,
            "previous": None,
            "results": files,
        }
        return responses.json(page)

    async def show(self, request: Request) -> Response:
        principal = await self._enter(request)
        return responses.json(await self._one(principal.tenant, requests.path_value(request, "file_id")))

    async def delete(self, request: Request) -> Response:
        """Delete a file; runs that already use it have a copy."""
        principal = await self._enter(request)
        file_id = requests.path_value(request, "file_id")
        query = one("upload_expire", **principal.tenant.row, upload_id=file_id)
        if await self._services.database.write(query) is None:
            raise errors.NotFound("The file was not found")
        return Response(status_code=204)

    async def _one(self, tenant: Tenant, file_id: str) -> schemas.ReplicateFileSchema:
        row = await self._services.database.read(one("media_by_upload", **tenant.row, upload_id=file_id))
        if row is None:
            raise errors.NotFound("The file was not found")
        return self._file(row)

    def _file(self, row: Mapping[str, Any]) -> schemas.ReplicateFileSchema:
        return {
            "id": row["upload_id"],
            "name": row["name"],
            "content_type": row["content_type"],
            "size": row["size"],
            "etag": row["sha256"],
            "checksums": {"sha256": row["sha256"]},
            "metadata": {},
            "created_at": rfc3339(row["created_at"]),
            "expires_at": rfc3339(row["expires_at"]),
            "urls": {"get": f"{self._base_url}{MEDIA_PATH}{row['name']}"},
        }


def _page(tenant: Tenant, bound: str) -> Transaction[Rows]:
    return (yield Query("uploads_before", {**tenant.row, "bound": bound or _LAST, "limit": PAGE + 1}))
