"""Uploads, counted against the quota of the account."""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts.keys import Principal
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions.history import titles
from sixfold.web import responses, uploads
from sixfold.web.responses import Url
from sixfold.web.services import ServiceHandlers
from sixfold.web.uploads import ReceivedUpload


class UploadSchema(TypedDict):
    """A file that can be an input of a model."""

    url: Url
    id: str
    media_type: str
    bytes: Annotated[int, msgspec.Meta(ge=1)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class UploadRoutes(ServiceHandlers):
    """Handlers for uploads."""

    async def take(self, request: Request) -> Response:
        """Store a file, whose URL can be an input of any model."""
        principal = await self._enter(request)

        async def work(upload: ReceivedUpload) -> Response:
            return await self._keep(principal, upload)

        return await uploads.receive_once(self._services, request, principal, work)

    async def _keep(self, principal: Principal, received: ReceivedUpload) -> Response:
        media = self._services.media
        upload = await media.upload(principal.tenant, received.path, received.content_type)
        await self._services.database.write(titles.record(upload.name, received.filename))
        result: UploadSchema = {
            "url": f"{self._services.settings.base_url}{MEDIA_PATH}{upload.name}",
            "id": upload.id,
            "media_type": upload.content_type,
            "bytes": upload.size,
            "sha256": upload.sha256,
        }
        return responses.json(result, 201)
